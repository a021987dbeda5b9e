"""Unusual model directories that mlx-lm loads: labkit loads them too, and computes the same."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm import load as upstream_load
from safetensors.numpy import load_file, save_file

import labkit
from labkit.model.artifact import measure, read_packing
from labkit.model.soundness import check_directory
from tests.numerics.damaged_directory import pack_soundly
from tests.numerics.tiny_directory import LAYERS, write_directory, write_sharded

PROMPT = [[5, 60, 100, 7]]


def extra(directory: Path, **arrays: np.ndarray) -> None:
    file = directory / "model.safetensors"
    save_file({**load_file(file), **arrays}, file)


def config(directory: Path, **changes: object) -> None:
    file = directory / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def old_buffers(directory: Path) -> None:
    """What checkpoints of old hold for each layer, and a head that is tied all the same."""
    names = [f"model.layers.{i}.self_attn.rotary_emb.inv_freq" for i in range(LAYERS)]
    extra(directory, **dict.fromkeys(names, np.full(16, np.inf, np.float32)))
    extra(directory, **{"lm_head.weight": np.ones((257, 64), np.float32)})


def unindexed(directory: Path) -> None:
    (directory / "model.safetensors.index.json").unlink()


def short_index(directory: Path) -> None:
    """An index that leaves a tensor out, which is in one of its files all the same."""
    file = directory / "model.safetensors.index.json"
    index = json.loads(file.read_text())
    index["weight_map"].pop("model.norm.weight")
    file.write_text(json.dumps(index))


def infinite_config(directory: Path) -> None:
    file = directory / "config.json"
    file.write_text(file.read_text().replace("{", '{"time_step_limit": [0.0, Infinity], ', 1))


UNUSUAL: dict[str, tuple[Callable[[Path], Path], Callable[[Path], object]]] = {
    "in two files": (write_sharded, lambda _: None),
    "in two files without an index": (write_sharded, unindexed),
    "an index that leaves one out": (write_sharded, short_index),
    "tensors that are dropped": (write_directory, old_buffers),
    "one packed matrix": (write_directory, pack_soundly),
    "other bits stated": (
        write_directory,
        lambda d: (pack_soundly(d), config(d, quantization={"group_size": 64, "bits": 8})),
    ),
    "a group of 0 stated": (
        write_directory,
        lambda d: (pack_soundly(d), config(d, quantization={"group_size": 0, "bits": 4})),
    ),
    "no tokenizer_config": (write_directory, lambda d: (d / "tokenizer_config.json").unlink()),
    "whole numbers for fractions": (write_directory, lambda d: config(d, rope_theta=10000)),
    "null for what has a default": (
        write_directory,
        lambda d: config(d, rope_theta=10000.0, rope_scaling=None),
    ),
    "settings of another part": (
        write_directory,
        lambda d: config(d, vision_config={"num_hidden_layers": 99}),
    ),
    "infinity in the config": (write_directory, infinite_config),
    "half a generation_config": (write_directory, lambda d: (d / "generation_config.json").write_text("{")),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_what_mlx_lm_loads_is_loaded(tmp_path: Path, name: str) -> None:
    write, change = UNUSUAL[name]
    directory = write(tmp_path / "m")
    change(directory)
    expected = upstream_load(str(directory))[0](mx.array(PROMPT))
    model = labkit.load(directory, home=tmp_path / "home")
    assert mx.array_equal(model.graph(mx.array(PROMPT)), expected)
    assert np.isfinite(np.array(expected)).all()
    assert not (tmp_path / "home").exists()


def test_a_directory_that_cannot_be_written_loads(tmp_path: Path) -> None:
    directory = write_directory(tmp_path / "m")
    directory.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert labkit.load(directory).artifact.fingerprint == measure(directory).fingerprint
    finally:
        directory.chmod(stat.S_IRWXU)


def test_the_packing_is_read_from_the_tensors(tmp_path: Path) -> None:
    directory = pack_soundly(write_directory(tmp_path / "m"))
    assert [(p.bits, p.group_size, p.layers) for p in read_packing(directory)] == [(4, 32, 1)]
    assert read_packing(write_directory(tmp_path / "plain")) == ()
    assert "model.layers.0.mlp.up_proj.scales" in check_directory(directory)


def test_python_of_the_models_own_is_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers would ask on the terminal whether to run it."""
    directory = write_directory(tmp_path / "tiny")
    witness = tmp_path / "ran"
    (directory / "own.py").write_text(f"open({str(witness)!r}, 'w').close()\nclass Own: ...\n")
    file = directory / "tokenizer_config.json"
    about = json.loads(file.read_text())
    about |= {"auto_map": {"AutoTokenizer": ["own.Own", "own.Own"]}, "tokenizer_class": "Own"}
    file.write_text(json.dumps(about))
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    try:
        labkit.load(directory)
    except labkit.LabkitError as error:
        assert "a tokenizer that mlx-lm can load" in str(error)  # noqa: PT017
    assert not witness.exists()


def test_a_list_longer_than_the_model_is_refused(tmp_path: Path) -> None:
    directory = write_directory(tmp_path / "tiny")
    config(directory, layer_types=["full_attention"] * 20_000)
    with pytest.raises(labkit.LabkitError, match=r"layer_types.*\n.*a list of 20000"):
        labkit.load(directory)
