"""Files: which files the index is made of, with the size and time that tell whether one changed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow

RESULTS = "results"
# The folder of badges, whose JSON files are no records.
VERIFIED = "verified"
# Folders of results/ that hold no records, wherever they lie.
_OTHERS = ("journals", "set-aside", VERIFIED)
LINK = "a link out of the lab, which is not followed"
EXPERIMENTS = "experiments"
_DECISIONS = (".toml", ".md")


def record_files(root: Path | str) -> tuple[Path, ...]:
    """The record files `root/results/<machine>/*.json`, sorted; hidden names are unfinished writes.

    A machine's folder that is a link out of the lab is not looked into: see `links_out`.
    """
    folders = (Path(root) / RESULTS / machine for machine in _machines(Path(root)))
    return tuple(sorted(path for folder in folders for path in folder.iterdir() if _is_json(path.name)))


def is_record(path: str) -> bool:
    """Whether a path below the lab root, in POSIX form, is where a record may lie."""
    parts = path.split("/")
    holds_records = len(parts) == 3 and parts[0] == RESULTS and parts[1] != VERIFIED
    return holds_records and _counts(parts[1]) and _is_json(parts[2])


def is_result(path: str) -> bool:
    """Whether a path of `file_table` is a record's, or that of a link among the machines."""
    return path.startswith(f"{RESULTS}/")


def leads_out(path: Path | str, root: Path | str) -> bool:
    """Whether a path below results/ lies elsewhere, by its links; results/ itself may be one."""
    home = os.path.realpath(os.path.join(root, RESULTS))  # noqa: PTH118 - asked of every link of many
    return not os.path.realpath(path).startswith(os.path.join(home, ""))  # noqa: PTH118


def links_out(root: Path | str) -> tuple[Path, ...]:
    """The links in results/ that would be a machine's folder if they did not lead out of the lab."""
    root = Path(root)
    links = (root / RESULTS / name for name in _folders(root) if name not in _OTHERS)
    return tuple(path for path in links if path.is_symlink() and leads_out(path, root))


def file_table(root: Path | str) -> pyarrow.Table:
    """A row per file the index is made of (records and decisions): path, bytes, mtime_ns, no order.

    A file that vanishes meanwhile is left out.
    """
    import pyarrow

    found = _Found()
    root = Path(root)
    for machine in _machines(root):
        found.add(root / RESULTS / machine, f"{RESULTS}/{machine}/", _is_json)
    links = {path.name for path in links_out(root)}
    found.add(root / RESULTS, f"{RESULTS}/", links.__contains__)
    found.add(root / EXPERIMENTS, f"{EXPERIMENTS}/", _is_decision)
    columns = [
        _text(found.paths),
        *(pyarrow.array(c, pyarrow.int64()) for c in (found.sizes, found.times_ns)),
    ]
    return pyarrow.table(columns, names=["path", "bytes", "mtime_ns"])


def shown(text: str) -> str:
    """A path or a reason as text that UTF-8 can hold; what a file name holds of other bytes is escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _text(paths: list[str]) -> pyarrow.Array:
    import pyarrow

    try:
        return pyarrow.array(paths, pyarrow.string())
    except (UnicodeEncodeError, pyarrow.ArrowInvalid):
        return pyarrow.array([shown(path) for path in paths], pyarrow.string())


class _Found:
    """Columns of files. A hundred thousand are looked at before every query, so the loop is a tight one."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.sizes: list[int] = []
        self.times_ns: list[int] = []

    def add(self, folder: Path, prefix: str, wanted: Callable[[str], bool]) -> None:
        """The wanted files of a folder that may not exist. Raises OSError where it cannot be read."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), _entries(folder) as entries:
            for entry in entries:
                if wanted(entry.name):
                    self._add(prefix, entry)

    def _add(self, prefix: str, entry: os.DirEntry[str]) -> None:
        try:
            stat = _stat(entry)
        except FileNotFoundError:
            return
        self.paths.append(prefix + entry.name)
        self.sizes.append(stat.st_size)
        self.times_ns.append(stat.st_mtime_ns)


def _stat(entry: os.DirEntry[str]) -> os.stat_result:
    """Of what is read, which is a link's target; of the link where that leads nowhere."""
    try:
        return entry.stat()
    except OSError:
        return entry.stat(follow_symlinks=False)


@contextlib.contextmanager
def _entries(folder: Path) -> Iterator[Iterator[os.DirEntry[str]]]:
    """The entries by the folder's handle: by its path, the system would walk that again for every file."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with os.scandir(handle) as entries:
            yield entries
    finally:
        os.close(handle)


def _machines(root: Path) -> list[str]:
    links = {path.name for path in links_out(root)}
    return [name for name in _folders(root) if name not in links and name != VERIFIED]


def _folders(root: Path) -> list[str]:
    try:
        with os.scandir(root / RESULTS) as entries:
            return sorted(entry.name for entry in entries if _counts(entry.name) and entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _counts(name: str) -> bool:
    return not name.startswith(".")


def _is_decision(name: str) -> bool:
    return name.endswith(_DECISIONS) and _counts(name)


def _is_json(name: str) -> bool:
    return name.endswith(".json") and _counts(name)
