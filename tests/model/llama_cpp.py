"""llama.cpp's tokens and likelihoods of the bundled models, and the texts they are about."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

WINDOW = 700
WINDOW_CHARACTERS = 6000
# llama.cpp computes with 8-bit activations, which moves its mean by up to 0.015 nats
NLL_TOLERANCE_NATS = 0.015
# Of labkit's own prose, one file behind the other, the first 700 tokens, BOS where the model has one.
PROSE_FILES = ("01_narrative.md", "04_physics.md", "07_python_code.md")


@dataclass(frozen=True, slots=True)
class Score:
    """What llama.cpp makes of a window. ids_sha256: of its ids as JSON. nats: its mean NLL per token."""

    ids_sha256: str
    nats: float


# llama-cpp-python 0.3.36 on the bundled GGUF files, one thread, float64 log-sum-exp of its logits.
PROSE: Mapping[str, Score] = {
    "smollm2": Score("ec83d9557e606e21f5b1c12b809e5414bc1db95b8b67ea661a12e466b0c9c49b", 3.4946),
    "gemma3-270m": Score("6a96d4cb033dcb1162de008f60acabd514f2f37cc008a18af53e6c4385cd567a", 3.5028),
}


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
    score = Score(oracle["ids_sha256"], oracle["mean_nll_nats_llama_cpp"])
    return _nats(model, _window(tokenizer, text, score)) - score.nats


def check_prose(model: Any, tokenizer: Any, name: str) -> float:
    """The same on the prose that ships with labkit, so in a plain clone too."""
    folder = Path(str(resources.files("labkit.evals"))) / "prose"
    text = "".join(_read(folder / file) for file in PROSE_FILES)
    return _nats(model, _window(tokenizer, text, PROSE[name])) - PROSE[name].nats


def _window(tokenizer: Any, text: str, score: Score) -> list[int]:
    """The ids of a text's first tokens, which are llama.cpp's."""
    ids = tokenizer.encode(text)[:WINDOW]
    assert hashlib.sha256(json.dumps(ids).encode()).hexdigest() == score.ids_sha256
    return ids


def _nats(model: Any, ids: list[int]) -> float:
    """The mean NLL of every token but the first."""
    logits = model(mx.array([ids[:-1]])).astype(mx.float32)[0]
    chosen = mx.take_along_axis(logits, mx.array(ids[1:])[:, None], axis=1)[:, 0]
    mean = mx.mean(mx.logsumexp(logits, axis=-1) - chosen)
    return np.asarray(mean).item()


def _text(row: dict[str, Any], folder: Path) -> str:
    if "text" in row:
        return row["text"]
    return _read(folder / row["file"])[row["offset"] : row["offset"] + row["length"]]


def _read(file: Path) -> str:
    """Line ends as they are: the offsets count them."""
    return file.read_bytes().decode("utf-8")
