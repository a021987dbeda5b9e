"""A tiny random llama as a model directory: safetensors, config and tokenizer, as mlx-lm loads them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

HIDDEN, LAYERS, INNER, VOCAB, HEADS, HEAD_DIM = 64, 2, 96, 257, 2, 32
CONFIG: Mapping[str, Any] = {
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "intermediate_size": INNER,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 1,
    "head_dim": HEAD_DIM,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "vocab_size": VOCAB,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
    "eos_token_id": 256,
}


def make_weights() -> dict[str, np.ndarray]:
    """Names -> float32 arrays."""
    random = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return random.normal(0, 0.1, shape).astype(np.float32)

    weights = {"model.embed_tokens.weight": normal(VOCAB, HIDDEN), "model.norm.weight": 1 + normal(HIDDEN)}
    for i in range(LAYERS):
        layer = {
            "self_attn.q_proj.weight": normal(HEADS * HEAD_DIM, HIDDEN),
            "self_attn.k_proj.weight": normal(HEAD_DIM, HIDDEN),
            "self_attn.v_proj.weight": normal(HEAD_DIM, HIDDEN),
            "self_attn.o_proj.weight": normal(HIDDEN, HEADS * HEAD_DIM),
            "mlp.gate_proj.weight": normal(INNER, HIDDEN),
            "mlp.up_proj.weight": normal(INNER, HIDDEN),
            "mlp.down_proj.weight": normal(HIDDEN, INNER),
            "input_layernorm.weight": 1 + normal(HIDDEN),
            "post_attention_layernorm.weight": 1 + normal(HIDDEN),
        }
        weights |= {f"model.layers.{i}.{name}": array for name, array in layer.items()}
    return weights


def write_tokenizer(folder: Path) -> None:
    """A byte-level tokenizer of single bytes and one special token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    stated = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(stated))


def write_directory(folder: Path) -> Path:
    """One file of weights."""
    folder.mkdir(parents=True)
    save_file(make_weights(), folder / "model.safetensors", metadata={"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(dict(CONFIG)))
    write_tokenizer(folder)
    return folder


def write_sharded(folder: Path) -> Path:
    """Two files of weights and their index, as the hub has them."""
    write_directory(folder)
    (folder / "model.safetensors").unlink()
    names = sorted(make_weights())
    shards = {f"model-0000{i}-of-00002.safetensors": names[i - 1 :: 2] for i in (1, 2)}
    for file, held in shards.items():
        save_file({name: make_weights()[name] for name in held}, folder / file, metadata={"format": "mlx"})
    weight_map = {name: file for file, held in shards.items() for name in held}
    index = {
        "metadata": {"total_size": sum(a.nbytes for a in make_weights().values())},
        "weight_map": weight_map,
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder
