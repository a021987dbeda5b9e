"""Convert: a model directory copied with its float tensors in another dtype, a tensor at a time.

Knows files and dtypes; not what a tensor means. Packed words stay as they are, and so do whole numbers.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np

from labkit import __version__
from labkit.core.errors import ModelUnavailable
from labkit.core.events import Note, Progress, Sink, silent
from labkit.model.fingerprint import fingerprint
from labkit.model.finite import all_finite
from labkit.model.hub.repository import HUB_PATTERNS
from labkit.model.origin import FILE, name_of, write_origin
from labkit.model.shards import INDEX
from labkit.model.soundness import check_directory
from labkit.model.staging import full_disk, publish, require_space, staging
from labkit.model.tensor_writer import Slot, TensorWriter, write_tensors
from labkit.model.tensors import FLOATS, WEIGHTS_GLOB, WHOLE, WRITTEN, Tensor, read_data
from labkit.model.wording import first_names, one_line

_KEPT: Mapping[str, str] = {code: name for name, code in WHOLE.items()}
# Packed by other programs: their scales belong to a layout that only their own reader knows.
_FOREIGN = ("qweight", "qzeros", "weight_packed", "weight_scale", "weight_scale_inv", "absmax")
# Terms of use go with the weights.
_TEXTS = ("LICENSE*", "LICENCE*", "NOTICE*", "*TERMS*", "README*")
_OWN_DTYPE = ("torch_dtype", "dtype")


def has_dtype(directory: Path, dtype: str) -> bool:
    """Whether every float tensor of a model directory is of a dtype already."""
    floats = {FLOATS[t.dtype] for t in check_directory(directory).values() if t.dtype in FLOATS}
    return floats <= {dtype}


def convert(
    directory: Path, target: Path, *, dtype: str, provenance: Mapping[str, Any], sink: Sink = silent
) -> Path:
    """Write `target` by a rename at the end, with the same files, shards and names; return it.

    dtype: float32, bfloat16 or float16. provenance: what labkit.json says. Raises ModelUnavailable for
    tensors that cannot be cast, LabkitError where the disk is too full. An interrupt leaves nothing.
    """
    found = list(check_directory(directory).values())
    _check_castable(found)
    packed = [t.name for t in found if t.dtype == "U32"]
    if packed:
        sink(Note(f"{len(packed)} packed weights are kept; their scales become {dtype}"))
    others, what = list(other_files(directory)), f"converting {name_of(directory)}"
    if target.resolve() == directory.resolve():
        raise ModelUnavailable("another folder than the model's own was needed for its copy", got=target)
    with staging(target.parent) as folder, full_disk(folder, what):
        needed = sum(_slot(t, dtype).nbytes for t in found) + sum(f.stat().st_size for f in others)
        require_space(folder, needed, what)
        model = folder / "model"
        model.mkdir()
        _write_weights(found, model, dtype, sink)
        for file in others:
            shutil.copyfile(file, model / file.name)
        _restate_dtype(model / "config.json", dtype)
        _restate_size(model / INDEX, sum(_slot(t, dtype).nbytes for t in found))
        write_origin(model, {**provenance, "dtype": dtype, "labkit_version": __version__})
        fingerprint(model, sink=sink, settled_ns=0)
        publish(model, target)
    return target


def _check_castable(found: Sequence[Tensor]) -> None:
    foreign = [t.name for t in found if t.name.rpartition(".")[2] in _FOREIGN]
    foreign += [t.name for t in found if t.dtype not in (*WRITTEN.values(), *WHOLE.values())]
    if foreign:
        raise ModelUnavailable(
            "weights of float32, float16 or bfloat16, or packed by MLX, were needed for --dtype",
            got=first_names(sorted(set(foreign))),
            next_step="use the model as it is, without --dtype",
        )


def _write_weights(found: Sequence[Tensor], model: Path, dtype: str, sink: Sink) -> None:
    """Every file under its own name, so that an index of shards stays true."""
    done, total = 0, sum(t.nbytes for t in found)
    for name in sorted({t.file.name for t in found}):
        tensors = [t for t in found if t.file.name == name]
        with write_tensors(model / name, {t.name: _slot(t, dtype) for t in tensors}) as writer:
            for tensor in tensors:
                sink(Progress("convert", done, total, tensor.name))
                _write_tensor(tensor, dtype, writer)
                done += tensor.nbytes
    sink(Progress("convert", total, total))


def _write_tensor(tensor: Tensor, dtype: str, writer: TensorWriter) -> None:
    for block in read_data(tensor):
        if tensor.dtype in _KEPT:
            writer.append(tensor.name, np.frombuffer(block, np.dtype(_KEPT[tensor.dtype]).newbyteorder("<")))
            continue
        values = _floats(block, tensor.dtype)
        _check_range(tensor, values, dtype, finite=all_finite(block, tensor.dtype))
        writer.append(tensor.name, values)


def _check_range(tensor: Tensor, values: np.ndarray, dtype: str, *, finite: bool) -> None:
    """Raise ModelUnavailable where float16 cannot hold a finite value; bfloat16 has the range of float32."""
    largest = float(np.abs(values).max(initial=0.0)) if dtype == "float16" and finite else 0.0
    if largest >= 65520.0:  # rounds to infinity
        raise ModelUnavailable(
            f"values that float16 can hold were needed: {one_line(tensor.name)}",
            got=f"{largest:g}; the largest of float16 is 65504",
            next_step="--dtype bfloat16 or --dtype float32",
        )


def _floats(block: bytes, code: str) -> np.ndarray:
    """float32 of stored floats, exactly."""
    if code == "BF16":
        return (np.frombuffer(block, "<u2").astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(block, {"F32": "<f4", "F16": "<f2"}[code]).astype(np.float32)


def _slot(tensor: Tensor, dtype: str) -> Slot:
    return Slot(_KEPT.get(tensor.dtype, dtype), tensor.shape)


def other_files(directory: Path) -> Iterator[Path]:
    """What mlx-lm may read beside the weights, and texts; never labkit.json, which is written anew."""
    patterns = [*(p for p in HUB_PATTERNS if p != WEIGHTS_GLOB), *_TEXTS]
    for file in sorted(directory.iterdir()):
        if file.is_file() and file.name != FILE and any(fnmatch(file.name, p) for p in patterns):
            yield file


def _restate_dtype(file: Path, dtype: str) -> None:
    """The dtype that the config states, at the top and for the text model; the rest is kept as it is."""
    config = json.loads(file.read_text(encoding="utf-8"))
    nested = config.get("text_config")
    for part in (config, nested if isinstance(nested, dict) else {}):
        for key in _OWN_DTYPE:
            if key in part:
                part[key] = dtype
    if not any(key in config for key in _OWN_DTYPE):
        config["torch_dtype"] = dtype
    file.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _restate_size(index: Path, nbytes: int) -> None:
    """The bytes of all tensors, which an index may state."""
    if index.is_file():
        data = json.loads(index.read_text(encoding="utf-8"))
        if isinstance(data.get("metadata"), dict) and "total_size" in data["metadata"]:
            data["metadata"]["total_size"] = nbytes
            index.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
