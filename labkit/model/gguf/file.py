"""A GGUF model as one file or as the parts of a split one, `x-00001-of-00003.gguf` beside the others.

Knows which files belong together and joins their headers; what they mean is no matter here.
Source of the split keys and names: llama.cpp's gguf-split.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.core.errors import ModelUnavailable
from labkit.model.gguf.header import GGUFHeader, GGUFTensor, read_header
from labkit.model.wording import one_line

_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_MAX_PARTS = 1000
_NUMBER, _COUNT, _TENSORS = "split.no", "split.count", "split.tensors.count"
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class GGUFFile:
    """An opened model. parts: every file of it, in order. metadata: of the first part.

    tensors: of all parts, by name, in the order in which they lie.
    """

    parts: tuple[Path, ...]
    metadata: Mapping[str, Any]
    tensors: Mapping[str, GGUFTensor]

    @property
    def path(self) -> Path:
        """The first file."""
        return self.parts[0]


def model_stem(path: Path) -> str:
    """The name of the model that a file is (a part of): the file's name less suffix and part number."""
    found = _PART.fullmatch(path.name)
    return found["stem"] if found else path.name.removesuffix(".gguf")


def parts_of(path: Path) -> tuple[Path, ...]:
    """Every file of the model that `path` is (a part of), in order.

    Raises ModelUnavailable where a part is not there, by name, or where the name's numbers make no sense.
    """
    found = _PART.fullmatch(path.name)
    if not found:
        return (path,)
    number, count = int(found["number"]), int(found["count"])
    if not 1 <= number <= count <= _MAX_PARTS:
        raise _refused(path, f"part {number} of {count}")
    parts = [path.with_name(f"{found['stem']}-{i:05}-of-{count:05}.gguf") for i in range(1, count + 1)]
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise _refused(path, f"no {', '.join(missing[:3])} in {path.parent}")
    return tuple(parts)


def read_gguf(path: Path) -> GGUFFile:
    """Open a model by its file or any of its parts; no weight is read.

    Raises ModelUnavailable with one message where a file is cut short, damaged or does not belong.
    """
    headers = [read_header(part) for part in parts_of(path)]
    _check_parts(headers)
    tensors = {name: tensor for header in headers for name, tensor in header.tensors.items()}
    _check_tensors(headers, len(tensors))
    return GGUFFile(tuple(h.path for h in headers), headers[0].metadata, tensors)


def sha256_of(*paths: Path) -> str:
    """The SHA-256 of files, one behind the other, as hex digits."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as stream:
            while block := stream.read(_BLOCK):
                digest.update(block)
    return digest.hexdigest()


def _check_parts(headers: Sequence[GGUFHeader]) -> None:
    """Every part is the one that its name says, and agrees with the first in what both state."""
    first = headers[0].metadata
    for index, header in enumerate(headers):
        own = header.metadata
        number, count = own.get(_NUMBER, 0), own.get(_COUNT) or 1
        if (number, count) != (index, len(headers)):
            raise _refused(header.path, f"{_NUMBER} {one_line(number, 32)}, {_COUNT} {one_line(count, 32)}")
        foreign = [k for k in own if k in first and own[k] != first[k] and k != _NUMBER]
        if foreign:
            raise _refused(header.path, f"another {foreign[0]} than {headers[0].path.name}")


def _check_tensors(headers: Sequence[GGUFHeader], distinct: int) -> None:
    held = sum(len(header.tensors) for header in headers)
    if distinct < held:
        raise _refused(headers[0].path, f"{held - distinct} tensors in more than one part")
    stated = headers[0].metadata.get(_TENSORS, held)
    if stated != held:
        raise _refused(headers[0].path, f"{_TENSORS} {one_line(stated, 32)}, the parts hold {held}")


def _refused(path: Path, got: str) -> ModelUnavailable:
    return ModelUnavailable(
        f"every part of a split GGUF model was needed, under the name it was made with: {path.name}",
        got=got,
        next_step="download the parts again, all into one folder",
    )
