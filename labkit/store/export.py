"""Export: tables and views as files for other tools, written whole or not at all. Asks no question itself."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from labkit.core.errors import LabkitError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Format = Literal["parquet", "csv"]
_OPTIONS = {"parquet": "FORMAT parquet, COMPRESSION zstd", "csv": "FORMAT csv, HEADER"}


class ExportRefused(LabkitError):
    """A folder that cannot take the files, or holds files of their names already."""


def export(
    connection: DuckDBPyConnection, names: Sequence[str], folder: Path, form: Format, force: bool = False
) -> tuple[Path, ...]:
    """Write every named table or view to `folder/<name>.<form>` and return the paths, in order.

    The files are written to a hidden folder beside their places and moved once all are whole. In csv nested
    columns are JSON text. force: whether files of the same names may be replaced.
    Raises ExportRefused where one exists and `force` is not given, or the folder cannot be written.
    """
    targets = tuple(folder / f"{name}.{form}" for name in names)
    _refuse_taken(targets, force)
    try:
        with _scratch(folder) as scratch:
            for name, target in zip(names, targets, strict=True):
                _write(connection, name, scratch / target.name, form)
            _publish(scratch, targets)
    except OSError as error:
        raise _unwritable(folder, error.strerror or str(error)) from error
    return targets


def _refuse_taken(targets: Sequence[Path], force: bool) -> None:
    taken = [path.name for path in targets if os.path.lexists(path)]
    # A folder is never replaced by a file, whatever was said.
    folders = [path.name for path in targets if path.is_dir()]
    if folders or (taken and not force):
        got = ", ".join((folders or taken)[:3]) + (" and more" if len(folders or taken) > 3 else "")
        raise ExportRefused(
            f"a folder without files of these names was needed: {targets[0].parent}",
            got=f"{got}, which {'is a folder' if folders else 'exists'}",
            next_step="name another folder" + ("" if folders else ", or add --force to replace them"),
        )


def _write(connection: DuckDBPyConnection, name: str, path: Path, form: Format) -> None:
    import duckdb

    quoted = str(path).replace("'", "''")
    try:
        connection.execute(f"COPY ({_query(connection, name, form)}) TO '{quoted}' ({_OPTIONS[form]})")
    except duckdb.Error as error:
        raise _unwritable(path.parent.parent, str(error).partition("\n")[0]) from error


def _query(connection: DuckDBPyConnection, name: str, form: Format) -> str:
    if form == "parquet":
        return f"SELECT * FROM {name}"
    described = connection.execute(f"DESCRIBE {name}").fetchall()
    columns = (f'to_json("{c}")::VARCHAR AS "{c}"' if _nested(t) else f'"{c}"' for c, t, *_ in described)
    return f"SELECT {', '.join(columns)} FROM {name}"


def _nested(kind: str) -> bool:
    return kind.endswith("]") or kind.startswith(("STRUCT", "MAP", "UNION"))


def _publish(scratch: Path, targets: Sequence[Path]) -> None:
    """Give the files their names; where one cannot be, none of the others' old contents is lost."""
    kept = scratch / "replaced"
    kept.mkdir()
    done: list[Path] = []
    try:
        for target in targets:
            if os.path.lexists(target):
                target.rename(kept / target.name)
            done.append(target)
            (scratch / target.name).rename(target)
    except BaseException:
        for target in done:
            target.unlink(missing_ok=True)
            if os.path.lexists(kept / target.name):
                (kept / target.name).rename(target)
        raise


@contextlib.contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """A hidden folder in `folder`; if that had to be made for it and stays empty, it goes too."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".labkit-export-", dir=folder))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        with contextlib.suppress(OSError):
            for path in missing:
                path.rmdir()


def _unwritable(folder: Path, reason: str) -> ExportRefused:
    return ExportRefused(
        f"a folder that can be written was needed: {folder}",
        got=reason,
        next_step="free some space or name another folder; nothing was written",
    )
