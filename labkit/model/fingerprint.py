"""Fingerprint: the identity of an artifact's content, whatever its files are called or split into.

Made of the config, every tensor's name, dtype, shape and bytes, and the tokenizer files. The pass that reads
the bytes also refuses weights that are not finite, so a fingerprint stands for weights that are. Cached in
labkit.json under the files' sizes and times. Imports no mlx.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from labkit.core.canonical import digest
from labkit.core.errors import ModelUnavailable
from labkit.core.events import Progress, Sink, silent
from labkit.model import tensors
from labkit.model.finite import all_finite, is_buffer
from labkit.model.origin import read_config, read_entries, read_origin, write_origin
from labkit.model.wording import one_line

LENGTH = 32
# generation_config.json counts because mlx-lm takes the end-of-text ids from it.
TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "merges.txt", "tokenizer.model", "tiktoken.model", "chat_template.jinja"),
    *("chat_template.json", "generation_config.json"),
)
# A file written this recently could change again without a visible change of its times.
SETTLED_NS = 2_000_000_000

Stamps = dict[str, list[int]]


def fingerprint(
    directory: Path,
    *,
    sink: Sink = silent,
    settled_ns: int = SETTLED_NS,
    clock_ns: Callable[[], int] = time.time_ns,
) -> str:
    """32 hex digits of the content; from the cache where no file has changed since it was computed.

    settled_ns: how long ago the newest file must have changed for the cache; 0 where nobody else can write.
    Raises ModelUnavailable where config or weights are absent or damaged, or a weight is NaN or infinite.
    Works in a read-only directory, where every call computes.
    """
    before = _stamps(directory)
    cached = read_origin(directory).get("fingerprint")
    if isinstance(cached, dict) and cached.get("files") == before and cached.get("finite") is True:
        value = cached.get("value")
        if isinstance(value, str) and len(value) == LENGTH:
            return value
    value = compute(directory, sink=sink)
    newest = max((max(mtime, ctime) for _, mtime, ctime in before.values()), default=0)
    if before == _stamps(directory) and clock_ns() - newest >= settled_ns:
        _remember(directory, value, before)
    return value


def compute(directory: Path, *, sink: Sink = silent) -> str:
    """The fingerprint from the bytes, without the cache. Raises ModelUnavailable as `fingerprint` does."""
    found = tensors.read_directory(directory)
    return digest(
        {
            "config": read_config(directory),
            "tensors": list(_tensor_rows(found, sink)),
            "tokenizer": {
                f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in _tokenizer_files(directory)
            },
        },
        LENGTH,
    )


def _tensor_rows(found: dict[str, tensors.Tensor], sink: Sink) -> Iterator[list[object]]:
    total = sum(t.nbytes for t in found.values())
    done = 0
    for tensor in found.values():
        content = hashlib.sha256()
        for block in tensors.read_data(tensor):
            content.update(block)
            if not all_finite(block, tensor.dtype) and not is_buffer(tensor.name):
                raise _not_finite(tensor)
        done += tensor.nbytes
        sink(Progress("fingerprint", done, total, tensor.name))
        yield [tensor.name, tensor.dtype, list(tensor.shape), content.hexdigest()]


def _not_finite(tensor: tensors.Tensor) -> ModelUnavailable:
    return ModelUnavailable(
        f"finite weights were needed: {one_line(tensor.name)}",
        got=f"NaN or infinity in {tensor.file.name}",
        next_step="fetch the model again, or convert it again from its source",
    )


def _tokenizer_files(directory: Path) -> list[Path]:
    return [f for name in TOKENIZER_FILES if (f := directory / name).is_file()]


def _stamps(directory: Path) -> Stamps:
    """Size, modification time and change time (ns) of every file that the fingerprint is made of."""
    files = [*directory.glob(tensors.WEIGHTS_GLOB), directory / "config.json", *_tokenizer_files(directory)]
    stats = {f.name: f.stat() for f in files if f.is_file()}
    return {name: [s.st_size, s.st_mtime_ns, s.st_ctime_ns] for name, s in stats.items()}


def _remember(directory: Path, value: str, stamps: Stamps) -> None:
    entries = {**read_entries(directory), "fingerprint": {"value": value, "files": stamps, "finite": True}}
    try:
        write_origin(directory, entries)
    except OSError:  # a read-only directory is a valid place for a model
        return
