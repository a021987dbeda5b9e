"""Planning a run from a pilot, on null models whose noise is known, and what each part of a run takes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from labkit.bench.floor import Spread
from labkit.bench.pairs import ROLES
from labkit.bench.power import plan_pairs
from labkit.core.events import silent
from labkit.core.hypothesis import Hypothesis
from labkit.core.records import VisitResult
from labkit.evals.text import Text
from labkit.lab.experiment import Experiment, ScoreText
from labkit.lab.measuring import pilot as pilot_module
from labkit.lab.measuring import plan_run as plan_run_module
from labkit.lab.measuring.floor import Floor
from labkit.lab.measuring.measured import Measured
from labkit.lab.measuring.pilot import Costs, Pilot
from labkit.lab.measuring.plan_run import PlannedRun, plan, plan_run
from tests.unit.null_experiment import null_experiment

COSTS = Costs(open_s=30.0, warmup_s=6.0, pair_s=12.0, score_s=60.0)
FILE = """
from labkit import Arm, Experiment, Hypothesis, Workload
noise = "null:sd=0.02,noise=independent,kv_bytes_per_token="
experiment = Experiment("mine", Hypothesis("x", improves={"kv_bytes": 0.4}, holds={"decode_tps": 0.03}),
                        Arm(noise + "100"), Arm(noise + "40,slowdown=1.15"), Workload(64, 16),
                        expires="2099-01-01", score=None, pairs=32, looks=2)
