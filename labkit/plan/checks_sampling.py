"""Checks of Sampling: every field in its range, and no setting that would silently do nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from labkit.core.sampling import Sampling
from labkit.plan.reason import Reason
from labkit.plan.values import is_number, is_token, is_whole, shown

# Below it, 1 / temperature and the nucleus leave the range of f32.
LEAST_SAMPLING = 1e-6
# Above it, distributions are flat; far above it, -inf / temperature would be no number in f32.
MOST_TEMPERATURE = 1e6
# Logits of models lie within a thousand: more than that is a ban, and does not overflow f16 when added.
MOST_BIAS = 10_000.0
MOST_PENALTY = 1000.0
LEAST_REPETITION = 0.001

FILTERS: Mapping[str, str] = {
    "top_p": "top-p",
    "min_p": "min-p",
    "xtc_probability": "XTC",
    "top_k": "top-k",
}
# What has a meaning only beside another field.
PARTNERS: Mapping[str, str] = {
    "min_tokens_to_keep": "min_p",
    "xtc_threshold": "xtc_probability",
    "xtc_special_tokens": "xtc_probability",
    "repetition_context_size": "repetition_penalty",
    "presence_context_size": "presence_penalty",
    "frequency_context_size": "frequency_penalty",
}
# The fields that a request's own sampler takes the place of.
DRAWING = (
    "temperature",
    *FILTERS,
    "min_tokens_to_keep",
    "xtc_threshold",
    "xtc_special_tokens",
)
_DEFAULTS = Sampling()


@dataclass(frozen=True, slots=True)
class Range:
    """The values of a field: from low to high, both included. zero: what 0 stands for outside of them."""

    low: float
    high: float
    whole: bool = False
    zero: str = ""

    def holds(self, value: Any) -> bool:
        kind = is_whole(value) if self.whole else is_number(value)
        return kind and (self.low <= value <= self.high or (bool(self.zero) and value == 0))

    def need(self) -> str:
        zero = f"0 ({self.zero}) or " if self.zero else ""
        if self.whole:
            return f"{zero}a whole number from {self.low} to {self.high}"
        return f"{zero}a number from {self.low:g} to {self.high:g}"


def check_sampling(sampling: Sampling, vocab_size: int, own_sampler: bool) -> Iterator[Reason]:
    """Every reason why no model with this vocabulary can draw so. own_sampler: the request has its own."""
    wrong = (
        *_outside(sampling, vocab_size),
        *_wrong_ids(sampling, vocab_size),
        *_wrong_bias(sampling, vocab_size),
    )
    yield from wrong
    fields = {reason.field for reason in wrong}
    drawing = stated_fields(sampling, DRAWING)
    if own_sampler and drawing:
        need = "a sampler of one's own or the temperature and filters of sampling, not both"
        yield Reason("sampler", need, f"a sampler with {drawing}", ("sampler=None", "the default sampling"))
    elif not own_sampler and not fields & {"temperature", *FILTERS}:
        yield from _filters_of_greedy(sampling)
    yield from _without_partner(sampling, fields)


def stated_fields(sampling: Sampling, names: tuple[str, ...]) -> str:
    """Those of the fields that are not at their default, as `name value, name value`."""
    values = {name: getattr(sampling, name) for name in names}
    changed = {n: v for n, v in values.items() if not _is_default(n, v)}
    return ", ".join(f"{n} {v:g}" if is_number(v) else f"{n} {shown(v)}" for n, v in changed.items())


def _is_default(name: str, value: object) -> bool:
    return type(value) is type(getattr(_DEFAULTS, name)) and value == getattr(_DEFAULTS, name)


def _ranges(vocab_size: int) -> Mapping[str, Range]:
    context = Range(1, 2**31 - 1, whole=True)
    penalty = Range(-MOST_PENALTY, MOST_PENALTY)
    return {
        "temperature": Range(LEAST_SAMPLING, MOST_TEMPERATURE, zero="greedy"),
        "top_p": Range(LEAST_SAMPLING, 1),
        "top_k": Range(0, vocab_size - 1, whole=True),
        "min_p": Range(0, 1),
        "min_tokens_to_keep": Range(1, vocab_size, whole=True),
        "xtc_probability": Range(0, 1),
        "xtc_threshold": Range(0, 0.5),
        "repetition_penalty": Range(LEAST_REPETITION, MOST_PENALTY),
        "repetition_context_size": context,
        "presence_penalty": penalty,
        "presence_context_size": context,
        "frequency_penalty": penalty,
        "frequency_context_size": context,
    }


def _outside(sampling: Sampling, vocab_size: int) -> Iterator[Reason]:
    for name, allowed in _ranges(vocab_size).items():
        value = getattr(sampling, name)
        if not allowed.holds(value):
            yield Reason(name, allowed.need(), shown(value))


def _wrong_ids(sampling: Sampling, vocab_size: int) -> Iterator[Reason]:
    ids = sampling.xtc_special_tokens
    need = f"token ids from 0 to {vocab_size - 1}"
    if not isinstance(ids, tuple):
        yield Reason("xtc_special_tokens", need, shown(ids))
    elif wrong := [token for token in ids if not is_token(token, vocab_size)]:
        yield Reason("xtc_special_tokens", need, shown(wrong[0]))


def _wrong_bias(sampling: Sampling, vocab_size: int) -> Iterator[Reason]:
    """The first thing wrong with the logit bias."""
    pairs = sampling.logit_bias
    if not isinstance(pairs, tuple) or not all(isinstance(p, tuple) and len(p) == 2 for p in pairs):
        yield Reason("logit_bias", "token ids with the nats to add", shown(pairs), ("{42: -5.0}",))
        return
    ids = [token for token, _ in pairs]
    for token, nats in pairs:
        if not is_token(token, vocab_size):
            yield Reason("logit_bias", f"token ids from 0 to {vocab_size - 1}", shown(token))
        elif not (is_number(nats) and abs(nats) <= MOST_BIAS):
            need = f"nats from {-MOST_BIAS:g} (a ban) to {MOST_BIAS:g}"
            yield Reason("logit_bias", need, f"{shown(nats)} for token {token}")
        elif ids.count(token) > 1:
            yield Reason("logit_bias", "every token id once", f"token {token} {ids.count(token)} times")
        else:
            continue
        return


def _filters_of_greedy(sampling: Sampling) -> Iterator[Reason]:
    filters = [name for name in FILTERS if not _is_default(name, getattr(sampling, name))]
    if sampling.greedy and filters:
        need = f"greedy or {' and '.join(FILTERS[name] for name in filters)}, not both"
        got = f"temperature 0 with {stated_fields(sampling, tuple(filters))}"
        without = ", ".join(f"{name}={getattr(_DEFAULTS, name):g}" for name in filters)
        yield Reason("sampling", need, got, (without, "temperature above 0"))


def _without_partner(sampling: Sampling, wrong: set[str]) -> Iterator[Reason]:
    for name, partner in PARTNERS.items():
        value = getattr(sampling, name)
        alone = not _is_default(name, value) and _is_default(partner, getattr(sampling, partner))
        if alone and not wrong & {name, partner}:
            need = f"{partner} beside it, without which it does nothing"
            options = (f"{name}={getattr(_DEFAULTS, name)!r}", f"a {partner}")
            yield Reason(name, need, shown(value), options)
