"""Copies in another dtype: cast as mlx casts, all else kept, and nothing left where it cannot be done."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import labkit
from labkit.core.errors import LabkitError, ModelUnavailable
from labkit.core.events import Note
from labkit.model import staging
from labkit.model.origin import read_origin, write_origin
from labkit.model.registry import get, installed, resolve
from tests.numerics.damaged_directory import pack_soundly
from tests.numerics.tiny_directory import write_directory, write_sharded

DTYPES: dict[str, Any] = {"float32": mx.float32, "bfloat16": mx.bfloat16, "float16": mx.float16}


def stored(directory: Path) -> dict[str, mx.array]:
    found: dict[str, mx.array] = {}
    for file in sorted(directory.glob("model*.safetensors")):
        arrays: Any = mx.load(str(file))
        found |= arrays
    return found


@pytest.mark.parametrize("target", DTYPES)
@pytest.mark.parametrize("source", DTYPES)
def test_every_cast_is_that_of_mlx(tmp_path: Path, source: str, target: str) -> None:
    directory = write_directory(tmp_path / "m")
    arrays = {name: array.astype(DTYPES[source]) for name, array in stored(directory).items()}
    mx.save_safetensors(str(directory / "model.safetensors"), arrays, {"format": "mlx"})
    copy = get(str(directory), home=tmp_path / "home", dtype=target)
    assert (copy == directory) == (source == target)
    for name, array in stored(copy).items():
        assert array.dtype == DTYPES[target]
        assert mx.array_equal(array, arrays[name].astype(DTYPES[target]))


def test_a_copy_says_what_it_is_and_is_made_once(tmp_path: Path) -> None:
    directory, home = write_sharded(tmp_path / "m"), tmp_path / "home"
    before = {f.name: f.read_bytes() for f in directory.iterdir()}
    copy = get(str(directory), home=home, dtype="bfloat16")
    assert copy == home / "m-bfloat16"
    assert {f.name for f in copy.iterdir()} == {*before, "labkit.json"}
    config = json.loads((copy / "config.json").read_text())
    assert (config["torch_dtype"], config["hidden_size"]) == ("bfloat16", 64)
    index = json.loads((copy / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(a.nbytes for a in stored(copy).values())
    origin = read_origin(copy)
    assert (origin["name"], origin["dtype"], origin["source"]["path"]) == (
        "m-bfloat16",
        "bfloat16",
        str(directory),
    )
    stamp = copy.stat().st_mtime_ns
    assert get(str(directory), home=home, dtype="bfloat16") == copy
    assert copy.stat().st_mtime_ns == stamp
    assert [i.name for i in installed(home)] == ["m-bfloat16"]
    assert resolve("m-bfloat16", home=home) == copy
    assert {f.name: f.read_bytes() for f in directory.iterdir()} == before
    model = labkit.load("m-bfloat16", home=home)
    assert model.artifact.dtype == "bfloat16"


def test_a_source_that_changed_is_converted_again(tmp_path: Path) -> None:
    directory, home = write_directory(tmp_path / "m"), tmp_path / "home"
    copy = get(str(directory), home=home, dtype="float16")
    changed = {n: a * 2 for n, a in load_file(directory / "model.safetensors").items()}
    save_file(changed, directory / "model.safetensors", metadata={"format": "mlx"})
    assert get(str(directory), home=home, dtype="float16") == copy
    name = "model.norm.weight"
    assert np.array_equal(load_file(copy / "model.safetensors")[name], changed[name].astype(np.float16))


def test_packed_words_are_kept_and_their_scales_cast(tmp_path: Path) -> None:
    directory = pack_soundly(write_directory(tmp_path / "m"))
    notes: list[Any] = []
    copy = get(str(directory), home=tmp_path / "home", dtype="bfloat16", sink=notes.append)
    path = "model.layers.0.mlp.up_proj"
    before, after = stored(directory), stored(copy)
    assert mx.array_equal(before[f"{path}.weight"], after[f"{path}.weight"])
    assert after[f"{path}.scales"].dtype == mx.bfloat16
    assert "1 packed weights are kept" in next(n.text for n in notes if isinstance(n, Note))
    assert labkit.load(copy).artifact.dtype == "bfloat16"


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"a.qweight": np.ones((4, 4), np.int32)}, ("packed by MLX", "a.qweight", "without --dtype")),
        ({"a.weight_scale": np.ones(4, np.float32)}, ("packed by MLX", "a.weight_scale")),
        ({"a.weight": np.ones((4, 4), np.float64)}, ("float32, float16 or bfloat16", "a.weight")),
        (
            {"a.weight": np.full((4, 4), 65520.0, np.float32)},
            ("float16 can hold", "a.weight", "65504", "bfloat16"),
        ),
        ({"a.weight": np.full((4, 4), np.nan, np.float32)}, ("finite weights", "a.weight")),
    ],
)
def test_what_cannot_be_cast_is_named_and_leaves_nothing(
    tmp_path: Path, arrays: dict[str, np.ndarray], words: tuple[str, ...]
) -> None:
    directory = write_directory(tmp_path / "m")
    save_file({**load_file(directory / "model.safetensors"), **arrays}, directory / "model.safetensors")
    with pytest.raises(ModelUnavailable) as caught:
        get(str(directory), home=tmp_path / "home", dtype="float16")
    assert [word for word in words if word not in str(caught.value)] == []
    assert not list((tmp_path / "home").glob("*"))


def test_a_full_disk_is_told_before_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = write_directory(tmp_path / "m")
    monkeypatch.setattr(staging.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000})())
    with pytest.raises(LabkitError, match=r"free disk space were needed for converting m"):
        get(str(directory), home=tmp_path / "home", dtype="float16")
    assert not list((tmp_path / "home").glob("*"))


def test_a_disk_that_fills_meanwhile_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(*_: object) -> None:
        raise OSError(28, "No space left on device")

    directory = write_directory(tmp_path / "m")
    monkeypatch.setattr(shutil, "copyfile", fill)
    with pytest.raises(LabkitError, match=r"more free disk space(.|\n)*No space left"):
        get(str(directory), home=tmp_path / "home", dtype="float16")
    assert not list((tmp_path / "home").glob("*"))


def test_keeping_quantized_needs_a_gguf(tmp_path: Path) -> None:
    directory = write_directory(tmp_path / "m")
    with pytest.raises(ModelUnavailable, match="a GGUF file was needed to keep it quantized"):
        get(str(directory), home=tmp_path / "home", keep_quantized=True)


def test_whole_numbers_are_kept_and_every_statement_of_the_dtype_follows(tmp_path: Path) -> None:
    directory = write_directory(tmp_path / "m")
    kinds = (np.int32, np.int64, np.uint8, np.bool_)
    whole = {f"buffer.{k.__name__}": np.array([0, 1, 1], k) for k in kinds}
    limit = {"edge.weight": np.array([65519.0, -65504.0], np.float32)}  # the first rounds down to 65504
    file = directory / "model.safetensors"
    save_file({**load_file(file), **whole, **limit}, file, metadata={"format": "mlx"})
    config = json.loads((directory / "config.json").read_text())
    nested = {"text_config": {"dtype": "float32", "hidden_size": 64}}
    (directory / "config.json").write_text(json.dumps({**config, **nested}))
    write_origin(directory, {"name": "kept", "note": "of the source"})
    copy = get(str(directory), home=tmp_path / "home", dtype="float16")
    stored_arrays = load_file(copy / "model.safetensors")
    for name, array in whole.items():
        assert stored_arrays[name].dtype == array.dtype
        assert np.array_equal(stored_arrays[name], array)
    assert stored_arrays["edge.weight"].tolist() == [65504.0, -65504.0]
    stated = json.loads((copy / "config.json").read_text())
    assert (stated["torch_dtype"], stated["text_config"]["dtype"]) == ("float16", "float16")
    assert "note" not in json.loads((copy / "labkit.json").read_text())


@pytest.mark.parametrize("leaf", ["qzeros", "weight_packed", "weight_scale_inv", "absmax"])
def test_every_foreign_packing_is_refused(tmp_path: Path, leaf: str) -> None:
    directory = write_directory(tmp_path / "m")
    file = directory / "model.safetensors"
    save_file({**load_file(file), f"a.{leaf}": np.ones(4, np.float32)}, file)
    with pytest.raises(ModelUnavailable, match=f"a.{leaf}"):
        get(str(directory), home=tmp_path / "home", dtype="float16")
