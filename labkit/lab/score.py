"""Score two configurations against each other in this process: the notebook's way to a KL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.core.events import Sink, silent
from labkit.lab.experiment import ScoreText
from labkit.model.quality import QualitySummary, summarize

if TYPE_CHECKING:
    from labkit.engine.model import Model


def score(
    model: Model,
    *,
    kv: str = "bf16",
    reference: Model | None = None,
    reference_kv: str = "bf16",
    text: ScoreText | None = None,
    sink: Sink = silent,
) -> QualitySummary:
    """KL(reference || model) over windows of a text, streamed: at most one block of logits of each is held.

    reference: None compares the model with itself under `reference_kv`. Raises PlanRefused where a scheme
    does not fit, ModelUnavailable without weights, TextUnusable where the text is too short.
    """
    from labkit.engine.logits import session_logits
    from labkit.evals.text import load_text
    from labkit.model.score import stream_score

    spec, base = text or ScoreText(), reference or model

    def encode(document: str) -> list[int]:
        return base.tokenizer.encode(document, add_special_tokens=False)

    windows = load_text(spec.name).windows(
        encode, spec.windows, spec.window_tokens, split=spec.split, bos=base.leading_token()
    )
    sources = session_logits(base, reference_kv), session_logits(model, kv)
    return summarize(stream_score(*sources, windows, sink))
