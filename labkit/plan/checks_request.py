"""Checks of a request's own fields on a model: lengths, seed, stops, alternatives, callables and taps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from labkit.core.request import Request
from labkit.core.spec import Profile
from labkit.core.taps import Taps
from labkit.plan.reason import Reason
from labkit.plan.values import is_count, is_token, is_whole, shown

# More alternatives a token than that are a distribution, which `logprobs` keeps.
MOST_ALTERNATIVES = 1000


def check_request(request: Request, profile: Profile) -> Iterator[Reason]:
    """Every reason in these fields why the request cannot run on this model."""
    yield from _check_lengths(request, profile)
    if not (is_whole(request.seed) and 0 <= request.seed < 2**63):
        yield Reason("seed", "a whole number from 0 to 2^63 - 1", shown(request.seed))
    if not isinstance(request.logprobs, bool):
        yield Reason("logprobs", "True or False", shown(request.logprobs))
    if not isinstance(request.recipe, str):
        yield Reason("recipe", "text that says which recipe filled the request in", shown(request.recipe))
    yield from _check_stops(request, profile)
    yield from _check_alternatives(request.top_logprobs, profile)
    yield from _check_callables(request)
    yield from _check_taps(request.taps)


def _check_lengths(request: Request, profile: Profile) -> Iterator[Reason]:
    prompt, context = len(request.prompt), profile.context_length
    if prompt == 0:
        yield Reason("prompt", "at least one token", "an empty prompt")
    if not is_count(request.max_tokens):
        yield Reason("max_tokens", "a whole number of at least 1", shown(request.max_tokens))
    elif prompt > context:
        yield Reason("prompt", f"at most {context} tokens, the context of {profile.name}", f"{prompt} tokens")
    elif prompt + request.max_tokens > context:
        room = context - prompt
        need = f"prompt and max_tokens within the context of {context} tokens"
        options = (f"max_tokens from 1 to {room}",) if room else ("a shorter prompt",)
        yield Reason("max_tokens", need, f"{prompt} + {request.max_tokens} tokens", options)
    if request.prefill_chunk is not None and not is_count(request.prefill_chunk):
        yield Reason("prefill_chunk", "a whole number of at least 1", shown(request.prefill_chunk))
    yield from _check_ids("prompt", request.prompt, profile)


def _check_ids(field: str, ids: tuple[int, ...], profile: Profile) -> Iterator[Reason]:
    wrong = [t for t in ids if not is_token(t, profile.vocab_size)]
    if wrong:
        yield Reason(field, f"token ids from 0 to {profile.vocab_size - 1}", shown(wrong[0]))


def _check_stops(request: Request, profile: Profile) -> Iterator[Reason]:
    yield from _check_ids("stop_tokens", request.stop_tokens, profile)
    stop: Any = request.stop
    if not isinstance(stop, tuple):
        yield Reason("stop", "a tuple of strings", shown(stop))
    elif wrong := [text for text in stop if not isinstance(text, str) or not text]:
        yield Reason("stop", "strings of at least one character", shown(wrong[0]))


def _check_alternatives(count: Any, profile: Profile) -> Iterator[Reason]:
    most = min(profile.vocab_size, MOST_ALTERNATIVES)
    if not (is_whole(count) and 0 <= count <= most):
        next_step = "logprobs=True keeps the whole distribution"
        yield Reason("top_logprobs", f"a whole number from 0 to {most}", shown(count), (), next_step)


def _check_callables(request: Request) -> Iterator[Reason]:
    sampler: Any = request.sampler
    if sampler is not None and not callable(sampler):
        need = "a callable from log-probabilities (1, vocab) to ids (1,), or None"
        yield Reason("sampler", need, shown(sampler))
    processors: Any = request.logits_processors
    need = "callables from ids (n,) and logits (1, vocab) to logits"
    if not isinstance(processors, tuple):
        yield Reason("logits_processors", f"a tuple of {need}", shown(processors))
    elif wrong := [processor for processor in processors if not callable(processor)]:
        yield Reason("logits_processors", need, shown(wrong[0]))


def _check_taps(taps: Any) -> Iterator[Reason]:
    if not isinstance(taps, Taps):
        yield Reason("taps", "a labkit.Taps", shown(taps))
        return
    if not isinstance(taps.logits, bool):
        yield Reason("taps.logits", "True or False", shown(taps.logits))
    if taps.call is not None and not callable(taps.call):
        yield Reason("taps.call", "a callable that takes a step, or None", shown(taps.call))
    # Which layers there are, and what they give, the graph knows: a profile lists those with a cache.
    for name, indices in (("hidden", taps.hidden), ("attention", taps.attention)):
        wrong = [i for i in indices if not (is_whole(i) and i >= 0)]
        if wrong:
            yield Reason(f"taps.{name}", "layer indices from 0", shown(wrong[0]))
