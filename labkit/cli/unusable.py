"""Unusable: what the system says of a file or folder, as one of labkit's messages."""

from __future__ import annotations

from labkit.core.errors import LabkitError


def unusable(error: OSError) -> LabkitError:
    """The system's reason and the path it concerns, where it names one."""
    return LabkitError(
        "a file or folder that can be read and written was needed",
        got=": ".join(str(part) for part in (error.filename, error.strerror or error) if part),
        next_step="check the path, its permissions and the free space",
    )
