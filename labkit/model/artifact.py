"""Artifact: a model directory as it lies on disk, with its identity and its measured size.

Everything is read from the safetensors headers, never from a plan or a config's claim. Imports no mlx.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from labkit.core.errors import ModelUnavailable
from labkit.core.events import Sink, silent
from labkit.model.family import family_of
from labkit.model.fingerprint import fingerprint
from labkit.model.origin import name_of, read_config, read_origin
from labkit.model.soundness import check_directory
from labkit.model.tensors import FLOATS, Tensor
from labkit.model.wording import one_line

# Stored for a quantized weight beside its packed words: bytes of the artifact, no parameters of the model.
_SIDE = ("scales", "biases", "qzeros", "g_idx", "global_scale")
_WORD_BITS = 32


@dataclass(frozen=True, slots=True)
class Artifact:
    """dtype: the float dtype that holds the most bytes (of scales and norms where the weights are packed).

    artifact_bytes: over all tensors. parameters: of the unpacked model. effective_bpw: bits per parameter.
    """

    name: str
    family: str
    path: Path
    fingerprint: str
    dtype: str
    artifact_bytes: int
    parameters: int
    effective_bpw: float

    def identity(self) -> dict[str, Any]:
        """What a record says of an artifact: everything but where it lies."""
        return {key: value for key, value in asdict(self).items() if key != "path"}


@dataclass(frozen=True, slots=True)
class Packed:
    """Weights that are stored packed alike. layers: how many matrices. group_size: weights of one scale."""

    bits: int
    group_size: int
    layers: int


def measure(
    directory: Path, *, name: str | None = None, family: str | None = None, sink: Sink = silent
) -> Artifact:
    """Measure a model directory. Raises ModelUnavailable where it is none, or its packing is unclear."""
    tensors = check_directory(directory)
    config = read_config(directory)
    nbytes = sum(t.nbytes for t in tensors.values())
    parameters = count_parameters(tensors, config)
    name = name or name_of(directory)
    return Artifact(
        name=name,
        family=family or read_origin(directory).get("family") or family_of(name),
        path=directory,
        fingerprint=fingerprint(directory, sink=sink),
        dtype=float_dtype(tensors),
        artifact_bytes=nbytes,
        parameters=parameters,
        effective_bpw=nbytes * 8 / parameters,
    )


def count_parameters(tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> int:
    """Parameters of the unpacked model. Raises ModelUnavailable where config and stored shapes disagree."""
    count = sum(_parameters(t, tensors, config) for t in tensors.values())
    if not count:
        raise ModelUnavailable("weights with at least one parameter were needed", got="none")
    return count


def read_packing(directory: Path) -> tuple[Packed, ...]:
    """How the packed weights of a model directory are packed, the most frequent first; empty where none is.

    Raises ModelUnavailable as `measure` does.
    """
    tensors, config = check_directory(directory), read_config(directory)
    kinds = Counter[tuple[int, int]]()
    for name, scales in tensors.items():
        path, _, leaf = name.rpartition(".")
        packed = _packed_weight(path, tensors) if leaf == "scales" else None
        if packed is not None:
            bits = _bits(path, packed, scales, config)
            kinds[bits, packed.size * _WORD_BITS // bits // max(scales.size, 1)] += 1
    return tuple(Packed(bits, group, layers) for (bits, group), layers in kinds.most_common())


def float_dtype(tensors: Mapping[str, Tensor]) -> str:
    """The name of the float dtype with the most bytes, or `unknown` where no tensor is a float."""
    held = Counter[str]()
    for tensor in tensors.values():
        if tensor.dtype in FLOATS:
            held[FLOATS[tensor.dtype]] += tensor.nbytes
    return held.most_common(1)[0][0] if held else "unknown"


def _parameters(tensor: Tensor, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> int:
    path, _, leaf = tensor.name.rpartition(".")
    packed = _packed_weight(path, tensors)
    if packed is None:
        return tensor.size
    if leaf in _SIDE:
        return 0
    if tensor.name != packed.name:
        return tensor.size
    return packed.size * _WORD_BITS // _bits(path, packed, tensors.get(f"{path}.scales"), config)


def _packed_weight(path: str, tensors: Mapping[str, Tensor]) -> Tensor | None:
    """The packed words of a module: MLX's `weight` beside `scales`, or AutoGPTQ's and AutoAWQ's `qweight`."""
    weight = tensors.get(f"{path}.weight") if f"{path}.scales" in tensors else None
    found = weight or tensors.get(f"{path}.qweight")
    return found if found and found.dtype in ("U32", "I32") else None


def _bits(path: str, packed: Tensor, scales: Tensor | None, config: Mapping[str, Any]) -> int:
    """Bits per weight: the config's where the stored shapes agree, else inferred as mlx-lm does at load."""
    stated = read_quantization(config)
    own = stated.get(path)
    bits, group = _pair(own if isinstance(own, Mapping) else stated)
    if not packed.name.endswith(".weight") or scales is None or not group:
        return _known(path, bits, "no bits in the config's quantization")
    words, groups = packed.shape[-1:], scales.shape[-1:]
    exact, rest = divmod(words[0] * _WORD_BITS, groups[0] * group) if words and groups != (0,) else (0, 1)
    if rest or (own is not None and exact != bits):
        stored = f"{words} words and {groups} scales a row"
        return _known(path, None, f"{bits} bits, groups of {group} stated; {stored} stored")
    return _known(path, exact, f"{exact} bits a weight as stored")


def read_quantization(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The config's quantization, empty where it has none. Raises ModelUnavailable where it is no mapping."""
    found = config.get("quantization") or config.get("quantization_config") or {}
    if not isinstance(found, Mapping):
        need = "a mapping was needed under `quantization` in config.json"
        raise ModelUnavailable(need, got=one_line(repr(found), 80))
    return found


def _pair(stated: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Bits and group size, None for what is no positive whole number."""
    bits, group = (v if type(v) is int and v > 0 else None for v in map(stated.get, ("bits", "group_size")))
    return bits, group


def _known(path: str, bits: int | None, got: str) -> int:
    if bits is not None and 0 < bits <= _WORD_BITS:
        return bits
    raise ModelUnavailable(
        f"a quantization that fits the stored tensors was needed: {one_line(path)}",
        got=got,
        next_step="quantize the model again, or correct `quantization` in config.json",
    )
