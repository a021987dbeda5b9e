"""llama.cpp's tokens and likelihoods of the bundled models, and the texts they are about."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

WINDOW = 700
WINDOW_CHARACTERS = 6000
# llama.cpp computes with 8-bit activations, which moves its mean by up to 0.015 nats
NLL_TOLERANCE_NATS = 0.015


@dataclass(frozen=True, slots=True)
class Case:
    """ids: llama.cpp's, special tokens parsed, no BOS. decoded: the text that they stand for."""

    text: str
    ids: list[int]
    decoded: str


def own_cases(model: str) -> list[Case]:
    """The texts of this folder, with ids of llama-cpp-python 0.3.36 on the bundled GGUF file.

    `decoded` stands where the tokenizer cannot bring a text back: bytes without a token, U+2581.
    """
    rows = json.loads(Path(__file__).with_name(f"{model}_tokens.json").read_text(encoding="utf-8"))
    return [Case(row["text"], row["ids"], row.get("decoded", row["text"])) for row in rows]


def shared_cases(folder: Path, model: str) -> list[Case]:
    """The texts of the shared data; all come back."""
    rows = json.loads((folder / "oracle" / "tokens.json").read_text(encoding="utf-8"))["texts"]
    texts = [_text(row, folder) for row in rows]
    return [Case(text, row["ids"][model], text) for text, row in zip(texts, rows, strict=True)]


def not_llama_cpps(tokenizer: Any, cases: list[Case]) -> list[str]:
    """The texts whose ids, or whose way back, are others than llama.cpp's."""
    return [
        case.text
        for case in cases
        if tokenizer.encode(case.text, add_special_tokens=False) != case.ids
        or tokenizer.decode(case.ids) != case.decoded
    ]


def check_likelihood(model: Any, tokenizer: Any, folder: Path, name: str) -> float:
    """The mean NLL in nats over the window of wikitext2 less llama.cpp's, on the very same tokens."""
    oracle = json.loads((folder / "oracle" / "nll.json").read_text(encoding="utf-8"))[name]
    text = _read(folder / "wikitext2" / "wiki.test.raw")[:WINDOW_CHARACTERS]
    ids = tokenizer.encode(text)[:WINDOW]
    assert hashlib.sha256(json.dumps(ids).encode()).hexdigest() == oracle["ids_sha256"]
    logits = model(mx.array([ids[:-1]])).astype(mx.float32)[0]
    chosen = mx.take_along_axis(logits, mx.array(ids[1:])[:, None], axis=1)[:, 0]
    mean = mx.mean(mx.logsumexp(logits, axis=-1) - chosen)
    return np.asarray(mean).item() - oracle["mean_nll_nats_llama_cpp"]


def _text(row: dict[str, Any], folder: Path) -> str:
    if "text" in row:
        return row["text"]
    return _read(folder / row["file"])[row["offset"] : row["offset"] + row["length"]]


def _read(file: Path) -> str:
    """Line ends as they are: the offsets count them."""
    return file.read_bytes().decode("utf-8")
