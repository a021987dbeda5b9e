"""Against: the other arm of a load bench, from a few words such as `affine:8` or `decode-first,cap=4`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from labkit.core.arm import Arm
from labkit.core.errors import ExperimentInvalid
from labkit.schedule.policies import POLICIES

_TEXTS = ("model", "kv", "method", "policy", "blas")
_COUNTS = ("cap", "kv_budget_bytes", "prefill_chunk")
# What a method states that shares its rows in a way of its own.
_OWN_WAY = {"policy": None, "kv_budget_bytes": None}


def other_arm(arm: Arm, words: str, methods: Iterable[str], own_way: Iterable[str]) -> Arm:
    """The arm with what the words state in place of its own: a KV scheme, a method, a policy, `cap=4` ...

    methods: the names that stand for a method. own_way: those of methods that know no policy and no budget,
    so that the arm's are not theirs. Raises ExperimentInvalid for a word that says nothing, or the same arm.
    """
    fields = list(_fields(words, tuple(methods)))
    stated = dict(fields)
    twice = [f"{name}={value}" for name, value in fields if stated[name] != value]
    if twice:
        raise ExperimentInvalid("words that state a thing once are needed", got=f"{twice[0]} in {words}")
    method = stated.get("method", "")
    base = replace(arm, **_OWN_WAY) if method in tuple(own_way) else arm
    other = replace(base, **stated)
    if other == arm:
        need = "an arm that differs from the one it is measured against is needed"
        raise ExperimentInvalid(need, got=words or "nothing", options=_options())
    return other


def _fields(words: str, methods: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for word in filter(None, (part.strip() for part in words.split(","))):
        name, stated, value = word.partition("=")
        if not stated:
            yield _kind(word, methods), word
        elif name in _COUNTS and value.isascii() and value.isdigit():
            yield name, int(value)
        elif name in _TEXTS and value:
            yield name, value
        else:
            need = "words that state an arm are needed, as NAME=VALUE or a name alone"
            raise ExperimentInvalid(need, got=word, options=_options())


def _kind(word: str, methods: tuple[str, ...]) -> str:
    """What a word alone stands for; the planner judges a KV scheme."""
    if word in {policy.SPEC.name for policy in POLICIES}:
        return "policy"
    return "method" if word.partition(":")[0] in methods else "kv"


def _options() -> tuple[str, ...]:
    return (*(f"{name}=..." for name in (*_TEXTS, *_COUNTS)), "a KV scheme", "a method", "a policy")
