"""The decision procedure over every situation there is: the golden table, and what no row of it may say."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from labkit.lab.deciding.procedure import DEFAULT_ON, DELETE, KEPT_OFF, RULES, TRADE_OFF, Situation, rule_on

GOLDEN = Path(__file__).parent / "golden" / "procedure.txt"
WORDS: dict[str, tuple[str, ...]] = {part: get_args(hint) for part, hint in get_type_hints(Situation).items()}
# What decides first stands first, so that the rows are few.
ORDER = ("record", "machine", "visits", "gain", "loss", "unnamed", "parity", "kl", "suite")


def situation(words: tuple[str, ...]) -> Situation:
    """By the words of its parts, in the order of ORDER."""
    parts: dict[str, Any] = dict(zip(ORDER, words, strict=True))
    return Situation(**parts)


EVERY = tuple((s, rule_on(s)) for s in map(situation, itertools.product(*(WORDS[p] for p in ORDER))))
RULED = {s: (ruling.outcome, ruling.rule.name) for s, ruling in EVERY}


def below(first: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """What every situation that begins with some words comes to."""
    rest = itertools.product(*(WORDS[part] for part in ORDER[len(first) :]))
    return tuple(RULED[situation((*first, *words))] for words in rest)


def table(first: tuple[str, ...] = (), told: tuple[str, ...] = ()) -> Iterator[str]:
    """The rows of all situations that begin with some words; words that make no difference share a row."""
    found = below(first)
    if len(set(found)) == 1:
        yield f"{', '.join(told)}: {found[0][0]}, by {found[0][1]!r}"
        return
    part = ORDER[len(first)]
    alike: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for word in WORDS[part]:
        alike.setdefault(below((*first, word)), []).append(word)
    for words in alike.values():
        said = () if len(words) == len(WORDS[part]) else (f"{part} {' or '.join(words)}",)
        yield from table((*first, words[0]), (*told, *said))


def test_the_golden_table_covers_every_situation() -> None:
    """`table()` writes it; every one of the situations is in exactly one of its rows."""
    assert set(ORDER) == set(WORDS) and len(RULED) == 69_120
    assert list(table()) == GOLDEN.read_text(encoding="utf-8").splitlines()


def test_every_rule_fires_somewhere_and_the_last_one_on_anything() -> None:
    assert {name for _, name in RULED.values()} == {rule.name for rule in RULES}
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert all(RULES[-1].when(s) for s in RULED)


def test_the_trail_ends_with_the_rule_that_fired() -> None:
    for _, ruling in EVERY:
        assert [looked.rule for looked in ruling.trail] == [r.name for r in RULES[: len(ruling.trail)]]
        assert [looked.fired for looked in ruling.trail] == [False] * (len(ruling.trail) - 1) + [True]
        assert ruling.trail[-1].rule == ruling.rule.name


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_a_rule_looks_at_nothing_but_what_it_says_it_sees(rule: Any) -> None:
    unseen = [part for part in WORDS if part not in rule.sees]
    for s in RULED:
        first: dict[str, Any] = {part: WORDS[part][0] for part in unseen}
        assert rule.when(s) == rule.when(replace(s, **first))


def test_default_on_is_sound_quiet_better_and_loses_nothing() -> None:
    found = [s for s, (outcome, _) in RULED.items() if outcome == DEFAULT_ON]
    assert found
    for s in found:
        assert (s.record, s.machine, s.visits) == ("whole", "quiet", "ended")
        assert (s.gain, s.loss, s.unnamed) == ("came", "none", "kept")
        assert s.suite != "lost" and s.kl != "warn" and s.parity != "unmeasured"


def test_nothing_lossy_is_default_on_without_the_suite() -> None:
    for s, (outcome, _) in RULED.items():
        if outcome == DEFAULT_ON and s.suite != "confirmed":
            assert s.parity == "baseline" and s.kl in ("zero", "unscored")


def test_what_is_exact_better_and_loses_nothing_is_default_on() -> None:
    """The suite is for what is not exact; where it was not run nothing is missing."""
    best = Situation("whole", "quiet", "ended", "came", "none", "kept", "baseline", "zero", "not run")
    assert RULED[best] == (DEFAULT_ON, "exact and better")


def test_a_record_that_carries_nothing_or_a_frail_one_decides_nothing() -> None:
    for s, (outcome, _) in RULED.items():
        if s.record != "whole" or s.machine == "frail" or s.visits == "crashed":
            assert outcome == KEPT_OFF


def test_delete_only_where_the_gain_did_not_come_or_was_not_claimed() -> None:
    for s, (outcome, _) in RULED.items():
        if outcome == DELETE:
            assert s.gain == "absent" or (s.gain == "unclaimed" and "lost" in (s.loss, s.suite))
        if outcome == TRADE_OFF:
            assert s.gain == "came"


BETTER: dict[str, tuple[str, ...]] = {
    "machine": ("frail", "sturdy", "quiet"),
    "visits": ("crashed", "ended"),
    "suite": ("not run", "unresolved", "confirmed"),
    "unnamed": ("lost", "kept"),
    "record": ("partial", "whole"),
}


@pytest.mark.parametrize("part", BETTER)
def test_better_evidence_never_takes_default_on_away(part: str) -> None:
    for s, (outcome, _) in RULED.items():
        word = getattr(s, part)
        if outcome == DEFAULT_ON and word in BETTER[part]:
            for better in BETTER[part][BETTER[part].index(word) :]:
                change: dict[str, Any] = {part: better}
                assert RULED[replace(s, **change)][0] == DEFAULT_ON
