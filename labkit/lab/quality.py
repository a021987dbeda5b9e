"""Quality of one arm against another through their workers: one window at a time over a scratch file.

The reference worker writes its log-probabilities of a window, the candidate's is scored against them; so
arms with different BLAS libraries or models compare, and nothing beyond one window is ever held.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from labkit.bench.client import WorkerClient
from labkit.bench.pairs import ROLES, Role
from labkit.core.errors import ExperimentInvalid
from labkit.core.events import Progress, Sink
from labkit.evals.text import Text
from labkit.lab.experiment import ScoreText
from labkit.model.quality import WindowScore
from labkit.model.windows import Windows


def check_comparable(opened: Mapping[Role, Mapping[str, Any]], spec: ScoreText) -> None:
    """Raise ExperimentInvalid where KL between the two opened arms would mean nothing.

    Both need weights, one vocabulary (token -> id), logits of one width, and a context for the windows.
    """
    arms = [opened[role] for role in ROLES]
    tokenizers, widths, contexts = (
        [arm[key] for arm in arms] for key in ("tokenizer_hash", "vocab_size", "context_length")
    )
    needs = (
        ("weights in both arms", all(tokenizers)),
        ("one tokenizer in both arms", len(set(tokenizers)) == 1),
        ("one vocabulary size in both arms", len(set(widths)) == 1),
        (f"a context of {spec.window_tokens} tokens in both arms", spec.window_tokens <= min(contexts)),
    )
    missing = [need for need, holds in needs if not holds]
    if missing:
        raise ExperimentInvalid(
            f"a quality metric compares predictions, so it needs {missing[0]}",
            got="; ".join(map(_predictions, arms)),
            options=("arms of one model or family", "a hypothesis without quality metrics"),
        )


def score_windows(text: Text, spec: ScoreText, client: WorkerClient, opened: Mapping[str, Any]) -> Windows:
    """The text of a spec, cut into windows by the tokenizer of a worker that answered `opened`."""

    def encode(document: str) -> list[int]:
        return client.ask("encode", text=document)["tokens"]

    return text.windows(encode, spec.windows, spec.window_tokens, split=spec.split, bos=opened["bos"])


def score_workers(
    reference: WorkerClient,
    candidate: WorkerClient,
    windows: Windows,
    scratch: Path,
    sink: Sink,
    scored: int = 0,
) -> Iterator[WindowScore]:
    """Score the windows after the first `scored`, one at a time.

    scratch: a folder for the one reference at hand, up to 4 bytes x scored positions x vocabulary.
    """
    path = scratch / "reference.npy"
    for done, window in enumerate(windows):
        if done < scored:
            continue
        sink(Progress("score", done, len(windows), "KL to the baseline"))
        message = {"window": {"tokens": window.tokens, "context_tokens": window.context_tokens}}
        reference.ask("reference", path=str(path), **message)
        yield WindowScore.from_json(candidate.ask("score", path=str(path), **message))
        path.unlink()
    sink(Progress("score", len(windows), len(windows)))


def _predictions(opened: Mapping[str, Any]) -> str:
    tokenizer = f"tokenizer {opened['tokenizer_hash'][:8]}" if opened["tokenizer_hash"] else "no weights"
    sizes = f"vocabulary {opened['vocab_size']}, context {opened['context_length']}"
    return f"{opened['artifact']['name']} ({tokenizer}, {sizes})"
