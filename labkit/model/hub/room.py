"""Room: how many bytes the copy or the import of a hub model will take, told from what the hub states of it.

Known before a byte is fetched, so it is a figure that refuses nothing that fits: the exact needs are told
again from the files themselves. Where the hub states too little, the least that is possible is meant.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from labkit.model.header import BITS
from labkit.model.hub.repository import Repository
from labkit.model.tensors import FLOATS, WEIGHTS_GLOB, nbytes

# What an import writes beside the weights.
BESIDE_BYTES = 64 << 20
_WIDE = re.compile(r"(?:^|[-_.])(?:(F32|FP32)|(F16|FP16|BF16))(?:[-_.]|$)", re.IGNORECASE)
# No type of GGUF stores a weight in fewer bits.
_LEAST_BITS = 1.5


def copy_bytes(repository: Repository, dtype: str | None) -> int:
    """Bytes of a copy of a safetensors model in a dtype; 0 where none is made, or it cannot be told."""
    if dtype is None:
        return 0
    stored = repository.stored
    if not stored:
        weights = sum(f.size for f in repository.chosen((WEIGHTS_GLOB,)))
        return 0 if dtype == "float32" else weights * nbytes((1,), dtype) // nbytes((1,), "float32")
    if {FLOATS[code] for code in stored if code in FLOATS} <= {dtype}:
        return 0
    return sum(
        nbytes((count,), dtype) if code in FLOATS else count * BITS.get(code, 8) // 8
        for code, count in stored.items()
    )


def import_bytes(repository: Repository, names: Sequence[str], dtype: str, *, packed: bool) -> int:
    """Bytes of an import of a GGUF model. packed: of one that stays quantized."""
    size = sum(f.size for f in repository.files if f.name in names)
    if packed:
        return 2 * size
    wide = _WIDE.search(Path(names[0]).stem) if names else None
    bits = 8 if wide is None else 32 if wide[1] else 16
    parameters = size * 8 // bits
    if repository.parameters and wide is None:
        parameters = min(repository.parameters, int(size * 8 / _LEAST_BITS))
    return nbytes((parameters,), dtype) + BESIDE_BYTES
