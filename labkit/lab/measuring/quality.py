"""Quality of one arm against another through their workers, over scratch files.

The reference worker writes its log-probabilities of a window, the candidate's is scored against them; so
arms with different BLAS libraries or models compare, and nothing beyond one window is ever held in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.bench.client import WorkerClient
from labkit.bench.pairs import ROLES, Role
from labkit.core.errors import ExperimentInvalid
from labkit.core.events import Progress, Sink
from labkit.evals.text import Text
from labkit.lab.experiment import ScoreText
from labkit.model.quality import WindowScore
from labkit.model.windows import Window, Windows


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


@dataclass(frozen=True, slots=True)
class Scoring:
    """Windows to score through two workers. client: an open worker of an arm, which may close the other's.

    scratch: a folder for the references at hand, each up to 4 bytes x scored positions x vocabulary. batch:
    how many of them are written before the candidate is asked: one, or as many as spare starting workers.
    """

    client: Callable[[Role], WorkerClient]
    windows: Windows
    scratch: Path
    batch: int

    def scores(self, sink: Sink, scored: int = 0) -> Iterator[WindowScore]:
        """The scores of the windows after the first `scored`, one at a time."""
        total = len(self.windows)
        for first in range(scored, total, self.batch):
            batch = list(self.windows)[first : first + self.batch]
            for place, window in enumerate(batch):
                sink(Progress("score", first, total, "KL to the baseline"))
                self.client("baseline").ask("reference", path=self._path(place), **_message(window))
            for place, window in enumerate(batch):
                sink(Progress("score", first + place, total, "KL to the baseline"))
                answer = self.client("candidate").ask("score", path=self._path(place), **_message(window))
                yield WindowScore.from_json(answer)
                Path(self._path(place)).unlink()
        sink(Progress("score", total, total))

    def _path(self, place: int) -> str:
        return str(self.scratch / f"reference-{place}.npy")


def _message(window: Window) -> dict[str, Any]:
    return {"window": {"tokens": window.tokens, "context_tokens": window.context_tokens}}


def _predictions(opened: Mapping[str, Any]) -> str:
    tokenizer = f"tokenizer {opened['tokenizer_hash'][:8]}" if opened["tokenizer_hash"] else "no weights"
    sizes = f"vocabulary {opened['vocab_size']}, context {opened['context_length']}"
    return f"{opened['artifact']['name']} ({tokenizer}, {sizes})"
