"""Keep: makes sure that what was measured is not lost, whatever the disk does."""

from __future__ import annotations

import tempfile
from pathlib import Path

from labkit.core.errors import LabkitError
from labkit.core.events import Note, Sink
from labkit.core.records import Record
from labkit.store.index import refresh
from labkit.store.query import database_path
from labkit.store.write import is_safe_name, write_record

# A record of a few hundred visits with its raw samples; the index beside it can be made again.
ROOM_BYTES = 2 * 2**20
_FOLDER = "labkit-rescued-"


class ResultsUnwritable(LabkitError):
    """The results folder takes no record. path: where the record lies instead, None before a run."""

    path: Path | None = None


def check_room(root: Path) -> None:
    """Raise ResultsUnwritable where a record could not be written below `root`; leaves nothing behind."""
    if not root.is_dir():
        raise ResultsUnwritable(
            "a lab folder to keep the record in was needed", got=f"{root}: no such folder"
        )
    folder = root / "results"
    place = folder if folder.exists() else root
    try:
        with tempfile.TemporaryFile(dir=place) as probe:
            probe.write(bytes(ROOM_BYTES))
            probe.flush()
    except OSError as error:
        raise ResultsUnwritable(
            f"a results folder with room for a record ({ROOM_BYTES // 2**20} MiB) was needed before the run",
            got=f"{place}: {error.strerror}",
            next_step="free some space, mend its permissions, or give another --root",
        ) from error


def keep_record(record: Record, root: Path) -> Path:
    """Write a record into the lab. Where that fails, write it to a temporary folder and raise
    ResultsUnwritable, which says where it is."""
    try:
        return write_record(record, root)
    except OSError as error:
        raise _rescued(record, root, error) from error


def rescued_record(slug: str, run_id: str) -> Path | None:
    """Where the record of a run lies that `keep_record` wrote to a temporary folder; None where none does.

    A disk that was full may have taken no line of the journal about it either.
    """
    if not (is_safe_name(slug) and is_safe_name(run_id)):
        return None
    found = Path(tempfile.gettempdir()).glob(f"{_FOLDER}*/results/{slug}/{run_id}.json")
    return next((path for path in sorted(found) if path.is_file()), None)


def refresh_index(root: Path, sink: Sink) -> None:
    """Refresh the index; where that fails a note says so, since queries then read the records themselves."""
    import duckdb

    try:
        refresh(root, database_path(root))
    except (OSError, duckdb.Error) as error:
        reason = str(error).partition("\n")[0]
        sink(Note(f"the record is kept, but results/lab.duckdb was not refreshed: {reason}"))
        sink(Note("later: labkit store rebuild"))


def _rescued(record: Record, root: Path, error: OSError) -> ResultsUnwritable:
    slug = record.machine["slug"]
    need, got = f"the record could not be written to {root}/results/{slug}", error.strerror or str(error)
    try:
        path = write_record(record, Path(tempfile.mkdtemp(prefix=_FOLDER)))
    except OSError as second:
        visits = f"the {len(record.visits)} visits of this run are lost"
        return ResultsUnwritable(f"{need}, nor to a temporary folder; {visits}", got=f"{got}; {second}")
    rescued = ResultsUnwritable(
        f"{need}; it is kept in {path}",
        got=got,
        next_step=f"free some space, move it to {root}/results/{slug}/, then: labkit store rebuild",
    )
    rescued.path = path
    return rescued
