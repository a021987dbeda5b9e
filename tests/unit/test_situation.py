"""What a record says, as the words that the decision procedure reads."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from labkit.core.records import Record
from labkit.lab.deciding.procedure import Situation, rule_on
from labkit.lab.deciding.situation import SuiteEvidence, look
from labkit.lab.measuring.parity import is_equal
from tests.unit.decided_lab import (
    REFUTED,
    SUPPORTED,
    TRADE_OFF,
    record_of,
    rejudged,
    unquiet,
    with_axis,
    with_windows,
)
from tests.unit.sample_records import APART, EQUAL

EXACT = {"candidate": {"equals": ["baseline"], "oracles": {"baseline": EQUAL}, "prompt_tokens": 64}}
PASSES = {"kl_max_nats": 4e-2}
OTHER = {"unavailable": "another prompt"}


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    return record_of(tmp_path_factory.mktemp("lab"))


def words(record: Record, **found: Any) -> Situation:
    return look(record, **found).situation


def with_parity(record: Record, oracles: dict[str, Any]) -> Record:
    equals = [name for name, compared in oracles.items() if is_equal(compared)]
    return replace(record, parity={"candidate": {"equals": equals, "oracles": oracles, "prompt_tokens": 64}})


def scored(record: Record, **quality: Any) -> Record:
    return replace(record, quality={**record.quality, **quality})


def test_a_supported_record_of_a_null_model(record: Record) -> None:
    """It has no parity, and its sample quality has no largest position: nothing passes without its tail."""
    assert words(record) == Situation(
        "whole", "quiet", "ended", "came", "none", "kept", "unmeasured", "apart", "not run"
    )


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda r: replace(r, kind="control"), "control"),
        (lambda r: replace(r, state="partial"), "partial"),
        (lambda r: replace(r, outcome="failed"), "failed"),
        (lambda r: replace(r, outcome="trade-off"), "contradicted"),
        (lambda r: with_axis(r, "decode_tps", estimate=1.5), "contradicted"),
        (lambda r: replace(r, axes=(replace(r.axes[0], metric="none"),)), "contradicted"),
        (lambda r: replace(r, visits=()), "contradicted"),
    ],
)
def test_what_a_record_is(record: Record, change: Callable[[Record], Record], word: str) -> None:
    found = look(change(record))
    assert found.situation.record == word and found.details["record"]
    assert rule_on(found.situation).outcome == "kept off (kill switch)"


def test_what_a_record_cannot_know_of_itself(record: Record) -> None:
    assert words(record, outdated="other code").record == "outdated"
    assert words(record, outdated="other code", contradicted="a newer one").record == "contradicted"
    assert words(replace(record, state="partial"), outdated="other code").record == "partial"


@pytest.mark.parametrize(
    ("shape", "gain", "loss"),
    [(SUPPORTED, "came", "none"), (TRADE_OFF, "came", "lost"), (REFUTED, "absent", "none")],
)
def test_gain_and_loss(tmp_path: Path, shape: Any, gain: str, loss: str) -> None:
    found = words(record_of(tmp_path, shape))
    assert (found.gain, found.loss) == (gain, loss)


def test_an_unresolved_axis_and_a_hypothesis_without_improvements(record: Record) -> None:
    assert words(with_windows(record, [1e-4, 2e-3] * 8)).loss == "unresolved"
    held = replace(record, experiment={**record.experiment, "improves": {}})
    assert words(rejudged(held)).gain == "unclaimed"


def test_a_quiet_a_sturdy_and_a_frail_one(tmp_path: Path, record: Record) -> None:
    """Of eight pairs none can be left out, of ten one can."""
    assert words(record).machine == "quiet"
    assert words(unquiet(record)).machine == "sturdy"
    assert words(unquiet(record_of(tmp_path, pairs=8))).machine == "frail"


def test_a_loss_on_an_axis_that_was_not_named_is_seen(tmp_path: Path, record: Record) -> None:
    """`prefill_tps` is in every visit and in no claim."""
    slow = replace(SUPPORTED, values={**SUPPORTED.values, "prefill_tps": (900.0, 600.0)})
    found = look(record_of(tmp_path, slow))
    assert found.situation.unnamed == "lost" and "prefill worse" in found.details["unnamed"]
    assert words(record).unnamed == "kept"


def test_a_larger_artifact_that_was_not_named_is_seen(record: Record) -> None:
    baseline, candidate = record.arms
    larger = {**candidate.artifact, "artifact_bytes": 2 * candidate.artifact["artifact_bytes"]}
    grown = replace(record, arms=(baseline, replace(candidate, artifact=larger)))
    assert words(grown).unnamed == "lost"


@pytest.mark.parametrize(
    ("oracles", "word"),
    [
        ({"mlx-lm kv=affine:8": {"itself": True}, "baseline": EQUAL}, "baseline"),
        ({"mlx-lm kv=affine:8": {"itself": True}, "baseline": OTHER}, "oracle"),
        ({"baseline": OTHER}, "unmeasured"),
        ({"baseline": APART}, "none"),
    ],
)
def test_parity(record: Record, oracles: dict[str, Any], word: str) -> None:
    found = look(with_parity(record, oracles))
    assert found.situation.parity == word
    assert all(name in found.details["parity"] for name in oracles)


@pytest.mark.parametrize(
    ("mean", "largest", "word"),
    [
        (0.0, 0.0, "zero"),
        (0.0, 1e-9, "pass"),
        (5e-3, 5e-2, "pass"),
        (5.1e-3, 4e-2, "warn"),
        (1e-4, 5.1e-2, "warn"),
        (2e-2, None, "warn"),
        (1e-4, None, "apart"),
        (0.0, None, "unscored"),
        (None, None, "unscored"),
    ],
)
def test_the_screen(record: Record, mean: float | None, largest: float | None, word: str) -> None:
    """Both bounds of the gate are its own side: at them it passes."""
    quality = {"kl_mean_nats": mean, "kl_max_nats": largest}
    kept = {name: value for name, value in quality.items() if value is not None}
    assert words(replace(record, quality=kept), contradicted="").kl == word


@pytest.mark.parametrize(
    ("tasks", "word"),
    [
        ({}, "not run"),
        ({"gsm8k": "equivalent", "mmlu": "better"}, "confirmed"),
        ({"gsm8k": "equivalent", "mmlu": "unresolved"}, "unresolved"),
        ({"gsm8k": "worse", "mmlu": "unresolved"}, "lost"),
    ],
)
def test_the_suite(record: Record, tasks: dict[str, Any], word: str) -> None:
    assert words(record, suite=SuiteEvidence("frozen-1", tasks)).suite == word


def test_from_a_record_to_every_outcome(record: Record) -> None:
    exact = replace(scored(with_windows(record, [0.0] * 16), kl_max_nats=0.0), parity=EXACT)
    close = with_parity(scored(record, **PASSES), {"mlx-lm kv=affine:8": {"itself": True}})
    confirmed = SuiteEvidence("frozen-1", {"mmlu": "equivalent"})
    lost = SuiteEvidence("frozen-1", {"mmlu": "worse"})
    assert rule_on(words(exact)).outcome == "default-on"
    assert rule_on(words(close)).rule.name == "lossy and not confirmed"
    assert rule_on(words(close, suite=confirmed)).outcome == "default-on"
    assert rule_on(words(close, suite=lost)).outcome == "trade-off (Lab item)"
    assert rule_on(words(exact, suite=lost)).rule.name == "evidence against itself"


def test_an_axis_that_was_not_named_is_judged_at_the_look_and_with_the_floor_of_the_record(
    tmp_path: Path,
) -> None:
    """`prefill_tps` loses a twentieth, which is less than two equal arms differed by."""
    slow = replace(SUPPORTED, values={**SUPPORTED.values, "prefill_tps": (900.0, 850.0)})
    record = record_of(tmp_path, slow, noise=0.001)
    spread = {"estimate": 0.15, "low": 0.1, "high": 0.2, "floor": math.expm1(0.2)}
    metrics = {"prefill_tps": spread}
    floored = replace(record, floor={"run_id": "x", "started_at": "", "pairs": 8, "metrics": metrics})
    assert (words(record).unnamed, words(floored).unnamed) == ("lost", "kept")


@pytest.mark.parametrize("mean", [2e-4, 1e-12])
def test_a_distance_that_is_not_zero_is_not_exact_without_its_largest(record: Record, mean: float) -> None:
    found = look(replace(with_windows(record, [mean] * 16), parity=EXACT))
    assert (found.situation.record, found.situation.parity, found.situation.kl) == (
        "whole",
        "baseline",
        "apart",
    )
    assert rule_on(found.situation).rule.name == "not screened"


@pytest.mark.parametrize(
    "change",
    [
        {"parity": {"candidate": {**EXACT["candidate"], "equals": 5}}},
        {"parity": {"candidate": {**EXACT["candidate"], "oracles": [1]}}},
        {"parity": {"candidate": {**EXACT["candidate"], "oracles": {"baseline": {}}}}},
        {"parity": {"candidate": {**EXACT["candidate"], "oracles": {"baseline": 3}}}},
        {"quality": {"kl_mean_nats": "0.1"}},
        {"quality": {"kl_mean_nats": [1]}},
    ],
)
def test_an_edit_of_another_shape_is_told_and_not_raised(record: Record, change: dict[str, Any]) -> None:
    found = look(replace(record, **change))
    (field,) = change
    assert found.situation.record == "contradicted"
    assert found.details["record"].startswith(f"record.{field}.")
