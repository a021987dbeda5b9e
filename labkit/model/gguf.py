"""Import of a GGUF file into a model directory that labkit and mlx-lm load.

Knows the container and the way to a model directory; architectures are data (`gguf_architecture`), the
tokenizer is `gguf_tokenizer`'s. Weights are dequantized one by one, so memory is bounded by the largest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, ReaderTensor
from gguf.quants import dequantize

from labkit import __version__
from labkit.core.errors import ModelUnavailable
from labkit.core.events import Progress, Sink, silent
from labkit.model import tensors
from labkit.model.fingerprint import fingerprint
from labkit.model.gguf_architecture import ARCHITECTURES, Architecture
from labkit.model.gguf_tokenizer import TokenizerPlan, plan_tokenizer, write_tokenizer
from labkit.model.origin import write_origin
from labkit.model.staging import publish, require_space, staging

_BLOCK = 1 << 22
_TOKENIZER_BYTES = 32 << 20
_UNREADABLE = (ValueError, IndexError, KeyError, TypeError, ArithmeticError, OSError, MemoryError)


@dataclass(frozen=True, slots=True)
class GGUFFile:
    """An opened file. metadata: every key with its Python value. tensors: name -> memory-mapped tensor."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, ReaderTensor]


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """Everything decided before a byte is written. names: GGUF name -> name in the model directory."""

    file: GGUFFile
    architecture: Architecture
    config: Mapping[str, Any]
    names: Mapping[str, str]
    tokenizer: TokenizerPlan

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """New name -> shape, in the order in which the tensors are written."""
        return {new: _shape(self.file.tensors[old]) for old, new in self.names.items()}

    def nbytes(self, dtype: str) -> int:
        """Bytes of the weights in a dtype."""
        return sum(tensors.nbytes(shape, dtype) for shape in self.shapes().values())


def read_gguf(path: Path) -> GGUFFile:
    """Open a file. Raises ModelUnavailable with one message where it is none, is cut short or is damaged."""
    try:
        with np.errstate(all="raise"):
            reader = GGUFReader(path)
            metadata = {k: f.contents() for k, f in reader.fields.items()}
    except _UNREADABLE as error:
        raise ModelUnavailable(
            f"a complete GGUF file was needed: {path.name}",
            got=f"{type(error).__name__}: {error}" if path.exists() else "no such file",
            next_step="download the file again, or name another",
        ) from error
    return GGUFFile(path, metadata, {t.name: t for t in reader.tensors})


def plan_import(file: GGUFFile) -> ImportPlan:
    """Decide names and config. Raises ModelUnavailable for what cannot be imported, by name."""
    architecture = _architecture(file)
    _check_metadata(file, architecture)
    config = _config(file, architecture)
    names, absent = _names(file, architecture, config["num_hidden_layers"])
    tokenizer = plan_tokenizer(file.metadata)
    config |= {"tie_word_embeddings": False, "vocab_size": _shape(file.tensors["token_embd.weight"])[0]}
    for name in absent:
        config |= architecture.optional[name]
    _check_equal(file, architecture, config)
    return ImportPlan(file, architecture, config | tokenizer.config_ids(), names, tokenizer)


def import_gguf(
    path: Path,
    target: Path,
    *,
    dtype: str,
    provenance: Mapping[str, Any] | None = None,
    sink: Sink = silent,
) -> Path:
    """Write the model directory `target` by a rename at the end; an interrupted import leaves nothing.

    dtype: one that `tensors.check_dtype` passes. provenance: what labkit.json says beside the file's hash.
    Raises ModelUnavailable for a file that cannot be imported and LabkitError where the disk is too full.
    """
    tensors.check_dtype(dtype)
    plan = plan_import(read_gguf(path))
    with staging(target.parent) as folder:
        require_space(folder, plan.nbytes(dtype) + _TOKENIZER_BYTES, f"the import of {path.name}")
        model = folder / "model"
        model.mkdir()
        _write(plan, model, dtype, provenance or {"source": {"kind": "gguf", "file": path.name}}, sink)
        fingerprint(model, sink=sink, settled_ns=0)
        publish(model, target)
    return target


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file as hex digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _write(plan: ImportPlan, folder: Path, dtype: str, provenance: Mapping[str, Any], sink: Sink) -> None:
    about = {
        **provenance,
        "sha256": sha256_of(plan.file.path),
        "dtype": dtype,
        "labkit_version": __version__,
    }
    tensors.write_file(folder / "model.safetensors", plan.shapes(), dtype, _arrays(plan, sink))
    write_tokenizer(plan.tokenizer, folder, plan.config["max_position_embeddings"])
    config = json.dumps({**plan.config, "torch_dtype": dtype}, indent=2, sort_keys=True)
    (folder / "config.json").write_text(config + "\n", encoding="utf-8")
    write_origin(folder, about)