"""


def measured(ratios: list[float], metric: str = "decode_tps", step: float = 0.0) -> Measured:
    """A pilot whose pairs have these ratios; with `step`, these differences in a unit instead."""
    found = Measured()
    for pair, ratio in enumerate(ratios):
        values = (100.0, 100.0 + step * ratio) if step else (100.0, 100.0 * ratio)
        for role, value in zip(ROLES, values, strict=True):
            found.visits.append(VisitResult(0, pair, role, "ok", 0.0, {metric: value}, (1.0,), (2.0,)))
    return found


def holding(metric: str = "decode_tps", margin: float = 0.03, **changes: Any) -> Experiment:
    return null_experiment(hypothesis=Hypothesis("x", holds={metric: margin}), **changes)


def test_a_pilot_says_how_many_pairs_each_axis_needs(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    planned = plan_run(path, root=tmp_path, pilot_pairs=4, lease=tmp_path / "lease.lock")
    by_metric = {axis.metric: axis for axis in planned.axes}
    assert by_metric["kv_bytes"].pairs == 16, "8 pairs before each of two looks"
    # 15% slower at 2% noise a visit, margin 3%: far beyond, so the least number of pairs or little more.
    assert by_metric["decode_tps"].pairs in range(16, 25)
    assert -0.2 < by_metric["decode_tps"].effect < -0.08
    assert 8 <= (planned.expected or 0) < 16, "so clear an effect mostly stops the run at its first look"
    assert not (tmp_path / "results").exists()
    assert f"labkit run {path} --pairs {planned.pairs}: " in planned.sentence()
    assert "with 2 looks about" in planned.sentence()
    assert planned.costs.open_s > 0 and planned.costs.pair_s > 0


def test_the_noisier_axis_needs_more_pairs() -> None:
    quiet = plan(holding(), measured([0.999, 1.001, 1.0, 1.0]), COSTS)
    noisy = plan(holding(), measured([0.97, 1.03, 1.01, 0.99]), COSTS)
    assert quiet.axes[0].pairs == 8
    assert (noisy.axes[0].pairs or 0) > 20


def test_minutes_are_those_of_the_whole_run() -> None:
    planned = plan(holding(), measured([0.999, 1.001, 1.0, 1.0]), COSTS)
    assert planned.axes[0].minutes == pytest.approx(8 * 12 / 60)
    assert planned.minutes(8) == pytest.approx((30 + 6 + 8 * 12 + 60) / 60)
    assert planned.sentence() == "labkit run FILE --pairs 8: about 3.2 minutes in all"
    assert planned.breakdown() == (
        "start-up, ceilings and parity 0.50 minutes, warm-up 0.10 minutes, 8 pairs at 12 s 1.6 minutes, "
        "scoring 1.0 minutes"
    )


def test_a_control_that_comes_first_is_counted() -> None:
    costs = COSTS.with_control(8)
    assert costs.control_s == 30 + 6 + 8 * 12
    planned = plan(holding(), measured([0.999, 1.001, 1.0, 1.0]), costs)
    assert planned.minutes(8) == pytest.approx((132 + 192) / 60)
    assert planned.breakdown().startswith("an A/A control 2.2 minutes, start-up")


def test_an_effect_on_the_margin_is_said_to_need_no_number() -> None:
    experiment = null_experiment(hypothesis=Hypothesis("x", improves={"decode_tps": 0.03}), pairs=8)
    planned = plan(experiment, measured([1.03] * 4), COSTS)
    assert (planned.axes[0].pairs, planned.pairs, planned.expected) == (None, None, None)
    assert "No number of pairs" in planned.sentence()
    assert planned.sentence().endswith("The 8 pairs that the file states take about 3.2 minutes.")


def test_an_axis_that_nothing_settles_lets_no_look_stop_the_run() -> None:
    claim = Hypothesis("x", improves={"decode_tps": 0.03}, holds={"prefill_tps": 0.03})
    both = measured([1.03] * 4)
    for visit in both.visits:
        visit.metrics["prefill_tps"] = 50.0
    planned = plan(null_experiment(hypothesis=claim, pairs=32, looks=2), both, COSTS)
    assert [axis.pairs for axis in planned.axes] == [None, 16]
    assert planned.expected == 16.0 and "stay unresolved" in planned.sentence()


@pytest.mark.parametrize(("others", "family"), [((), 1), (("artifact_bytes",), 1), (("ppl_ratio",), 2)])
def test_the_family_is_what_is_tested(others: Sequence[str], family: int) -> None:
    """A score is one more axis for Holm, an artifact is exact."""
    claim = Hypothesis("x", holds={"decode_tps": 0.03, **dict.fromkeys(others, 0.03)})
    experiment = null_experiment(hypothesis=claim, pairs=96, looks=2)
    planned = plan(experiment, measured([0.97, 1.03, 1.01, 0.99]), COSTS)
    (axis,) = planned.axes
    alone = plan_pairs(axis.sd, 0.03, 0.0, "equivalent", axes=family, looks=2)
    assert (axis.metric, planned.pairs) == ("decode_tps", alone.pairs)
    assert planned.expected == pytest.approx(alone.expected)


def equal_arms(low: float, high: float, metric: str = "decode_tps") -> Floor:
    return Floor("control", "2026-01-01T00:00:00+00:00", 8, {metric: Spread((low + high) / 2, low, high)})


BIASED = equal_arms(0.06, 0.10)


def test_a_difference_is_planned_beyond_the_bias_of_equal_arms() -> None:
    pilot = [1.12, 1.20, 1.16, 1.14]
    axis = plan(holding(looks=2), measured(pilot), COSTS, floor=BIASED).axes[0]
    assert axis.bias == pytest.approx(math.expm1(0.10))
    alone = plan_pairs(axis.sd, axis.bias, axis.effect, "better", looks=2)
    assert (axis.pairs, axis.expected) == (alone.pairs, alone.expected)
    without = plan(holding(looks=2), measured(pilot), COSTS).axes[0]
    assert axis.pairs and without.pairs and axis.pairs > without.pairs


def test_an_effect_below_the_bias_is_said_to_need_no_number() -> None:
    axis = plan(holding(), measured([1.08] * 4), COSTS, floor=BIASED).axes[0]
    assert axis.pairs is None
    assert "two equal arms differed by 10.52% beyond chance" in axis.reason and "+8.00%" in axis.reason


def test_nothing_is_planned_to_be_equivalent_below_the_bias() -> None:
    axis = plan(holding(), measured([1.0] * 4), COSTS, floor=BIASED).axes[0]
    assert (axis.pairs, axis.claim) == (None, "equivalent")
    assert axis.reason == "never: two equal arms differed by 10.52% beyond chance, above the margin of 3.00%"
    seconds = holding("compile_s", 0.5, design="fresh")
    biased = equal_arms(0.6, 0.8, "compile_s")
    axis = plan(seconds, measured([0.1, -0.1, 0.05, 0.0], "compile_s", 1.0), COSTS, floor=biased).axes[0]
    assert axis.reason == "never: two equal arms differed by 0.8 s beyond chance, above the margin of 0.5 s"


def test_equivalent_takes_the_pairs_that_bring_the_floor_within_the_margin() -> None:
    """Half an interval of 0.06 over 8 pairs is below ln 1.03 from 33 pairs on; a difference takes no more."""
    chance = equal_arms(-0.06, 0.06)
    axis = plan(holding(), measured([0.999, 1.001, 1.0, 1.0]), COSTS, floor=chance).axes[0]
    assert (axis.pairs, axis.least, axis.bias) == (33, 33, 0.0)
    assert axis.reason == "with fewer than 33 pairs the A/A floor is above the margin"
    better = plan(holding(), measured([1.10, 1.11, 1.10, 1.10]), COSTS, floor=chance).axes[0]
    assert better.pairs == 8
    vast = plan(holding(), measured([1.0] * 4), COSTS, floor=equal_arms(-0.6, 0.6)).axes[0]
    assert vast.pairs is None and vast.reason.startswith("more than 1000 pairs: the A/A floor")
    looks = plan(holding(looks=4, pairs=40), measured([1.0] * 4), COSTS, floor=chance)
    assert looks.pairs and looks.expected and looks.expected > 24, "no look below 33 pairs can stop the run"


class QuickPilot:
    """A pilot without workers, in which equal arms are a little apart."""

    def __init__(self, *_: object) -> None:
        self.measured = measured([0.999, 1.001, 1.0, 1.0])
        self.measured.opened["baseline"] = {"artifact": {"name": "smollm2", "fingerprint": "abc"}}

    def run(self, *_: object) -> Costs:
        return COSTS


@pytest.mark.parametrize(
    ("found", "null", "control_s", "pairs"),
    [
        (None, False, 132.0, 8),
        (replace(equal_arms(-0.06, 0.06), stale="it is 31 days old"), False, 132.0, 8),
        (equal_arms(-0.06, 0.06), False, 0.0, 33),
        (None, True, 0.0, 8),
        (equal_arms(-0.06, 0.06), True, 0.0, 33),
    ],
)
def test_a_known_floor_is_planned_with_and_an_unknown_one_costs_a_control(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    found: Floor | None,
    null: bool,
    control_s: float,
    pairs: int,
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(plan_run_module, "Pilot", QuickPilot)
    monkeypatch.setattr(plan_run_module, "is_null", lambda model: null)
    monkeypatch.setattr(plan_run_module, "find_floor", lambda *given: asked.append(given) or found)
    experiment = holding()
    planned = plan_run(experiment, root=tmp_path, lease=tmp_path / "lease.lock")
    assert (planned.costs.control_s, planned.pairs) == (control_s, pairs)
    arm = experiment.baseline if null else replace(experiment.baseline, model="smollm2")
    assert [(a[0], a[2], a[6]) for a in asked] == [(tmp_path, arm.hash(), "abc")]


@dataclass(frozen=True)
class Texts:
    tokens: tuple[int, ...] = (0,) * 8

    def __len__(self) -> int:
        return len(self.tokens)


class SlowFirst:
    """Scores of a process whose first window takes 10 s and each other 3, told by the clock it moves."""

    now = 0.0

    def __init__(self, client: object, windows: Texts, scratch: Path, batch: int) -> None:
        self.windows = windows

    def scores(self, sink: object) -> Iterator[int]:
        for place in range(len(self.windows.tokens)):
            SlowFirst.now += 3.0 if place else 10.0
            yield place


def test_only_the_first_window_is_taken_at_the_price_of_a_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pilot_module, "check_comparable", lambda *_: None)
    monkeypatch.setattr(pilot_module, "score_windows", lambda *_: Texts())
    monkeypatch.setattr(pilot_module, "Scoring", SlowFirst)
    pilot = Pilot(null_experiment(), silent, clock=lambda: SlowFirst.now)
    pilot.measured.opened["baseline"] = {}
    bench: Any = SimpleNamespace(client=lambda role: None)
    assert pilot._score(bench, Text("x", "", ()), ScoreText()) == 10 + 7 * 3


def test_looks_cost_pairs_at_most_and_save_them_on_average() -> None:
    ratios = [0.96, 1.04, 1.01, 0.98]
    one = plan(holding(), measured(ratios), COSTS)
    several = plan(holding(pairs=96, looks=4), measured(ratios), COSTS)
    assert one.pairs and several.pairs and several.expected
    assert several.pairs >= one.pairs and several.expected < one.pairs
    alone = plan_pairs(several.axes[0].sd, 0.03, 0.0, "equivalent", looks=4)
    # One axis is its own run: what a run expects is what its axis does.
    assert (several.pairs, several.expected) == (alone.pairs, pytest.approx(alone.expected))


def test_two_axes_stop_later_than_the_slower_of_them() -> None:
    claim = Hypothesis("x", holds={"decode_tps": 0.03, "prefill_tps": 0.03})
    both = measured([0.985, 1.015, 1.005, 0.995])
    for visit in both.visits:
        visit.metrics["prefill_tps"] = visit.metrics["decode_tps"]
    planned = plan(null_experiment(hypothesis=claim, pairs=96, looks=4), both, COSTS)
    expected = [axis.expected or 0 for axis in planned.axes]
    assert planned.pairs and planned.expected
    assert max(expected) < planned.expected <= planned.pairs


def test_a_difference_in_seconds_is_planned_in_seconds() -> None:
    """The unit does not matter: the same pilot in tenths, with a margin in tenths, needs as many pairs."""
    pilot = [0.1, -0.1, 0.05, 0.02]
    seconds = plan(holding("compile_s", 0.5, design="fresh"), measured(pilot, "compile_s", 1.0), COSTS)
    tenths = plan(holding("compile_s", 5.0, design="fresh"), measured(pilot, "compile_s", 10.0), COSTS)
    assert (seconds.axes[0].scale, seconds.axes[0].unit) == ("absolute", "s")
    assert seconds.axes[0].effect == pytest.approx(-0.035), "lower is better, so more seconds are a loss"
    assert seconds.axes[0].pairs == tenths.axes[0].pairs
    assert seconds.axes[0].pairs is not None


def test_json_holds_every_part_and_the_minutes() -> None:
    planned = plan(holding(pairs=96, looks=2), measured([0.985, 1.015, 1.005, 0.995]), COSTS)
    data = json.loads(json.dumps(planned.to_json()))
    assert data["minutes"] == pytest.approx(planned.minutes(planned.pairs or 0))
    assert data["expected_minutes"] == pytest.approx(planned.minutes(planned.expected or 0))
    assert data["costs"] == COSTS.to_json() and data["axes"][0]["metric"] == "decode_tps"


@pytest.mark.parametrize("design", ["process-pair", "fresh"])
def test_a_pilot_counts_every_part_of_a_run_once(design: str, tmp_path: Path) -> None:
    """With a clock that ticks whenever it is asked, all of the pilot's time is in one of its parts."""
    ticks = iter(range(100_000))
    pilot = Pilot(null_experiment(design=design), silent, clock=lambda: float(next(ticks)))
    costs = pilot.run(3, None, {})
    assert len(pilot.measured.ok_pairs()) == 3
    first = pilot.measured.visits[0].started_s
    paired = min(v.started_s for v in pilot.measured.visits if v.status != "warmup")
    assert costs.warmup_s == paired - first > 0
    # Within a visit the clock is asked at its start and its end; a pair has two visits.
    assert costs.pair_s >= 4.0 and costs.score_s == 0.0
    assert costs.total_s(3) == pytest.approx(costs.open_s + costs.warmup_s + 3 * costs.pair_s)


def test_a_planned_run_is_data() -> None:
    planned = plan(holding(), measured([1.0, 1.0, 1.0]), COSTS)
    assert planned == PlannedRun(**{f: getattr(planned, f) for f in PlannedRun.__slots__})
    assert planned.frame()["pairs"].tolist() == [8]
    assert repr(planned).startswith("<PlannedRun null-ab: labkit run FILE --pairs 8")
    shown = replace(planned, experiment="<a>")._repr_html_()
    assert "&lt;a&gt;" in shown and "<li>warm-up" not in shown and "8 pairs at 12 s" in shown
