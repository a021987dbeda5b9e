"""What an import of a GGUF model will write, decided in full before a byte is written.

Knows how the parts fit: the file, its architecture, its tokenizer, which weights stay packed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from labkit.core.errors import ModelUnavailable
from labkit.model.gguf.architectures.catalog import architecture_of
from labkit.model.gguf.file import GGUFFile
from labkit.model.gguf.pack import GROUP, LAYOUTS
from labkit.model.gguf.summary import Summary
from labkit.model.gguf.tensor import Weight
from labkit.model.gguf.tokenizer.build import TokenizerPlan, plan_tokenizer
from labkit.model.gguf.weights import check_types, read_small
from labkit.model.tensor_writer import Slot

_SMALL = 1 << 20


@dataclass(frozen=True, slots=True)
class Written:
    """One tensor of the file and what becomes of it. bits: of a code where it stays packed, else None."""

    source: str
    target: str
    weight: Weight
    bits: int | None

    @property
    def base(self) -> str:
        """The path of the stored names: `weight`, `scales` and `biases` stand below it."""
        return self.target.removesuffix(".weight")

    def slots(self, dtype: str) -> dict[str, Slot]:
        """New name -> place."""
        if self.bits is None:
            return {self.target: Slot(dtype, self.weight.shape)}
        *outer, width = self.weight.shape
        side = Slot("float32", (*outer, width // GROUP))
        words = Slot("uint32", (*outer, width // 32 * self.bits))
        return {self.target: words, f"{self.base}.scales": side, f"{self.base}.biases": side}


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """dtype: of what is not packed. weights: in the order in which they are written.

    cut: tokens of the file's context that mlx-lm would attend to differently, which `config` leaves out.
    """

    file: GGUFFile
    config: Mapping[str, Any]
    weights: tuple[Written, ...]
    tokenizer: TokenizerPlan
    dtype: str
    cut: int = 0

    def slots(self) -> dict[str, Slot]:
        """New name -> place, in the order in which the tensors lie in the new file."""
        return {name: slot for w in self.weights for name, slot in w.slots(self.dtype).items()}

    def nbytes(self) -> int:
        """Bytes of the weights as they will be written."""
        return sum(slot.nbytes for slot in self.slots().values())


def plan_import(file: GGUFFile, dtype: str, *, keep_quantized: bool) -> ImportPlan:
    """Decide names, config and packing. Raises ModelUnavailable for what cannot be imported, by name."""
    summary = _summary(file)
    architecture = architecture_of(summary)
    config = architecture.config(summary)
    decided = architecture.weights(summary, config)
    check_types(file.tensors.values())
    _check_vocabulary(file.metadata.get("tokenizer.ggml.tokens"), config["vocab_size"])
    tokenizer = plan_tokenizer(file.metadata)
    bits = _packed_bits(file, decided) if keep_quantized else {}
    weights = tuple(Written(n, w.target, w, bits.get(n)) for n, w in decided.items() if w.target is not None)
    cut = architecture.cut(file.metadata, config)
    config = {**config, **tokenizer.config_ids(), **_quantization(weights), "torch_dtype": dtype}
    return ImportPlan(file, config, weights, tokenizer, dtype, cut)


def _summary(file: GGUFFile) -> Summary:
    def read(name: str) -> Any:
        tensor = file.tensors[name]
        if tensor.rows * tensor.shape[-1] > _SMALL:
            raise ModelUnavailable(
                f"a small tensor was needed: {name}", got=f"the shape {list(tensor.shape)}"
            )
        check_types([tensor])
        return read_small(tensor)

    return Summary(file.metadata, {name: t.shape for name, t in file.tensors.items()}, read)


def _check_vocabulary(tokens: Any, rows: int) -> None:
    """Before a tokenizer is made of them, since no model has so many tokens as a hostile file can state."""
    if isinstance(tokens, list) and len(tokens) != rows:
        raise ModelUnavailable(
            "an embedding with one row for every token was needed: token_embd.weight",
            got=f"{rows} rows for {len(tokens)} tokens",
        )


def _packed_bits(file: GGUFFile, decided: Mapping[str, Weight]) -> dict[str, int]:
    """GGUF name -> bits of what stays packed. Tensors of one module are packed alike or not at all."""
    modules = defaultdict[str, dict[str, int | None]](dict)
    for name, weight in decided.items():
        if weight.packable and weight.module is not None:
            layout = LAYOUTS.get(file.tensors[name].type)
            modules[weight.module][name] = layout.bits if layout else None
    alike = (members for members in modules.values() if len(set(members.values())) == 1)
    return {name: bits for members in alike for name, bits in members.items() if bits is not None}


def _quantization(weights: tuple[Written, ...]) -> dict[str, Any]:
    """The config's `quantization` as mlx-lm reads it: by module, with the commonest bits as default."""
    packed = [w for w in weights if w.bits is not None]
    if not packed:
        return {}
    default = Counter(w.bits for w in packed).most_common(1)[0][0]
    own = {path: _affine(w.bits) for w in packed for path in (w.weight.module, w.base) if path is not None}
    return {"quantization": {**_affine(default), **own}}


def _affine(bits: int | None) -> dict[str, Any]:
    return {"group_size": GROUP, "bits": bits, "mode": "affine"}
