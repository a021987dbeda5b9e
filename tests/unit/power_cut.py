"""A disk that loses its power: records what is done to files and says what could lie there at any moment.

What POSIX promises and no more: bytes are durable once their file was fsynced, a name once its folder was.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple
from unittest.mock import patch

from labkit.store import durable

# What is left of bytes that were not fsynced, and whether names that were not are there.
Loss = Literal["all", "bytes", "half of the bytes", "bytes to zeros", "names"]
LOSSES: tuple[Loss, ...] = ("all", "bytes", "half of the bytes", "bytes to zeros", "names")


class Operation(NamedTuple):
    """One thing done to a file (by number) or a name (below the root)."""

    kind: Literal["make", "write", "cut", "sync", "sync folder", "link", "move", "unlink", "folder", "mark"]
    what: Any
    more: Any = None


@dataclass
class Recorder:
    """Every operation below a root, in order."""

    root: Path
    operations: list[Operation] = field(default_factory=list)
    _names: dict[str, int] = field(default_factory=dict)
    _handles: dict[int, int | str] = field(default_factory=dict)
    _files: int = 0

    def mark(self, what: Any) -> None:
        """Note that something was said to be durable."""
        self.operations.append(Operation("mark", what))

    @contextmanager
    def recording(self) -> Iterator[Recorder]:
        """Record what this process does through `os` and `pathlib` within the block."""
        names = (
            "open",
            "close",
            "write",
            "fsync",
            "ftruncate",
            "link",
            "replace",
            "rename",
            "unlink",
            "mkdir",
        )
        # Where a system has more than fsync, labkit does with it what it does with fsync elsewhere.
        patches: list[Any] = [patch.object(durable, "_FULL_SYNC", None)]
        patches += [patch.object(os, name, self._watched(name, getattr(os, name))) for name in names]
        try:
            for each in patches:
                each.start()
            yield self
        finally:
            for each in patches:
                each.stop()

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        watch = getattr(self, f"_{name}")

        def watched(*arguments: Any, **options: Any) -> Any:
            return watch(real, *arguments, **options)

        return watched

    def _below(self, path: Any) -> str | None:
        """A path as a name below the root; None for any other."""
        if isinstance(path, int):
            return None
        whole = Path(os.path.abspath(os.fspath(path)))  # noqa: PTH100 - resolve() would follow the recorder
        return whole.relative_to(self.root).as_posix() if whole.is_relative_to(self.root) else None

    def _open(self, real: Callable[..., int], path: Any, flags: int, *rest: Any, **options: Any) -> int:
        name = self._below(path)
        new = name is not None and not Path(path).exists()
        handle = real(path, flags, *rest, **options)
        if name is not None:
            if Path(path).is_dir():
                self._handles[handle] = name
            elif new:
                self._files += 1
                self._names[name] = self._files
                self.operations.append(Operation("make", name, self._files))
            if name in self._names:
                self._handles[handle] = self._names[name]
        return handle

    def _close(self, real: Callable[[int], None], handle: int) -> None:
        self._handles.pop(handle, None)
        real(handle)

    def _write(self, real: Callable[[int, Any], int], handle: int, data: Any) -> int:
        written = real(handle, data)
        if isinstance(self._handles.get(handle), int):
            self.operations.append(Operation("write", self._handles[handle], bytes(data[:written])))
        return written

    def _fsync(self, real: Callable[[int], None], handle: int) -> None:
        real(handle)
        what = self._handles.get(handle)
        if what is not None:
            self.operations.append(Operation("sync" if isinstance(what, int) else "sync folder", what))

    def _ftruncate(self, real: Callable[[int, int], None], handle: int, size: int) -> None:
        real(handle, size)
        if isinstance(self._handles.get(handle), int):
            self.operations.append(Operation("cut", self._handles[handle], size))

    def _link(self, real: Callable[..., None], source: Any, target: Any, **options: Any) -> None:
        real(source, target, **options)
        self._named("link", source, target)

    def _replace(self, real: Callable[..., None], source: Any, target: Any) -> None:
        real(source, target)
        self._named("move", source, target)

    _rename = _replace

    def _named(self, kind: Literal["link", "move"], source: Any, target: Any) -> None:
        before, after = self._below(source), self._below(target)
        if before in self._names and after is not None:
            self._names[after] = self._names[before] if kind == "link" else self._names.pop(before)
            self.operations.append(Operation(kind, before, after))

    def _unlink(self, real: Callable[..., None], path: Any, **options: Any) -> None:
        real(path, **options)
        name = self._below(path)
        if name in self._names:
            del self._names[name]
            self.operations.append(Operation("unlink", name))

    def _mkdir(self, real: Callable[..., None], path: Any, *rest: Any, **options: Any) -> None:
        real(path, *rest, **options)
        name = self._below(path)
        if name is not None:
            self.operations.append(Operation("folder", name))


@dataclass
class Disk:
    """What the running system sees and what would survive, after a number of operations."""

    names: dict[str, int | None] = field(default_factory=dict)
    durable_names: dict[str, int | None] = field(default_factory=dict)
    bytes: dict[int, bytes] = field(default_factory=dict)
    durable_bytes: dict[int, bytes] = field(default_factory=dict)
    marks: list[Any] = field(default_factory=list)

    def apply(self, operation: Operation) -> None:
        kind, what, more = operation
        if kind == "make":
            self.names[what], self.bytes[more], self.durable_bytes[more] = more, b"", b""
        elif kind == "write":
            self.bytes[what] += more
        elif kind == "cut":
            self.bytes[what] = self.bytes[what][:more]
        elif kind == "sync":
            self.durable_bytes[what] = self.bytes[what]
        elif kind == "sync folder":
            self._sync_folder(what)
        elif kind in ("link", "move"):
            self.names[more] = self.names[what] if kind == "link" else self.names.pop(what)
        elif kind == "unlink":
            del self.names[what]
        elif kind == "folder":
            self.names[what] = None
        elif kind == "mark":
            self.marks.append(what)

    def _sync_folder(self, folder: str) -> None:
        for kept in [n for n in self.durable_names if _parent(n) == folder and n not in self.names]:
            del self.durable_names[kept]
        self.durable_names.update({n: f for n, f in self.names.items() if _parent(n) == folder})

    def after(self, loss: Loss) -> dict[str, bytes | None]:
        """Name -> bytes (None: a folder) as they could be found after the power is back."""
        names = self.durable_names if loss in ("all", "names") else self.names
        reachable = {n: f for n, f in names.items() if _reachable(n, names)}
        return {n: None if f is None else self._left(f, loss) for n, f in reachable.items()}

    def _left(self, file: int, loss: Loss) -> bytes:
        kept, live = self.durable_bytes[file], self.bytes[file]
        more = live[len(kept) :]
        if loss == "half of the bytes":
            return kept + more[: len(more) // 2]
        if loss == "bytes to zeros":
            return kept + bytes(len(more))
        return live if loss == "names" else kept


def every_moment(operations: list[Operation]) -> Iterator[Disk]:
    """The disk before the first operation and after each; the same object, moved on."""
    disk = Disk()
    yield disk
    for operation in operations:
        disk.apply(operation)
        yield disk


def lay(found: dict[str, bytes | None], root: Path) -> None:
    """Make what was found on the disk anew below a root."""
    for name, data in sorted(found.items()):
        path = root / name
        if data is None:
            path.mkdir(exist_ok=True)
        else:
            path.write_bytes(data)


def _parent(name: str) -> str:
    return Path(name).parent.as_posix()


def _reachable(name: str, names: dict[str, int | None]) -> bool:
    """Whether every folder above a name is there."""
    return all(folder in names for folder in map(str, Path(name).parents) if folder != ".")
