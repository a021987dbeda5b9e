"""Whether a new record still carries a promotion: kept, lost, or not to be told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from labkit.core.records import Record
from labkit.lab.deciding.holding import holding
from tests.unit.decided_lab import REFUTED, SUPPORTED, TRADE_OFF, record_of, unquiet, with_windows

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
        (["baseline"], {"baseline": {"tokens": 4}}, "holds"),
        ([], {"baseline": {"tokens": 4, "tokens_equal": False}}, "lost"),
        ([], {"baseline": {"unavailable": "its vocabulary differs"}}, "not settled"),
        ([], {}, "not settled"),
    ],
)
def test_parity_that_a_promotion_had(
    tmp_path: Path, equals: list[str], oracles: dict[str, Any], state: str
) -> None:
    before = with_parity(made(tmp_path), ["baseline"], {"baseline": {"tokens": 4}})
    assert holding(before, with_parity(made(tmp_path), equals, oracles)).state == state
    assert holding(made(tmp_path), with_parity(made(tmp_path), equals, oracles)).state == "holds"