def _arrays(plan: ImportPlan, sink: Sink) -> Iterator[np.ndarray]:
    """float32 arrays in the order of `plan.names`, each dequantized when it is asked for."""
    for index, name in enumerate(plan.names):
        sink(Progress("import", index, len(plan.names), name))
        tensor = plan.file.tensors[name]
        transform = plan.architecture.transforms.get(_local_name(name))
        try:
            array = _dequantize(tensor)
            yield transform(array, plan.config) if transform else array
        except (NotImplementedError, ValueError) as error:
            raise ModelUnavailable(
                f"a tensor that gguf can read and that fits the config was needed: {name}",
                got=f"{tensor.tensor_type.name} {list(_shape(tensor))}",
            ) from error
    sink(Progress("import", len(plan.names), len(plan.names)))


def _dequantize(tensor: ReaderTensor) -> np.ndarray:
    """float32 of the tensor's shape, a block of rows at a time, since gguf makes several copies."""
    array = np.empty(_shape(tensor), np.float32)
    rows = max(1, _BLOCK // (array.size // len(array)))
    for at in range(0, len(array), rows):
        block = array[at : at + rows]
        block[...] = dequantize(tensor.data[at : at + rows], tensor.tensor_type).reshape(block.shape)
    return array


def _architecture(file: GGUFFile) -> Architecture:
    name = str(file.metadata.get("general.architecture", ""))
    if name not in ARCHITECTURES:
        raise ModelUnavailable(
            "a GGUF architecture that labkit imports was needed",
            got=name or "none stated",
            options=sorted(ARCHITECTURES),
            next_step="use a safetensors version of the model: a directory or a hub id",
        )
    return ARCHITECTURES[name]


def _check_metadata(file: GGUFFile, architecture: Architecture) -> None:
    for key, values in architecture.allowed.items():
        full = f"{architecture.name}.{key}"
        if full in file.metadata and file.metadata[full] not in values:
            raise _refused(full, file.metadata[full], values)


def _check_equal(file: GGUFFile, architecture: Architecture, config: Mapping[str, Any]) -> None:
    for key, field in architecture.equals.items():
        full = f"{architecture.name}.{key}"
        if full in file.metadata and file.metadata[full] != config[field]:
            raise _refused(full, file.metadata[full], (config[field],))


def _config(file: GGUFFile, architecture: Architecture) -> dict[str, Any]:
    config: dict[str, Any] = dict(architecture.constants)
    for field, (key, default) in architecture.fields.items():
        value = file.metadata.get(f"{architecture.name}.{key}", default)
        value = config[value] if isinstance(value, str) else value
        if not isinstance(value, int | float) or value <= 0:
            raise _refused(
                f"{architecture.name}.{key}", "absent" if value is ... else value, ("a positive number",)
            )
        config[field] = float(str(np.float32(value))) if isinstance(value, float) else value
    stated = (file.metadata.get(f"{architecture.name}.{key}") for key in architecture.head_dim_keys)
    computed = config["hidden_size"] // config["num_attention_heads"]
    return config | {"head_dim": next((d for d in stated if d), computed)}


def _names(file: GGUFFile, architecture: Architecture, layers: int) -> tuple[dict[str, str], tuple[str, ...]]:
    """GGUF name -> new name of every tensor of the file, and the optional ones that are absent."""
    expected = dict(architecture.tensors)
    for i in range(layers):
        for old, new in architecture.layer_tensors.items():
            expected[f"blk.{i}.{old}"] = f"model.layers.{i}.{new}"
    absent = tuple(n for n in architecture.optional if n not in file.tensors)
    missing = [n for n in expected if n not in file.tensors and n not in absent]
    unknown = [n for n in file.tensors if n not in expected]
    if missing or unknown:
        parts = [f"{label} {', '.join(n[:4])}" for label, n in (("no", missing), ("unknown", unknown)) if n]
        raise ModelUnavailable(
            f"exactly the tensors of a {architecture.name} model were needed: {file.path.name}",
            got="; ".join(parts),
        )
    return {n: expected[n] for n in file.tensors}, absent


def _refused(key: str, value: object, options: tuple[Any, ...]) -> ModelUnavailable:
    return ModelUnavailable(
        f"GGUF metadata that labkit can import was needed: {key}", got=value, options=options
    )


def _local_name(name: str) -> str:
    return name.split(".", 2)[2] if name.startswith("blk.") else name


def _shape(tensor: ReaderTensor) -> tuple[int, ...]:
    return tuple(int(n) for n in reversed(tensor.shape.tolist()))
