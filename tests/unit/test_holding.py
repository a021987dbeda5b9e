"""Whether a new record still carries a promotion: kept, lost, or not to be told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from labkit.core.records import AxisResult, Record
from labkit.lab.deciding.holding import holding
from tests.unit.decided_lab import (
    REFUTED,
    SUPPORTED,
    TRADE_OFF,
    record_of,
    rejudged,
    unquiet,
    with_axis,
    with_visits_failed,
    with_windows,
)
from tests.unit.sample_records import APART, EQUAL

DEEPER = replace(TRADE_OFF, values={**TRADE_OFF.values, "decode_tps": (100.0, 40.0)})
FASTER = replace(
    SUPPORTED,
    values={**SUPPORTED.values, "decode_tps": (100.0, 150.0)},
    verdicts={**SUPPORTED.verdicts, "decode_tps": "better"},
)


def made(folder: Path, shape: Any = SUPPORTED, run_id: str = "20261105T101500Z-null-ab-0a1b2c") -> Record:
    return record_of(folder, shape, run_id)


@pytest.mark.parametrize(
    ("before", "now", "state", "word"),
    [
        (SUPPORTED, SUPPORTED, "holds", ""),
        (SUPPORTED, FASTER, "holds", ""),
        (FASTER, SUPPORTED, "holds", ""),
        (SUPPORTED, REFUTED, "lost", "KV cache equivalent"),
        (SUPPORTED, TRADE_OFF, "lost", "decode worse"),
        (TRADE_OFF, TRADE_OFF, "holds", ""),
        (TRADE_OFF, SUPPORTED, "holds", ""),
        (TRADE_OFF, DEEPER, "lost", "decode worse: 0.4"),
    ],
)
def test_axes(tmp_path: Path, before: Any, now: Any, state: str, word: str) -> None:
    found = holding(made(tmp_path, before), made(tmp_path, now, "20261205T101500Z-null-ab-0a1b2c"))
    assert found.state == state and word in "; ".join(found.reasons)
    assert bool(found.reasons) == (state != "holds")


def failed(record: Record) -> Record:
    return replace(record, outcome="failed")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda r: with_windows(r, [1e-4, 2e-3] * 8), "KL to the reference unresolved"),
        (failed, "no pair"),
        (lambda r: replace(r, state="partial"), "partial"),
        (lambda r: replace(r, kind="control"), "control"),
        (lambda r: replace(r, outcome="refuted"), "the outcome is refuted in the record"),
    ],
)
def test_what_settles_nothing(tmp_path: Path, change: Callable[[Record], Record], word: str) -> None:
    found = holding(made(tmp_path), change(made(tmp_path)))
    assert found.state == "not settled" and word in "; ".join(found.reasons)


def test_a_noisy_machine_settles_nothing_unless_the_verdicts_are_sturdy(tmp_path: Path) -> None:
    frail = unquiet(record_of(tmp_path, REFUTED, pairs=8))
    assert holding(made(tmp_path), frail).state == "not settled"
    assert holding(made(tmp_path), unquiet(made(tmp_path))).state == "holds"
    assert holding(made(tmp_path), unquiet(made(tmp_path, REFUTED))).state == "lost"


def with_parity(record: Record, equals: list[str], oracles: dict[str, Any]) -> Record:
    return replace(record, parity={"candidate": {"equals": equals, "oracles": oracles, "prompt_tokens": 64}})


@pytest.mark.parametrize(
    ("equals", "oracles", "state"),
    [
        (["baseline"], {"baseline": EQUAL}, "holds"),
        ([], {"baseline": APART}, "lost"),
        ([], {"baseline": {"unavailable": "its vocabulary differs"}}, "not settled"),
        ([], {}, "not settled"),
    ],
)
def test_parity_that_a_promotion_had(
    tmp_path: Path, equals: list[str], oracles: dict[str, Any], state: str
) -> None:
    before = with_parity(made(tmp_path), ["baseline"], {"baseline": EQUAL})
    assert holding(before, with_parity(made(tmp_path), equals, oracles)).state == state
    assert holding(made(tmp_path), with_parity(made(tmp_path), equals, oracles)).state == "holds"


def held(verdict: str, low: float, high: float, **changes: Any) -> AxisResult:
    """Decode held by a tenth, with an interval."""
    numbers: dict[str, Any] = {"p_value": 0.01, "p_holm": 0.01, "verdict": verdict, **changes}
    middle, n = (low + high) / 2, 10
    kind: dict[str, Any] = {"metric": "decode_tps", "scale": "ratio", "margin": 0.1, **numbers}
    return AxisResult(goal="holds", estimate=middle, low=low, high=high, n=n, unit="pair", **kind)


# exp(log(0.8) - log1p(0.1)) is 0.727: between it and 0.8 an interval is beyond the other, not the margin.
KL: dict[str, Any] = {"metric": "kl_mean_nats", "scale": "absolute"}
TOP1: dict[str, Any] = {"metric": "top1_agreement", "scale": "absolute"}


@pytest.mark.parametrize(
    ("was", "now", "lost"),
    [
        (held("worse", 0.8, 0.85), held("worse", 0.70, 0.72), True),
        (held("worse", 0.8, 0.85), held("worse", 0.70, 0.74), False),
        (held("worse", 0.2, 0.4, **KL), held("worse", 0.51, 0.6, **KL), True),
        (held("worse", 0.2, 0.4, **KL), held("worse", 0.45, 0.6, **KL), False),
        (held("worse", -0.4, -0.2, **TOP1), held("worse", -0.6, -0.51, **TOP1), True),
        (held("worse", -0.4, -0.2, **TOP1), held("worse", -0.6, -0.45, **TOP1), False),
    ],
)
def test_an_accepted_loss_is_deeper_only_beyond_its_margin(
    tmp_path: Path, was: AxisResult, now: AxisResult, lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("labkit.lab.deciding.holding.contradictions", lambda _: iter(()))
    before, after = (replace(made(tmp_path), axes=(axis,)) for axis in (was, now))
    assert holding(before, after).state == ("lost" if lost else "holds")


def test_an_accepted_loss_needs_no_verdict_and_every_other_axis_needs_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("labkit.lab.deciding.holding.contradictions", lambda _: iter(()))
    accepted, kept = made(tmp_path, TRADE_OFF), made(tmp_path)
    now = with_axis(made(tmp_path), "decode_tps", verdict="unresolved")
    assert holding(accepted, now).state == "holds"
    assert "decode unresolved" in "; ".join(holding(kept, now).reasons)


def test_an_axis_that_is_no_longer_measured_is_told_beside_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("labkit.lab.deciding.holding.contradictions", lambda _: iter(()))
    now = made(tmp_path)
    fewer = replace(now, axes=tuple(axis for axis in now.axes if axis.metric != "kv_bytes"))
    fewer = with_axis(fewer, "decode_tps", verdict="unresolved")
    found = holding(made(tmp_path), fewer)
    assert found.state == "not settled" and found.reasons[0] == "KV cache was not measured"
    assert found.reasons[1].startswith("decode unresolved")


def test_a_run_that_lost_many_visits_settles_nothing(tmp_path: Path) -> None:
    found = holding(made(tmp_path), rejudged(with_visits_failed(made(tmp_path), "candidate", 3)))
    assert found.state == "not settled" and "3 of 13 visits of the candidate failed" in found.reasons[0]
