"""Config file: reads a file of KV settings per layer. Judges nothing of what it holds: the planner does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from labkit.core.arm import Arm
from labkit.core.kv_file import KVFile, file_of, pinned

# Far more than one entry a layer takes.
MOST_BYTES = 1 << 20


def read_kv_file(path: str | Path) -> KVFile:
    """The content of a file, or why it could not be read. A relative path begins in the current folder."""
    place = Path(path)
    try:
        if place.exists() and not place.is_file():
            return KVFile(problem="a folder or device")
        if place.stat().st_size > MOST_BYTES:
            return KVFile(problem=f"{place.stat().st_size:,} bytes, and {MOST_BYTES:,} are the most")
        return KVFile(text=place.read_bytes().decode())
    except UnicodeDecodeError:
        return KVFile(problem="not text in UTF-8")
    except FileNotFoundError:
        return KVFile(problem=f"no such file in {Path.cwd()}" if not place.is_absolute() else "no such file")
    except (OSError, ValueError) as error:
        return KVFile(problem=getattr(error, "strerror", None) or str(error))


def pinned_arm(arm: Arm) -> Arm:
    """The arm whose KV scheme names the content of its file, so that no other content runs in its place.

    An arm without a file comes back as it is, as does one whose file cannot be read: the planner says why.
    """
    name = str(arm.kv)
    path = file_of(name)
    file = KVFile(problem="none") if path is None else read_kv_file(path)
    return arm if file.problem else replace(arm, kv=pinned(name, file.pin))
