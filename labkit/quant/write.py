"""Write: a model directory of a quantized graph, whole or not at all, and verified before it is published.

Knows files, not how weights were packed. Every run gives the same bytes; only the fingerprint that
labkit.json remembers carries the times of the files it was read from.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from labkit import __version__
from labkit.core.events import Progress, Sink, silent
from labkit.model.artifact import Artifact, float_dtype, measure, read_packing, read_quantization
from labkit.model.convert import other_files
from labkit.model.fingerprint import fingerprint
from labkit.model.graph import load_graph
from labkit.model.origin import name_of, read_config, read_entries, write_origin
from labkit.model.shards import INDEX
from labkit.model.soundness import check_directory
from labkit.model.staging import full_disk, publish, require_space, staging
from labkit.model.tensor_writer import Slot, write_tensors
from labkit.quant.choice import Choice, choose
from labkit.quant.evidence import Evidence
from labkit.quant.packing import Packing, QuantizationRefused
from labkit.quant.quantizer import QuantizerSpec, Source
from labkit.quant.recipe import QuantRecipe
from labkit.quant.verify import verify

Pack = Callable[[Any, Mapping[str, Packing]], None]
SHARD_BYTES = 5 << 30  # mlx-lm's


def write_artifact(
    model: Source,
    recipe: QuantRecipe,
    spec: QuantizerSpec,
    evidence: Evidence,
    pack: Pack,
    *,
    into: Path,
    sink: Sink = silent,
) -> Artifact:
    """Pack a fresh graph of a model by a recipe, write it to `into` and measure it there.

    pack: changes a graph with lazy weights in place so that just the modules named are packed so.
    Raises QuantizationRefused where the recipe does not fit, the source is packed already, `into` is taken,
    or what was written is not what was planned; LabkitError where the disk is too full. The model in the
    caller's hand is not changed, and an interrupt leaves nothing.
    """
    spec.check(recipe)
    source, into = _check_source(model), _check_target(into)
    evidence.check(spec.name, model.artifact.fingerprint)
    graph, _ = load_graph(source, lazy=True)
    choice = choose(graph, recipe)
    pack(graph, choice.packed)
    arrays = _take_weights(graph)
    others, what = _others(source), f"quantizing {name_of(source)}"
    with staging(into.parent) as folder, full_disk(folder, what):
        needed = sum(a.nbytes for a in arrays.values()) + sum(f.stat().st_size for f in others)
        require_space(folder, needed, what)
        made = folder / "model"
        made.mkdir()
        _write_weights(made, arrays, sink)
        for file in others:
            shutil.copyfile(file, made / file.name)
        _write_config(source, made, recipe, choice)
        write_origin(made, _provenance(model, recipe, evidence, choice, made))
        verify(made, choice)
        publish(made, into)
    return measure(into, sink=sink)


def read_making(directory: Path) -> dict[str, Any]:
    """How an artifact was quantized, from its labkit.json: recipe, source, calibration, seed, kept layers.

    Empty for one that labkit did not quantize.
    """
    found = read_entries(directory).get("quantized")
    return found if isinstance(found, dict) else {}


def _check_source(model: Source) -> Path:
    if model.path is None:
        raise QuantizationRefused("a model with weights was needed", got=model.name)
    if read_quantization(read_config(model.path)) or read_packing(model.path):
        raise QuantizationRefused(
            "a model whose weights are not quantized was needed",
            got=f"{model.name}, {model.artifact.effective_bpw:.2f} bits a weight",
            next_step="take the model it was made of",
        )
    if fingerprint(model.path) != model.artifact.fingerprint:
        got = f"{model.path}, which changed since {model.name} was loaded"
        raise QuantizationRefused(
            "the weights of the model in hand were needed", got=got, next_step="load it again"
        )
    return model.path


def _check_target(into: Path) -> Path:
    into = Path(into).expanduser().absolute()
    if into.exists() or into.is_symlink():
        raise QuantizationRefused(
            "a folder that is not there yet was needed", got=into, next_step="name another, or remove it"
        )
    return into


def _take_weights(graph: Any) -> dict[str, Any]:
    """The lazy arrays of a graph by name, sorted; the graph lets go of them, so that each can be freed."""
    import mlx.core as mx
    from mlx.utils import tree_flatten, tree_map

    named: Any = tree_flatten(graph.parameters())
    graph.update(tree_map(lambda _: mx.array([]), graph.parameters()))
    return dict(sorted(named))


def _others(source: Path) -> list[Path]:
    """The files that go along as they are; config.json and the index are written anew."""
    return [f for f in other_files(source) if f.name not in (INDEX, "config.json")]


def _write_weights(made: Path, arrays: dict[str, Any], sink: Sink) -> None:
    """Shards as large as mlx-lm's, and their index where there are several. Empties `arrays` on the way."""
    slots = {name: Slot(str(a.dtype).rpartition(".")[2], tuple(a.shape)) for name, a in arrays.items()}
    total, done = sum(slot.nbytes for slot in slots.values()), 0
    shards = list(_shards(slots))
    many = [f"model-{i:05}-of-{len(shards):05}.safetensors" for i in range(1, len(shards) + 1)]
    files = many if len(shards) > 1 else ["model.safetensors"]
    for file, shard in zip(files, shards, strict=True):
        with write_tensors(made / file, shard) as writer:
            for name, slot in shard.items():
                sink(Progress("quantize", done, total, name))
                writer.append(name, _as_numpy(arrays.pop(name)))
                done += slot.nbytes
    sink(Progress("quantize", total, total))
    if len(shards) > 1:
        places = {name: file for file, shard in zip(files, shards, strict=True) for name in shard}
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
        (made / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def _shards(slots: Mapping[str, Slot]) -> Iterator[dict[str, Slot]]:
    shard, held = dict[str, Slot](), 0
    for name, slot in slots.items():
        if shard and held + slot.nbytes > SHARD_BYTES:
            yield shard
            shard, held = {}, 0
        shard[name] = slot
        held += slot.nbytes
    yield shard


def _as_numpy(array: Any) -> np.ndarray:
    """The elements; bfloat16, which numpy has not, as float32 of the same values."""
    import mlx.core as mx

    return np.array(array.astype(mx.float32) if array.dtype == mx.bfloat16 else array)


def _write_config(source: Path, made: Path, recipe: QuantRecipe, choice: Choice) -> None:
    """The source's config with mlx-lm's `quantization`: the recipe's packing, and each layer that differs."""
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    own = {p: k.settings() for p, k in choice.packed.items() if k != recipe.packing}
    stated = {**recipe.packing.settings(), **own}
    config |= {"quantization": stated, "quantization_config": stated}
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    (made / "config.json").write_text(text, encoding="utf-8")


def _provenance(
    model: Source, recipe: QuantRecipe, evidence: Evidence, choice: Choice, made: Path
) -> dict[str, Any]:
    return {
        "family": model.artifact.family,
        "dtype": float_dtype(check_directory(made)),
        "labkit_version": __version__,
        "source": {"kind": "quantized", "name": model.name, "fingerprint": model.artifact.fingerprint},
        "quantized": {
            "recipe": recipe.identity(),
            "recipe_hash": recipe.hash(),
            "source_fingerprint": model.artifact.fingerprint,
            "calibration": evidence.hash(),
            "calibration_text_sha256": evidence.text_sha256,
            "seed": recipe.seed,
            "kept": dict(choice.kept),
        },
    }
