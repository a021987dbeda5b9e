"""Every tensor type that gguf dequantizes imports to gguf's own numbers; every other is refused by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize
from safetensors.numpy import load_file

from labkit.core.errors import ModelUnavailable
from labkit.model.gguf.importer import import_gguf
from labkit.model.gguf.pack import SYMMETRIC
from tests.numerics.typed_gguf import HEADS, KV_HEADS, unpermuted, write_typed

NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "blk.0.attn_q.weight": "model.layers.0.self_attn.q_proj.weight",
    "blk.0.attn_k.weight": "model.layers.0.self_attn.k_proj.weight",
    "blk.0.attn_v.weight": "model.layers.0.self_attn.v_proj.weight",
    "blk.0.ffn_down.weight": "model.layers.0.mlp.down_proj.weight",
}


def dequantizes(kind: Kind) -> bool:
    try:
        dequantize(np.zeros((1, GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
    except NotImplementedError:
        return False
    return True


READABLE = [kind for kind in Kind if dequantizes(kind)]
UNREADABLE = [kind for kind in Kind if kind not in READABLE]


def bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array, dtype=np.float32).view(np.uint32)


def test_the_types_are_those_that_this_file_speaks_of() -> None:
    assert len(READABLE) >= 26
    assert {Kind.I8, Kind.I32, Kind.F64, Kind.Q8_K} <= set(UNREADABLE)


@pytest.mark.parametrize("kind", READABLE, ids=lambda kind: kind.name)
def test_a_type_imports_to_the_bits_that_gguf_computes(tmp_path: Path, kind: Kind) -> None:
    stored = write_typed(tmp_path / "t.gguf", lambda _: kind)
    target = import_gguf(tmp_path / "t.gguf", tmp_path / "out", dtype="float32")
    got = load_file(target / "model.safetensors")
    for name, new in NAMES.items():
        want = dequantize(stored[name], kind)
        if (
            kind in SYMMETRIC
        ):  # a zero of a negative scale is +0.0, so that packed imports can equal plain ones
            want = want + np.float32(0)
        heads = {"attn_q": HEADS, "attn_k": KV_HEADS}.get(name.split(".")[-2])
        want = unpermuted(want, heads) if heads else want
        assert np.unique(want).size > 2
        np.testing.assert_array_equal(bits(got[new]), bits(want), err_msg=name)


@pytest.mark.parametrize("kind", UNREADABLE, ids=lambda kind: kind.name)
def test_a_type_that_gguf_cannot_read_is_refused_by_name(tmp_path: Path, kind: Kind) -> None:
    write_typed(tmp_path / "t.gguf", lambda name: kind if "ffn_up" in name else Kind.F32)
    with pytest.raises(ModelUnavailable, match=rf"blk\.0\.ffn_up\.weight\n.* {kind.name}\n(.|\n)*Q4_K"):
        import_gguf(tmp_path / "t.gguf", tmp_path / "home" / "out", dtype="float32")
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("kind", "at", "value"),
    [
        (Kind.Q4_0, 0, np.nan),
        (Kind.Q8_0, 0, np.inf),
        (Kind.Q4_K, 2, -np.inf),
        (Kind.Q6_K, 208, np.nan),
        (Kind.F16, 0, np.inf),
        (Kind.BF16, 0, np.nan),
        (Kind.F32, 0, np.nan),
        (Kind.Q8_0, 0, 65504.0),
    ],
)
@pytest.mark.parametrize("keep_quantized", [False, True])
def test_what_is_no_weight_is_refused_by_name(
    tmp_path: Path, kind: Kind, at: int, value: float, keep_quantized: bool
) -> None:
    file = tmp_path / "t.gguf"
    stored = write_typed(file, lambda name: kind if "ffn_up" in name else Kind.F32)
    rows = stored["blk.0.ffn_up.weight"]
    data = file.read_bytes()
    begin = data.rindex(rows[-1].tobytes()) + at
    size = {Kind.F32: "<f4", Kind.BF16: "<u2"}.get(kind, "<f2")
    word = np.array(0x7FC0, "<u2") if kind == Kind.BF16 else np.array(value, size)
    file.write_bytes(data[:begin] + word.tobytes() + data[begin + word.nbytes :])
    with pytest.raises(ModelUnavailable, match=r"finite weights(.|\n)*blk\.0\.ffn_up\.weight"):
        import_gguf(file, tmp_path / "home" / "out", dtype="float32", keep_quantized=keep_quantized)
    assert not list((tmp_path / "home").iterdir())


def test_what_float16_cannot_hold_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "t.gguf"
    stored = write_typed(file, lambda _: Kind.F32)
    data = file.read_bytes()
    begin = data.index(stored["blk.0.attn_v.weight"][0].tobytes())
    file.write_bytes(data[:begin] + np.float32(70000).tobytes() + data[begin + 4 :])
    with pytest.raises(ModelUnavailable, match=r"65504(.|\n)*attn_v\.weight\n.*70000"):
        import_gguf(file, tmp_path / "home" / "out", dtype="float16")
    assert not list((tmp_path / "home").iterdir())
    import_gguf(file, tmp_path / "home" / "out", dtype="bfloat16")
