"""Sampling and taps in words, as `Plan.explain` prints them: what is at its default goes unsaid."""

from __future__ import annotations

from collections.abc import Sequence

from labkit.core.sampling import Sampling
from labkit.core.taps import Taps


def describe_sampling(
    sampling: Sampling, seed: int, sampler: str | None = None, processors: Sequence[str] = ()
) -> str:
    """Processors, filters and the draw, in the order in which they act."""
    own = [f"processor {name}" for name in processors]
    if sampler is not None:
        return ", ".join([*_processors(sampling), *own, f"sampler {sampler}"])
    if sampling.greedy:
        return ", ".join([*_processors(sampling), *own, "greedy"])
    draw = [f"temperature {sampling.temperature:g}", f"seed {seed}"]
    return ", ".join([*_processors(sampling), *own, *_filters(sampling), *draw])


def describe_taps(taps: Taps) -> str:
    """What the taps record; empty where they record nothing and call nobody."""
    parts = ["logits"] if taps.logits else []
    for name, layers in (("hidden states", taps.hidden), ("attention", taps.attention)):
        if layers:
            parts.append(f"{name} of layers {', '.join(map(str, layers))}")
    return "; ".join([*parts, "a call for each step"] if taps.call else parts)


def _processors(sampling: Sampling) -> list[str]:
    parts = [f"logit bias on {len(sampling.logit_bias)} token(s)"] if sampling.logit_bias else []
    if sampling.repetition_penalty != 1.0:
        context = sampling.repetition_context_size
        parts.append(f"repetition penalty {sampling.repetition_penalty:g} over {context} tokens")
    if sampling.presence_penalty:
        context = sampling.presence_context_size
        parts.append(f"presence penalty {sampling.presence_penalty:g} over {context} tokens")
    if sampling.frequency_penalty:
        context = sampling.frequency_context_size
        parts.append(f"frequency penalty {sampling.frequency_penalty:g} over {context} tokens")
    return parts


def _filters(sampling: Sampling) -> list[str]:
    parts = [f"top-p {sampling.top_p:g}"] if sampling.top_p < 1 else []
    if sampling.min_p:
        kept = f" keeping {sampling.min_tokens_to_keep}" if sampling.min_tokens_to_keep > 1 else ""
        parts.append(f"min-p {sampling.min_p:g}{kept}")
    if sampling.xtc_probability:
        spared = f" sparing {len(sampling.xtc_special_tokens)}" if sampling.xtc_special_tokens else ""
        share = f"{sampling.xtc_probability:g} above {sampling.xtc_threshold:g}"
        parts.append(f"XTC {share}{spared}")
    return [*parts, f"top-k {sampling.top_k}"] if sampling.top_k else parts
