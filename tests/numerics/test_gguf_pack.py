"""Imports that stay quantized: the bits of a plain float32 import, loaded and computed with by mlx-lm."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import mlx.core as mx
import mlx_lm
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind
from mlx import nn
from mlx.utils import tree_flatten
from mlx_lm.models.switch_layers import QuantizedSwitchLinear

from labkit.model.artifact import measure
from labkit.model.gguf import importer
from labkit.model.gguf.importer import import_gguf
from labkit.model.gguf.pack import LAYOUTS
from tests.numerics.tiny_gguf import HIDDEN, INNER, LAYERS, vocabulary, write_gguf
from tests.numerics.typed_gguf import HOSTILE, WIDTH, random_rows, write_typed

IDS = [[1, 7, 200, 33, 90, 5, 120, 64, 2, 11]]
EXPERTS = 4


def import_both(file: Path, folder: Path, dtype: str = "float32") -> tuple[Path, Path]:
    plain = import_gguf(file, folder / "plain", dtype=dtype)
    return plain, import_gguf(file, folder / "packed", dtype=dtype, keep_quantized=True)


def load(folder: Path) -> Any:
    return mlx_lm.load(str(folder))[0]


def tensors_of(folder: Path) -> dict[str, mx.array]:
    return dict(mx.load(str(folder / "model.safetensors")))  # pyright: ignore


def config_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text())


def unpacked(folder: Path) -> dict[str, np.ndarray]:
    """What a directory holds, every packed tensor by mx.dequantize as its config says."""
    held, quantization = tensors_of(folder), config_of(folder).get("quantization", {})
    arrays = {}
    for name, array in held.items():
        base, _, leaf = name.rpartition(".")
        if f"{base}.scales" not in held:
            arrays[name] = np.array(array)
        elif leaf == "weight":
            scales, biases = held[f"{base}.scales"], held[f"{base}.biases"]
            arrays[name] = np.array(mx.dequantize(array, scales, biases, **quantization[base]))
    return arrays


def assert_same_bits(got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    assert got.keys() == want.keys()
    for name, array in want.items():
        np.testing.assert_array_equal(got[name].view(np.uint32), array.view(np.uint32), err_msg=name)


def assert_close_logits(packed: Path, plain: Path) -> None:
    got, want = (np.array(load(folder)(mx.array(IDS))) for folder in (packed, plain))
    # The same weights; a backend may sum scale * (x . codes) + bias * sum(x), which loses up to 8 of 24 bits.
    np.testing.assert_allclose(got, want, atol=1e-4 * np.abs(want).max())


@pytest.mark.parametrize("kind", LAYOUTS, ids=lambda kind: kind.name)
def test_packed_weights_are_the_bits_of_the_plain_import(tmp_path: Path, kind: Kind) -> None:
    write_typed(tmp_path / "t.gguf", lambda _: kind, scales=HOSTILE)
    plain, packed = import_both(tmp_path / "t.gguf", tmp_path)
    want = unpacked(plain)
    assert_same_bits(unpacked(packed), want)
    assert any((array == 0).any() for array in want.values())
    entry = {"group_size": 32, "bits": LAYOUTS[kind].bits, "mode": "affine"}
    own = config_of(packed)["quantization"]
    assert {key: own[key] for key in entry} == entry
    assert own["model.layers.0.self_attn.q_proj"] == entry
    assert "quantization" not in config_of(plain)


@pytest.mark.parametrize("kind", LAYOUTS, ids=lambda kind: kind.name)
def test_mlx_lm_loads_packed_weights_and_computes_the_same(tmp_path: Path, kind: Kind) -> None:
    write_typed(tmp_path / "t.gguf", lambda _: kind)
    plain, packed = import_both(tmp_path / "t.gguf", tmp_path)
    model = load(packed)
    assert isinstance(model.model.embed_tokens, nn.QuantizedEmbedding)
    assert isinstance(model.layers[0].mlp.down_proj, nn.QuantizedLinear)
    assert model.layers[0].mlp.down_proj.bits == LAYOUTS[kind].bits
    assert_close_logits(packed, plain)


MIXED = {
    "token_embd": Kind.Q5_0,
    "attn_q": Kind.Q4_K,
    "attn_k": Kind.Q8_0,
    "attn_v": Kind.Q6_K,
    "attn_output": Kind.Q5_1,
    "ffn_gate": Kind.F16,
    "ffn_up": Kind.IQ4_XS,
    "ffn_down": Kind.Q5_K,
    "output": Kind.Q8_0,
}


def mixed(name: str) -> Kind:
    return MIXED[name.split(".")[-2]]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("untied", [False, True])
def test_a_mixed_file_packs_what_it_can(tmp_path: Path, dtype: str, untied: bool) -> None:
    extra = {"output.weight": (len(vocabulary()), WIDTH)} if untied else None
    write_typed(tmp_path / "t.gguf", mixed, extra=extra)
    plain, packed = import_both(tmp_path / "t.gguf", tmp_path)
    if dtype == "float32":
        assert_same_bits(unpacked(packed), unpacked(plain))
        assert_close_logits(packed, plain)
    else:
        packed = import_gguf(tmp_path / "t.gguf", tmp_path / "half", dtype=dtype, keep_quantized=True)
    model = load(packed)
    layer = model.layers[0]
    held = {
        "q": layer.self_attn.q_proj,
        "v": layer.self_attn.v_proj,
        "gate": layer.mlp.gate_proj,
        "up": layer.mlp.up_proj,
        "down": layer.mlp.down_proj,
    }
    bits = {name: getattr(module, "bits", None) for name, module in held.items()}
    assert bits == {"q": 4, "v": None, "gate": None, "up": None, "down": 5}
    assert hasattr(model, "lm_head") == untied
    assert not untied or model.lm_head.bits == 8
    floats = {
        str(a.dtype).removeprefix("mlx.core.") for a in (layer.mlp.up_proj.weight, model.model.norm.weight)
    }
    assert floats == {dtype}
    assert layer.mlp.down_proj.scales.dtype == mx.float32


def test_the_artifact_knows_its_parameters_and_bits(tmp_path: Path) -> None:
    write_typed(tmp_path / "t.gguf", mixed)
    plain, packed = import_both(tmp_path / "t.gguf", tmp_path)
    model = load(plain)
    parameters = sum(array.size for array in dict(tree_flatten(model.parameters())).values())
    artifact = measure(packed)
    stored = sum(array.nbytes for array in tensors_of(packed).values())
    assert artifact.parameters == measure(plain).parameters == parameters
    assert artifact.artifact_bytes == stored
    assert artifact.effective_bpw == pytest.approx(stored * 8 / parameters)
    assert artifact.effective_bpw < 32


def test_a_packed_import_asks_for_the_bytes_that_it_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(importer, "require_space", lambda _folder, nbytes, _what: asked.append(nbytes))
    write_typed(tmp_path / "t.gguf", mixed)
    for folder in import_both(tmp_path / "t.gguf", tmp_path):
        written = sum(f.stat().st_size for f in folder.iterdir())
        data = sum(array.nbytes for array in tensors_of(folder).values())
        needed = asked.pop(0)
        # beside the weights the estimate holds one fixed amount, for tokenizer and config
        assert needed >= written and needed - data == importer.BESIDE_WEIGHTS_BYTES


def mixture(kind_of: Callable[[str], Kind]) -> Callable[[gguf.GGUFWriter, dict[str, np.ndarray]], None]:
    """Turn the tiny llama into a mixtral whose experts are stacked; `kind_of` says how each is stored."""
    random = np.random.default_rng(3)

    def edit(writer: gguf.GGUFWriter, weights: dict[str, np.ndarray]) -> None:
        writer.add_expert_count(EXPERTS)
        writer.add_expert_used_count(2)
        for i in range(LAYERS):
            for name, (rows, width) in {
                "gate": (INNER, HIDDEN),
                "up": (INNER, HIDDEN),
                "down": (HIDDEN, INNER),
            }.items():
                del weights[f"blk.{i}.ffn_{name}.weight"]
                full = f"blk.{i}.ffn_{name}_exps.weight"
                kind = kind_of(full)
                writer.add_tensor(full, random_rows(kind, (EXPERTS, rows, width), random), raw_dtype=kind)
            router = random.normal(0, 1, (EXPERTS, HIDDEN)).astype(np.float32)
            writer.add_tensor(f"blk.{i}.ffn_gate_inp.weight", router)

    return edit


def test_stacked_experts_stay_packed(tmp_path: Path) -> None:
    kinds = {"ffn_gate_exps": Kind.Q4_0, "ffn_up_exps": Kind.Q5_1, "ffn_down_exps": Kind.Q8_0}
    file = write_gguf(tmp_path / "t.gguf", edit=mixture(lambda name: kinds[name.split(".")[2]]))
    plain, packed = import_both(file, tmp_path)
    assert_same_bits(unpacked(packed), unpacked(plain))
    experts = load(packed).layers[0].block_sparse_moe.switch_mlp
    held = (experts.gate_proj, experts.up_proj, experts.down_proj)
    assert all(isinstance(layer, QuantizedSwitchLinear) for layer in held)
    assert [layer.bits for layer in held] == [4, 5, 8]
    assert_close_logits(packed, plain)
    assert measure(packed).parameters == measure(plain).parameters


def single(kind_of: Callable[[str], Kind]) -> Callable[[gguf.GGUFWriter, dict[str, np.ndarray]], None]:
    """The tiny mixtral as older files store it: every expert a tensor of its own."""
    random = np.random.default_rng(4)

    def edit(writer: gguf.GGUFWriter, weights: dict[str, np.ndarray]) -> None:
        writer.add_expert_count(EXPERTS)
        writer.add_expert_used_count(2)
        for i in range(LAYERS):
            for name in ("gate", "up", "down"):
                rows, width = weights.pop(f"blk.{i}.ffn_{name}.weight").shape
                for expert in range(EXPERTS):
                    full = f"blk.{i}.ffn_{name}.{expert}.weight"
                    kind = kind_of(full)
                    writer.add_tensor(full, random_rows(kind, (rows, width), random), raw_dtype=kind)
            router = random.normal(0, 1, (EXPERTS, HIDDEN)).astype(np.float32)
            writer.add_tensor(f"blk.{i}.ffn_gate_inp.weight", router)

    return edit


def test_experts_of_one_layer_are_packed_alike_or_not_at_all(tmp_path: Path) -> None:
    def kind_of(name: str) -> Kind:
        return Kind.Q8_0 if name == "blk.1.ffn_up.2.weight" else Kind.Q4_1

    file = write_gguf(tmp_path / "t.gguf", edit=single(kind_of))
    plain, packed = import_both(file, tmp_path)
    assert_same_bits(unpacked(packed), unpacked(plain))
    layers = load(packed).layers
    assert layers[0].block_sparse_moe.switch_mlp.up_proj.bits == 4
    assert not hasattr(layers[1].block_sparse_moe.switch_mlp.up_proj, "bits")
    assert_close_logits(packed, plain)
    assert measure(packed).parameters == measure(plain).parameters


def test_bits_per_weight_are_those_of_the_layout(tmp_path: Path) -> None:
    write_typed(tmp_path / "t.gguf", lambda _: Kind.Q4_0)
    held = tensors_of(import_gguf(tmp_path / "t.gguf", tmp_path / "o", dtype="float32", keep_quantized=True))
    words, scales = (held[f"model.layers.0.mlp.up_proj.{leaf}"] for leaf in ("weight", "scales"))
    assert (words.dtype, scales.dtype) == (mx.uint32, mx.float32)
    assert math.prod(words.shape) * 8 == math.prod(scales.shape) * 32
