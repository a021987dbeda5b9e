"""A small llama GGUF whose matrices hold random blocks of any type: every code, scales of every kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind
from gguf.constants import GGML_QUANT_SIZES

from tests.numerics.tiny_gguf import MERGES, SPECIAL, vocabulary

WIDTH, HEADS, KV_HEADS, INNER = 256, 4, 2, 512
# A row of a head is two halves: llama.cpp's order interleaves them.
HALF = WIDTH // HEADS // 2
# Where the float16 scales of a block lie.
HALVES: Mapping[Kind, tuple[int, ...]] = {
    **dict.fromkeys((Kind.Q4_0, Kind.Q5_0, Kind.Q8_0, Kind.IQ4_NL, Kind.IQ4_XS), (0,)),
    **dict.fromkeys((Kind.Q4_1, Kind.Q5_1, Kind.Q4_K, Kind.Q5_K), (0, 2)),
    **dict.fromkeys((Kind.IQ2_XXS, Kind.IQ2_XS, Kind.IQ2_S, Kind.IQ3_XXS, Kind.IQ3_S, Kind.IQ1_S), (0,)),
    Kind.Q2_K: (80, 82),
    Kind.Q3_K: (108,),
    Kind.Q6_K: (208,),
    Kind.TQ1_0: (52,),
    Kind.TQ2_0: (64,),
}
# Negative, zero of both signs, subnormal, large and small float16 scales.
HOSTILE = (0.0, -0.0, 6e-8, -6e-8, 3e-6, -0.05, 0.02, 1e-3, -7e-4, 1.5, -30.0, 100.0)
USUAL = (2e-3, 1e-3, -1e-3, 3e-4)
Matrices = dict[str, np.ndarray]


def shapes(layers: int = 1) -> dict[str, tuple[int, int]]:
    """GGUF name -> `(out, in)` of every matrix."""
    kv = WIDTH * KV_HEADS // HEADS
    layer = {
        "attn_q": (WIDTH, WIDTH),
        "attn_k": (kv, WIDTH),
        "attn_v": (kv, WIDTH),
        "attn_output": (WIDTH, WIDTH),
        "ffn_gate": (INNER, WIDTH),
        "ffn_up": (INNER, WIDTH),
        "ffn_down": (WIDTH, INNER),
    }
    blocks = {f"blk.{i}.{name}.weight": shape for i in range(layers) for name, shape in layer.items()}
    return {"token_embd.weight": (len(vocabulary()), WIDTH), **blocks}


def random_rows(
    kind: Kind, shape: tuple[int, ...], random: np.random.Generator, scales: tuple[float, ...] = USUAL
) -> np.ndarray:
    """Stored bytes, uint8 `(..., row bytes)`: random codes with scales drawn from those given."""
    if kind in (Kind.F32, Kind.F16, Kind.BF16):
        normal = random.normal(0, 0.05, shape).astype(np.float32)
        return gguf.quants.quantize(normal, kind).view(np.uint8)
    block, nbytes = GGML_QUANT_SIZES[kind]
    rows = random.integers(0, 256, (*shape[:-1], shape[-1] // block, nbytes), dtype=np.uint8)
    for at in HALVES.get(kind, ()):
        rows[..., at : at + 2] = random.choice(np.array(scales, "<f2"), rows.shape[:-1])[..., None].view("u1")
    if kind == Kind.MXFP4:  # powers of two near 1/512, and the two smallest
        rows[..., 0] = random.choice(np.array([117, 118, 120, 0, 1], np.uint8), rows.shape[:-1])
    if kind == Kind.NVFP4:  # four scales a block; 0x7f is its NaN, read as zero
        rows[..., :4] = random.choice(np.array([0, 1, 8, 40, 0x7F], np.uint8), (*rows.shape[:-1], 4))
    if kind == Kind.IQ1_M:  # the float16 scale is spread over the upper halves of bytes; 0x1 or 0x9 are small
        rows[..., 55] = rows[..., 55] & 0x0F | random.choice(
            np.array([0x10, 0x90], np.uint8), rows.shape[:-1]
        )
    return rows.reshape(*shape[:-1], -1)


def unpermuted(array: np.ndarray, heads: int) -> np.ndarray:
    """Rows in the order of the model: first halves of the pairs, then second halves, head by head."""
    order = [h * 2 * HALF + 2 * i + half for h in range(heads) for half in (0, 1) for i in range(HALF)]
    return array[order]


def write_typed(
    path: Path,
    kind_of: Callable[[str], Kind],
    *,
    scales: tuple[float, ...] = USUAL,
    extra: Mapping[str, tuple[int, int]] | None = None,
    seed: int = 0,
) -> Matrices:
    """Write the file; return the stored bytes of every matrix by GGUF name. extra: further matrices."""
    random = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, "llama")
    _add_metadata(writer)
    stored: Matrices = {}
    for name, shape in {**shapes(), **(extra or {})}.items():
        kind = kind_of(name)
        stored[name] = random_rows(kind, shape, random, scales)
        writer.add_tensor(name, stored[name], raw_dtype=kind)
    for name in ("output_norm.weight", "blk.0.attn_norm.weight", "blk.0.ffn_norm.weight"):
        writer.add_tensor(name, 1 + random.normal(0, 0.1, WIDTH).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return stored


def _add_metadata(writer: gguf.GGUFWriter) -> None:
    writer.add_block_count(1)
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(vocabulary())
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(vocabulary()) - len(SPECIAL)))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
