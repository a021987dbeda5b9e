"""What a record tells beside its verdicts: every field of another shape is told by its name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from labkit.lab.deciding.recorded import differences, misshapen
from labkit.lab.experiment import load_experiment
from tests.unit.decided_lab import EXPERIMENT
from tests.unit.sample_records import EQUAL, full_record, sample_record

FULL = full_record()


def _floor(**changes: Any) -> dict[str, Any]:
    return {"floor": {**FULL.floor, **changes}}


def _of_metric(**changes: Any) -> dict[str, Any]:
    return _floor(metrics={"decode_tps": {"estimate": 0.0, "low": 0.0, "high": 0.0, "floor": 0.0, **changes}})


def _look(**changes: Any) -> dict[str, Any]:
    return {"looks": ({**FULL.looks[0], **changes},)}


def _noise(**changes: Any) -> dict[str, Any]:
    return {"noise": {"decode_tps": {**FULL.noise["decode_tps"], **changes}}}


def _parity(**changes: Any) -> dict[str, Any]:
    return {"parity": {"candidate": {**FULL.parity["candidate"], **changes}}}


def _quality(**changes: Any) -> dict[str, Any]:
    return {"quality": {**FULL.quality, **changes}}


def _asked(**changes: Any) -> dict[str, Any]:
    return {"experiment": {**FULL.experiment, **changes}}


def _axis(**changes: Any) -> dict[str, Any]:
    return {"axes": (replace(FULL.axes[0], **changes), *FULL.axes[1:])}


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "kind": ({"kind": "trial"}, "record.kind: one of experiment, control is needed, got 'trial'"),
    "design": (_asked(design="warm"), "record.experiment.design: one of process-pair, fresh is needed"),
    "looks asked": (
        _asked(looks=0),
        "record.experiment.looks: a whole number of at least 1 is needed, got 0",
    ),
    "too many looks": (_asked(looks=3), "record.experiment.looks: at least 8 pairs before each are needed"),
    "no pairs": (_look(pairs=None), "record.looks[0].pairs: more pairs than before (0) are needed, got None"),
    "the same look twice": (
        {"looks": (FULL.looks[0], FULL.looks[0])},
        "record.looks[1].pairs: more pairs than before (8) are needed, got 8",
    ),
    "a level below 0": (_look(alpha=-1), "record.looks[0].alpha: a level from 0 to 0.05 is needed, got -1"),
    "a level in words": (_look(alpha="5%"), "record.looks[0].alpha: a level from 0 to 0.05 is needed"),
    "a verdict unknown": (
        _look(verdicts={"decode_tps": "fast"}),
        "record.looks[0].verdicts: metrics with bet",
    ),
    "verdicts in a list": (
        _look(verdicts=["better"]),
        "record.looks[0].verdicts: metrics with better, worse",
    ),
    "a floor's id": (_floor(run_id=None), "record.floor.run_id: a text is needed, got None"),
    "a floor's pairs": (
        _floor(pairs=True),
        "record.floor.pairs: a whole number of at least 1 is needed, got T",
    ),
    "a floor's metrics": (_floor(metrics=[]), "record.floor.metrics: a table is needed, got []"),
    "a floor unknown": (_floor(metrics={"x": {}}), "record.floor.metrics: one of prefill_tps"),
    "a floor as number": (_floor(metrics={"ttft_s": 0.1}), "record.floor.metrics.ttft_s: a table is needed"),
    "a floor of NaN": (
        _of_metric(floor=float("nan")),
        "record.floor.metrics.decode_tps.floor: a finite number",
    ),
    "a floor below 0": (
        _of_metric(floor=-0.1),
        "record.floor.metrics.decode_tps.floor: at least 0 is needed",
    ),
    "a floor's end": (
        _of_metric(high="x"),
        "record.floor.metrics.decode_tps.high: a finite number is needed",
    ),
    "floor": ({"floor": [1]}, "record.floor: a table is needed, got [1]"),
    "noise": ({"noise": "much"}, "record.noise: a table is needed, got 'much'"),
    "noise of a metric": ({"noise": {"decode_tps": 3}}, "record.noise.decode_tps: a table is needed, got 3"),
    "noise of no metric": ({"noise": {"hum": {}}}, "record.noise: one of prefill_tps"),
    "phrases": (_noise(phrases="much"), "record.noise.decode_tps.phrases: a list of texts is needed"),
    "phrases in numbers": (_noise(phrases=[1]), "record.noise.decode_tps.phrases: a list of texts is needed"),
    "a drift of NaN": (
        _noise(level_drift=float("nan")),
        "record.noise.decode_tps.level_drift: a finite number is needed, got nan",
    ),
    "planned in words": (
        _look(planned="8"),
        "record.looks[0].planned: a whole number of at least 1 is needed",
    ),
    "stopped in words": (_look(stopped="yes"), "record.looks[0].stopped: true for the last alone is needed"),
    "stopped twice": (
        {"looks": (FULL.looks[0], {**FULL.looks[0], "pairs": 16})},
        "record.looks[0].stopped: true for the last alone is needed, got True",
    ),
    "a floor's estimate": (
        _of_metric(low=0.1, high=0.2),
        "record.floor.metrics.decode_tps: an estimate between low and high is needed",
    ),
    "equals": (_parity(equals=5), "record.parity.candidate.equals: a list of names is needed, got 5"),
    "oracles": (_parity(oracles=[1]), "record.parity.candidate.oracles: a table is needed, got [1]"),
    "no comparison": (
        _parity(oracles={"baseline": {}}),
        "record.parity.candidate.oracles.baseline.tokens: a whole number is needed",
    ),
    "a number compared": (
        _parity(oracles={"baseline": 3}),
        "record.parity.candidate.oracles.baseline: a table is needed, got 3",
    ),
    "the baseline itself": (
        _parity(oracles={"baseline": {"itself": True}}),
        "record.parity.candidate.oracles.baseline.tokens: a whole number is needed",
    ),
    "not the oracle": (
        _parity(oracles={"mlx-lm kv=bf16": {"itself": 1}}),
        "record.parity.candidate.oracles.mlx-lm kv=bf16.itself: true is needed",
    ),
    "equal in numbers": (
        _parity(oracles={"baseline": {**EQUAL, "tokens_equal": 1}}),
        "record.parity.candidate.oracles.baseline.tokens_equal: true or false is needed, got 1",
    ),
    "a prompt": (_parity(prompt_tokens=0), "record.parity.candidate.prompt_tokens: a whole number of at"),
    "a KL in words": (_quality(kl_mean_nats="0.1"), "record.quality.kl_mean_nats: a finite number is needed"),
    "a KL in a list": (_quality(kl_mean_nats=[1]), "record.quality.kl_mean_nats: a finite number is needed"),
    "a KL below 0": (_quality(kl_mean_nats=-0.1), "record.quality.kl_mean_nats: at least 0 is needed"),
    "a largest below 0": (_quality(kl_max_nats=-0.1), "record.quality.kl_max_nats: at least 0 is needed"),
    "a largest below the mean": (
        _quality(kl_mean_nats=0.2, kl_max_nats=0.1),
        "record.quality.kl_max_nats: at least the mean 0.2 is needed, got 0.1",
    ),
    "a window below 0": (
        _quality(window_kl_nats=[0.1, -0.1]),
        "record.quality.window_kl_nats: at least 0 is needed, got -0.1",
    ),
    "windows in words": (
        _quality(window_kl_nats=["0.1"]),
        "record.quality.window_kl_nats: a list of finite numbers is needed",
    ),
    "notes in words": (_quality(notes="x"), "record.quality.notes: a list of texts is needed, got 'x'"),
    "parity": ({"parity": {"both": {}}}, "record.parity: one of baseline, candidate is needed, got 'both'"),
    "a prediction's role": (
        {"prediction": {"x": {}}},
        "record.prediction: one of baseline, candidate is need",
    ),
    "a prediction": (
        {"prediction": {"baseline": {"decode_tps": "fast"}}},
        "record.prediction.baseline.decode_tps: a finite number is needed, got 'fast'",
    ),
    "an axis' level": (_axis(alpha=0.2), "record.axes[0].alpha: a level above 0 and up to 0.05 is needed"),
    "an axis' floor": (_axis(floor=-1.0), "record.axes[0].floor: at least 0 is needed, got -1.0"),
    "an axis' level in words": (_axis(alpha="x"), "record.axes[0].alpha: a finite number is needed, got 'x'"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_misshapen_field_is_told_by_its_name(case: str) -> None:
    changes, words = BAD[case]
    found = list(misshapen(replace(FULL, **changes)))
    assert [text for text in found if text.startswith(words)], found


def test_a_record_that_tells_everything_or_nothing_is_well_shaped() -> None:
    for record in (FULL, sample_record()):
        assert list(misshapen(record)) == []


def test_a_noisy_visit_is_a_known_one_and_a_control_may_have_equal_arms() -> None:
    assert "noisy" in {visit.status for visit in FULL.visits}
    baseline, candidate = FULL.arms
    equal = replace(FULL, kind="control", arms=(baseline, replace(candidate, arm=baseline.arm)))
    assert list(misshapen(equal)) == []


def test_a_file_that_asks_for_another_design_or_other_looks_is_another_experiment(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(EXPERIMENT.replace("pairs=1)", "pairs=16, looks=2, design='fresh')"))
    found = list(differences(load_experiment(path).experiment, sample_record()))
    assert "design: 'process-pair' was measured, and the file states 'fresh'" in found
    assert "looks: 1 was measured, and the file states 2" in found
