"""Score two configurations against each other in this process: the notebook's way to a KL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.core.errors import ScoreInvalid
from labkit.core.events import Sink, silent
from labkit.lab.experiment import ScoreText
from labkit.model.quality import QualitySummary, summarize

if TYPE_CHECKING:
    from labkit.engine.model import Model


def score(
    model: Model,
    *,
    kv: str | type = "bf16",
    reference: Model | None = None,
    reference_kv: str | type = "bf16",
    text: ScoreText | None = None,
    sink: Sink = silent,
) -> QualitySummary:
    """KL(reference || model) over windows of a text, streamed: at most one block of logits of each is held.

    reference: None compares the model with itself under `reference_kv`. Raises PlanRefused where a scheme
    does not fit, ModelUnavailable without weights, TextUnusable where the text is too short, ScoreInvalid
    where the two models have different tokenizers.
    """
    from labkit.engine.logits import session_logits
    from labkit.evals.text import load_text
    from labkit.model.score import stream_score
    from labkit.model.vocabulary import vocabulary_hash

    spec, base = text or ScoreText(), reference or model
    if base is not model and vocabulary_hash(base.tokenizer) != vocabulary_hash(model.tokenizer):
        need = "two models with one tokenizer are needed for a KL between them"
        raise ScoreInvalid(need, got=f"{base.name} and {model.name}")

    def encode(document: str) -> list[int]:
        return base.tokenizer.encode(document, add_special_tokens=False)

    windows = load_text(spec.name).windows(
        encode, spec.windows, spec.window_tokens, split=spec.split, bos=base.leading_token()
    )
    sources = session_logits(base, reference_kv), session_logits(model, kv)
    return summarize(stream_score(*sources, windows, sink))
