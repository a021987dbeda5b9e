"""Import of a GGUF model into a model directory that labkit and mlx-lm load.

Knows the way from a plan (`plan`) to files: weights row block by row block, then tokenizer and config.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from labkit import __version__
from labkit.core.events import Note, Progress, Sink, silent
from labkit.model import tensors
from labkit.model.fingerprint import fingerprint
from labkit.model.gguf.file import read_gguf, sha256_of
from labkit.model.gguf.pack import LAYOUTS
from labkit.model.gguf.plan import ImportPlan, Written, plan_import
from labkit.model.gguf.tokenizer.build import write_tokenizer
from labkit.model.gguf.weights import checked, stored_blocks, values
from labkit.model.origin import IMPORTER, write_origin
from labkit.model.staging import full_disk, publish, require_space, staging
from labkit.model.tensor_writer import TensorWriter, write_tensors

BESIDE_WEIGHTS_BYTES = 64 << 20


def import_gguf(
    path: Path,
    target: Path,
    *,
    dtype: str,
    keep_quantized: bool = False,
    provenance: Mapping[str, Any] | None = None,
    beside: Sequence[Path] = (),
    sink: Sink = silent,
) -> Path:
    """Write the model directory `target` by a rename at the end; an interrupted import leaves nothing.

    path: the file, or any part of a split model. dtype: one that `tensors.check_dtype` passes.
    keep_quantized: what MLX can hold without a loss stays packed; its values are those of a float32 import,
    and everything else is written in `dtype`. provenance: what labkit.json says beside the hash of all parts.
    beside: files to copy into the directory (licence, notices).
    Raises ModelUnavailable for a file that cannot be imported and LabkitError where the disk is too full.
    """
    tensors.check_dtype(dtype)
    plan = plan_import(read_gguf(path), dtype, keep_quantized=keep_quantized)
    about = {
        **(provenance or {"source": {"kind": "gguf", "file": path.name}}),
        "dtype": dtype,
        "keep_quantized": keep_quantized,
        "labkit_version": __version__,
        "importer": IMPORTER,
    }
    if plan.cut:
        sink(Note(_shorter(plan, path.name)))
    with staging(target.parent) as folder, full_disk(folder, f"the import of {path.name}"):
        require_space(folder, plan.nbytes() + BESIDE_WEIGHTS_BYTES, f"the import of {path.name}")
        model = folder / "model"
        model.mkdir()
        _write(plan, model, about, sink)
        for file in beside:
            shutil.copyfile(file, model / file.name)
        fingerprint(model, sink=sink, settled_ns=0)
        publish(model, target)
    return target


def _shorter(plan: ImportPlan, name: str) -> str:
    kept = plan.config["max_position_embeddings"]
    return (
        f"{name}: a context of {kept} tokens, not the {kept + plan.cut} that the file states: beyond its "
        f"attention window of {kept} tokens mlx-lm, which leaves the window out, would compute other numbers"
    )


def _write(plan: ImportPlan, folder: Path, about: Mapping[str, Any], sink: Sink) -> None:
    with write_tensors(folder / "model.safetensors", plan.slots()) as writer:
        for index, weight in enumerate(plan.weights):
            sink(Progress("import", index, len(plan.weights), weight.source))
            _write_weight(plan, weight, writer)
    sink(Progress("import", len(plan.weights), len(plan.weights)))
    write_tokenizer(plan.tokenizer, folder, plan.config["max_position_embeddings"])
    config = json.dumps(plan.config, indent=2, sort_keys=True)
    (folder / "config.json").write_text(config + "\n", encoding="utf-8")
    write_origin(folder, {**about, "sha256": sha256_of(*plan.file.parts)})


def _write_weight(plan: ImportPlan, weight: Written, writer: TensorWriter) -> None:
    tensor, transform = plan.file.tensors[weight.source], weight.weight.transform
    moves_rows = transform is not None and transform.rows and len(tensor.shape) == 2
    blocks = stored_blocks(tensor, transform.apply if transform and moves_rows else None)
    if weight.bits is not None:
        _write_packed(plan, weight, blocks, writer)
    elif transform is None or moves_rows:
        for array in _arrays(plan, weight, blocks):
            writer.append(weight.target, array)
    else:
        whole = np.concatenate(list(_arrays(plan, weight, blocks)))
        writer.append(weight.target, transform.apply(whole.reshape(tensor.shape)))


def _arrays(plan: ImportPlan, weight: Written, blocks: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    kind = plan.file.tensors[weight.source].type
    for block in blocks:
        yield checked(values(block, kind), weight.source, plan.dtype)


def _write_packed(
    plan: ImportPlan, weight: Written, blocks: Iterator[np.ndarray], writer: TensorWriter
) -> None:
    kind = plan.file.tensors[weight.source].type
    layout = LAYOUTS[kind]
    for block in blocks:
        with np.errstate(all="ignore"):
            groups = layout.groups(block, kind)
            checked(groups.values(), weight.source)
        writer.append(weight.target, groups.words(layout.bits))
        writer.append(f"{weight.base}.scales", groups.scales)
        writer.append(f"{weight.base}.biases", groups.biases)
