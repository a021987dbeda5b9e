"""A tiny random llama as a GGUF file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import gguf
import numpy as np
from gguf.quants import quantize
from tokenizers.pre_tokenizers import ByteLevel

HIDDEN, HEADS, KV_HEADS, LAYERS, INNER = 64, 4, 2, 2, 96
HEAD_DIM = HIDDEN // HEADS
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ t"]
Q8 = gguf.GGMLQuantizationType.Q8_0
Edit = Callable[[gguf.GGUFWriter, dict[str, np.ndarray]], object]


def vocabulary() -> list[str]:
    return [*SPECIAL, *sorted(ByteLevel.alphabet()), *(m.replace(" ", "") for m in MERGES)]


def make_weights(seed: int = 0) -> dict[str, np.ndarray]:
    """GGUF names -> float32 arrays in GGUF's own order of rows."""
    random = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return random.normal(0, 0.2, shape).astype(np.float32)

    weights = {
        "token_embd.weight": normal(len(vocabulary()), HIDDEN),
        "output_norm.weight": 1 + normal(HIDDEN),
    }
    for i in range(LAYERS):
        layer = {
            "attn_norm.weight": 1 + normal(HIDDEN),
            "attn_q.weight": normal(HIDDEN, HIDDEN),
            "attn_k.weight": normal(KV_HEADS * HEAD_DIM, HIDDEN),
            "attn_v.weight": normal(KV_HEADS * HEAD_DIM, HIDDEN),
            "attn_output.weight": normal(HIDDEN, HIDDEN),
            "ffn_norm.weight": 1 + normal(HIDDEN),
            "ffn_gate.weight": normal(INNER, HIDDEN),
            "ffn_up.weight": normal(INNER, HIDDEN),
            "ffn_down.weight": normal(HIDDEN, INNER),
        }
        weights |= {f"blk.{i}.{name}": array for name, array in layer.items()}
    return weights


def add_metadata(writer: gguf.GGUFWriter, pre: str = "smollm") -> None:
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(5000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(vocabulary())
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(vocabulary()) - len(SPECIAL)))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}{% endfor %}")


def write_gguf(
    path: Path, architecture: str = "llama", pre: str = "smollm", edit: Edit | None = None
) -> Path:
    """A llama GGUF with Q8_0 matrices and f32 norms; `edit` may add metadata and change the tensors."""
    writer = gguf.GGUFWriter(path, architecture)
    weights = make_weights()
    add_metadata(writer, pre)
    if edit:
        edit(writer, weights)
    write_tensors(writer, weights)
    return path


def write_tensors(
    writer: gguf.GGUFWriter, weights: Mapping[str, np.ndarray], *, quantized: bool = True
) -> None:
    """Write a file whose metadata are stated: Q8_0 for every matrix that can be, float32 for the rest."""
    for name, array in weights.items():
        if quantized and array.ndim > 1 and array.shape[-1] % 32 == 0:
            writer.add_tensor(name, quantize(array, Q8), raw_dtype=Q8)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
