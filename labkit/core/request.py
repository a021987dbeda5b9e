"""Request: one completion asked for, as data. Validation is the planner's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from labkit.core.kv_file import KVFile
from labkit.core.sampling import Sampling
from labkit.core.taps import Taps

# mlx-lm's: log-probabilities `(1, vocab)` -> ids `(1,)`; ids so far and logits `(1, vocab)` -> logits.
Sampler = Callable[[Any], Any]
LogitsProcessor = Callable[[Any, Any], Any]
_SEVERAL = ("stop", "stop_tokens", "logits_processors")


@dataclass(frozen=True, slots=True)
class Request:
    """prompt: token ids. stop_tokens: ids that end the completion. stop: strings that end it.

    prefill_chunk: tokens per prefill step; None takes the backend's default, which decides numerics.
    logprobs: keep the whole distribution of each token. top_logprobs: keep that many alternatives.
    sampler: mlx-lm's or one's own, in place of the filters and the draw of `sampling`; it draws from whatever
    generator it knows. logits_processors: run after those of `sampling`. recipe: where a promoted recipe was
    asked for, the one that filled this request in, or why none did; it decides nothing. kv_file: what the
    file in the name `kv` held when it was read. kv_class: the scheme of one's own that `kv` is the label of.
    """

    prompt: tuple[int, ...]
    max_tokens: int
    kv: str = "bf16"
    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 0
    prefill_chunk: int | None = None
    logprobs: bool = False
    stop_tokens: tuple[int, ...] = ()
    method: str | None = None
    stop: tuple[str, ...] = ()
    top_logprobs: int = 0
    sampler: Sampler | None = None
    logits_processors: tuple[LogitsProcessor, ...] = ()
    taps: Taps = field(default_factory=Taps)
    recipe: str = ""
    kv_file: KVFile | None = None
    kv_class: type | None = None

    def changed(self, **changes: Any) -> Request:
        """A copy with other fields; those that hold several values take one value, or any sequence, too."""
        return replace(self, **{k: several(v) if k in _SEVERAL else v for k, v in changes.items()})


def several(value: Any) -> tuple[Any, ...]:
    """A tuple of a sequence's elements, or of one value that is none, for the planner to judge."""
    alone = isinstance(value, str | bytes) or not isinstance(value, Iterable)
    return (value,) if alone else tuple(value)
