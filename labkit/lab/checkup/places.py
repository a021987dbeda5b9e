"""Places: room and permission where models, records and temporary files go, and the device's lock file."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from labkit.bench.lease import holder, lease_path
from labkit.lab.checkup.line import Line
from labkit.lab.checkup.models import STARTER
from labkit.model.fetch import BUNDLED

LEAST_BYTES = 1e9
# Less than this and a record or a worker's temporary file may not fit.
STOPS_BYTES = 50e6


@dataclass(frozen=True, slots=True)
class Place:
    """A folder that labkit writes in, which need not exist yet. mend: how another one is chosen."""

    name: str
    folder: Path
    mend: str

    def nearest(self) -> Path:
        """The folder, or the first one above it that exists."""
        above = (self.folder, *self.folder.absolute().parents)
        return next(folder for folder in above if folder.exists())


def places(root: Path, home: Path | None = None) -> tuple[Place, ...]:
    """Where models (home None: unknown), records and temporary files go."""
    models = (Place("models", home, "set LABKIT_HOME to a folder of yours on a larger disk"),) if home else ()
    return (
        *models,
        Place("results", root / "results", "give --root a folder of yours on a larger disk"),
        Place("temporary", Path(tempfile.gettempdir()), "set TMPDIR to a folder of yours on a larger disk"),
    )


def disk_lines(found: tuple[Place, ...], *, wants_starter: bool) -> Iterator[Line]:
    """Free bytes at every place. wants_starter: whether the examples' model has yet to be fetched."""
    for place in found:
        needed = starter_bytes() if wants_starter and place.name == "models" else LEAST_BYTES
        yield disk_line(place, shutil.disk_usage(place.nearest()).free, max(needed, LEAST_BYTES))


def disk_line(place: Place, free: float, needed: float) -> Line:
    """Whether what is free will do."""
    text = f"{free / 1e9:,.1f} GB free"
    if free >= needed:
        return Line("disk", place.name, "ok", text)
    level = "problem" if free < STOPS_BYTES else "warning"
    return Line(
        "disk",
        place.name,
        level,
        f"{text}; {needed / 1e9:.1f} GB are safe",
        f"free some space, or {place.mend}",
    )


def starter_bytes() -> float:
    """What `labkit models get` asks for to fetch the examples' model and to import it in f32."""
    bundled = BUNDLED[STARTER]
    return 2 * bundled.wheel_bytes + bundled.gguf_bytes + 4 * bundled.parameters


def permission_lines(found: tuple[Place, ...], lease: Path | None = None) -> Iterator[Line]:
    """Whether a file can be made at every place, and the device's lock file be opened."""
    for place in found:
        yield _writable(place)
    yield lease_line(lease or lease_path())


def _writable(place: Place) -> Line:
    folder = place.nearest()
    try:
        with tempfile.TemporaryFile(dir=folder) as stream:
            stream.write(b"labkit")
    except NotADirectoryError:
        text = f"{folder} is a file where a folder is needed"
        return Line("permissions", place.name, "problem", text, f"rename it, or {place.mend}")
    except OSError as error:
        text = f"{folder} cannot be written: {error.strerror or error}"
        return Line("permissions", place.name, "problem", text, f"chmod u+rwx '{folder}', or {place.mend}")
    made = "" if folder == place.folder else ", which labkit will make"
    return Line("permissions", place.name, "ok", f"{place.folder}{made}")


def lease_line(path: Path) -> Line:
    """Whether the lock file can be opened, and who measures now, if anyone. Makes no file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return Line("permissions", "device lease", "ok", f"free ({path})")
    except OSError as error:
        text = f"{path} cannot be opened: {error.strerror or error}"
        return Line("permissions", "device lease", "problem", text, f"chmod a+r '{path}' as its owner")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = f"held by {holder(path)}"
        return Line("permissions", "device lease", "warning", text, "wait for it to end; a run waits too")
    except OSError as error:
        text = f"{path} cannot be locked: {error.strerror or error}"
        return Line("permissions", "device lease", "warning", text, "set TMPDIR to a folder of a local disk")
    finally:
        os.close(descriptor)
    return Line("permissions", "device lease", "ok", f"free ({path})")
