"""Resume: one file over HTTP that goes on where an earlier call, or an earlier process, stopped.

huggingface_hub 2 resumes within a process only: it gives each process a file of its own and removes it in the
end. Knows a URL, a size and a hash; not what the file is.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedRandom
from pathlib import Path
from typing import Any

from labkit.core.errors import ModelUnavailable


@dataclass(frozen=True, slots=True)
class Download:
    """A file of known content. target: where it lies once it is whole. size: bytes."""

    url: str
    target: Path
    size: int
    sha256: str


def resume(download: Download, bar: Any) -> None:
    """Fetch what is not there yet; who comes second waits for the first and finds the file done.

    bar: a class in place of tqdm. What was fetched stays on an error or a kill. Raises ModelUnavailable where
    the content is not what its hash says, and what the hub client raises.
    """
    with _held(download) as stream:
        if stream is None:
            return
        _fetch_rest(download, stream, bar)
        _check(download, stream)
        os.fsync(stream.fileno())
        partial(download.target).replace(download.target)


def partial(target: Path) -> Path:
    """The unfinished file beside its target."""
    return target.with_name(f"{target.name}.labkit.incomplete")


def fetched_bytes(target: Path) -> int:
    """Bytes of a file that an earlier call has fetched."""
    unfinished = partial(target)
    return unfinished.stat().st_size if unfinished.is_file() else 0


def _fetch_rest(download: Download, stream: BufferedRandom, bar: Any) -> None:
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers

    done = stream.seek(0, os.SEEK_END)
    if done > download.size:
        done = stream.truncate(stream.seek(0))
    headers = {**build_hf_headers(library_name="labkit"), "Accept-Encoding": "identity"}
    try:
        http_get(
            download.url,
            stream,
            resume_size=done,
            headers=headers,
            expected_size=download.size,
            tqdm_class=bar,
        )
    finally:
        stream.flush()


def _check(download: Download, stream: BufferedRandom) -> None:
    stream.seek(0)
    digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != download.sha256:
        partial(download.target).unlink()
        raise ModelUnavailable(
            f"a file with the sha256 {download.sha256} was needed from the hub",
            got=digest,
            next_step="repeat the command: the file is fetched anew",
        )


@contextmanager
def _held(download: Download) -> Iterator[BufferedRandom | None]:
    """The unfinished file, held against other processes; None once another has finished it."""
    unfinished = partial(download.target)
    while not download.target.is_file():
        with unfinished.open("ab+") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            # Another may have finished or removed the file while this one waited for it.
            if unfinished.is_file() and os.path.samestat(unfinished.stat(), os.fstat(stream.fileno())):
                yield stream
                return
    yield None
