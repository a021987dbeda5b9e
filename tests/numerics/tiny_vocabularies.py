"""Synthetic vocabularies as the metadata of GGUF files, and llama.cpp's rule for scored pieces."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from tokenizers.pre_tokenizers import ByteLevel

SPACE = "\u2581"
SEED = 7
CONTROLS = ["<unk>", "<s>", "</s>"]
BYTES = [f"<0x{i:02X}>" for i in range(256)]
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def pairs_metadata(pre: str) -> dict[str, Any]:
    """Byte-level BPE with all bytes and pairs of bytes, so that the cuts of a text show in its tokens."""
    alphabet = sorted(ByteLevel.alphabet())
    pairs = [(a, b) for a in alphabet for b in alphabet]
    random.Random(SEED).shuffle(pairs)
    normal = [*alphabet, *(a + b for a, b in pairs)]
    whole = ["hello", "Ġworld", "123", "ĊĊĊ"]
    tokens = [*normal, "<|eot|>", "<|x|>", "  \t", *whole]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * len(normal) + [CONTROL, CONTROL, USER_DEFINED] + [1] * len(whole),
        "tokenizer.ggml.merges": [f"{a} {b}" for a, b in pairs],
        "tokenizer.ggml.bos_token_id": len(normal),
        "tokenizer.ggml.eos_token_id": len(normal) + 1,
    }


def pieces_metadata(
    pieces: Sequence[str], *, added: Sequence[str] = ("[X]",), scores: Sequence[float] | None = None
) -> dict[str, Any]:
    """Scored pieces: control tokens, 256 bytes, `pieces` (the earlier the better) and user-defined ones."""
    tokens = [*CONTROLS, *BYTES, *pieces, *added]
    own = scores or [-float(i) for i in range(len(pieces))]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [0.0] * (3 + 256) + list(own) + [-1000.0] * len(added),
        "tokenizer.ggml.token_type": [UNKNOWN, CONTROL, CONTROL]
        + [BYTE] * 256
        + [NORMAL] * len(pieces)
        + [USER_DEFINED] * len(added),
    }


def merge_by_score(text: str, metadata: dict[str, Any]) -> list[int]:
    """llama.cpp's rule on text without added tokens: again and again, of all neighbours that make a piece
    join those with the highest score, of equal scores the leftmost; what is no piece then becomes bytes.
    """
    tokens, scores = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.scores"]
    ids = {token: i for i, token in enumerate(tokens)}
    parts = list(text.replace(" ", SPACE))
    while True:
        joined = [(a + b, at) for at, (a, b) in enumerate(pairwise(parts)) if a + b in ids]
        if not joined:
            break
        best, at = max(joined, key=lambda found: (scores[ids[found[0]]], -found[1]))
        parts[at : at + 2] = [best]
    return [i for part in parts for i in ([ids[part]] if part in ids else _bytes(part, ids))]


def _bytes(part: str, ids: dict[str, int]) -> list[int]:
    return [ids[f"<0x{byte:02X}>"] for byte in part.encode()]
