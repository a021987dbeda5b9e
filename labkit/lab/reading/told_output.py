"""Told output: whether what a record tells of an arm's output has its shape: parity and quality.

Knows fields and their types; not whether they follow from one another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from labkit.core.records import Record
from labkit.lab.measuring.parity import BASELINE
from labkit.plan.values import is_count, is_number, is_whole, shown

# A KL is no less than 0; in float32 its sum over a vocabulary is short of that by no more, in nats.
_LEAST_NATS = -1e-6
_WINDOWS = ("window_kl_nats", "window_log_ppl_ratio", "window_top1")

# What a comparison holds: part -> what it needs to be, and whether a value is.
_COMPARED: Mapping[str, tuple[str, Callable[[object], bool]]] = {
    "tokens": ("a whole number", is_whole),
    "tokens_equal": ("true or false", lambda value: isinstance(value, bool)),
    "logprobs_equal": ("true, false or None", lambda value: value is None or isinstance(value, bool)),
    "first_token": ("a whole number or None", lambda value: value is None or is_whole(value)),
    "first_logprobs": ("a whole number or None", lambda value: value is None or is_whole(value)),
}


def output_problems(record: Record) -> Iterator[str]:
    """Every field of these that cannot be read, as `field: what is needed, got what`."""
    for role, found in record.parity.items():
        if isinstance(found, dict):
            yield from (f"parity.{role}.{text}" for text in _parity(found))
    yield from (f"quality.{text}" for text in _quality(record.quality))


def _parity(found: Mapping[str, Any]) -> Iterator[str]:
    equals, oracles = found.get("equals"), found.get("oracles")
    if not isinstance(equals, list) or not all(isinstance(name, str) for name in equals):
        yield f"equals: a list of names is needed, got {shown(equals)}"
    if not is_count(found.get("prompt_tokens")):
        got = shown(found.get("prompt_tokens"))
        yield f"prompt_tokens: a whole number of at least 1 is needed, got {got}"
    if not isinstance(oracles, dict):
        yield f"oracles: a table is needed, got {shown(oracles)}"
        return
    for name, compared in oracles.items():
        problem = _compared(name, compared)
        if problem:
            yield f"oracles.{name}{problem}"


def _compared(name: str, compared: object) -> str:
    """What is wrong with one comparison; see `labkit.lab.measuring.parity` for its keys."""
    if not isinstance(compared, dict):
        return f": a table is needed, got {shown(compared)}"
    if set(compared) == {"itself"} and name != BASELINE:
        return "" if compared["itself"] is True else f".itself: true is needed, got {shown(compared)}"
    if set(compared) == {"unavailable"}:
        why = compared["unavailable"]
        return "" if isinstance(why, str) else f".unavailable: a text is needed, got {shown(why)}"
    bad = (part for part, (_, fits) in _COMPARED.items() if part not in compared or not fits(compared[part]))
    part = next(bad, "")
    return part and f".{part}: {_COMPARED[part][0]} is needed, got {shown(compared.get(part, 'nothing'))}"


def _quality(quality: Mapping[str, Any]) -> Iterator[str]:
    for name, value in quality.items():
        if name in _WINDOWS:
            if not isinstance(value, list) or not all(map(is_number, value)):
                yield f"{name}: a list of finite numbers is needed, got {shown(value)}"
        elif name == "notes":
            if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
                yield f"{name}: a list of texts is needed, got {shown(value)}"
        elif value is not None and not is_number(value):
            yield f"{name}: a finite number is needed, got {shown(value)}"
    yield from _distances(quality)


def _distances(quality: Mapping[str, Any]) -> Iterator[str]:
    """A distance below 0, or a largest one below the mean."""
    mean, largest = quality.get("kl_mean_nats"), quality.get("kl_max_nats")
    for name, value in (("kl_mean_nats", mean), ("kl_max_nats", largest)):
        if is_number(value) and float(value or 0) < _LEAST_NATS:
            yield f"{name}: at least 0 is needed, got {shown(value)}"
    windows = quality.get("window_kl_nats")
    if isinstance(windows, list) and any(is_number(w) and w < _LEAST_NATS for w in windows):
        yield f"window_kl_nats: at least 0 is needed, got {shown(min(filter(is_number, windows)))}"
    if is_number(mean) and is_number(largest) and float(largest or 0) < float(mean or 0):
        yield f"kl_max_nats: at least the mean {shown(mean)} is needed, got {shown(largest)}"
