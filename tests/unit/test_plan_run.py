"""Planning a run from a pilot, on null models whose noise is known."""

from __future__ import annotations

from pathlib import Path

from labkit.bench.pairs import ROLES
from labkit.core.hypothesis import Hypothesis
from labkit.core.records import VisitResult
from labkit.lab.measure import Measured
from labkit.lab.plan_run import plan, plan_from_file
from tests.unit.null_experiment import null_experiment

FILE = """
from labkit import Arm, Experiment, Hypothesis, Workload
noise = "null:sd=0.02,noise=independent,kv_bytes_per_token="
experiment = Experiment("mine", Hypothesis("x", improves={"kv_bytes": 0.4}, holds={"decode_tps": 0.03}),
                        Arm(noise + "100"), Arm(noise + "40,slowdown=1.15"), Workload(64, 16),
                        expires="2099-01-01", score=None)
"""


def test_a_pilot_says_how_many_pairs_each_axis_needs(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    planned = plan_from_file(path, pilot_pairs=4, lease=tmp_path / "lease.lock")
    by_metric = {axis.metric: axis for axis in planned.axes}
    assert by_metric["kv_bytes"].pairs == 8
    # 15% slower at 2% noise a visit, margin 3%: far beyond, so the least number of pairs or little more.
    assert by_metric["decode_tps"].pairs in range(8, 17, 2)
    assert -0.2 < by_metric["decode_tps"].effect < -0.08
    assert not (tmp_path / "results").exists()
    assert f"labkit run {path} --pairs {max(a.pairs or 0 for a in planned.axes)}" in planned.sentence()


def measured(ratios: list[float]) -> Measured:
    found = Measured()
    for pair, ratio in enumerate(ratios):
        for role, value in zip(ROLES, (100.0, 100.0 * ratio), strict=True):
            found.visits.append(VisitResult(0, pair, role, "ok", 0.0, {"decode_tps": value}, (1.0,), (2.0,)))
    return found


def test_the_noisier_axis_needs_more_pairs_and_time_is_counted_per_pair() -> None:
    experiment = null_experiment(hypothesis=Hypothesis("x", holds={"decode_tps": 0.03}))
    quiet = plan(experiment, measured([0.999, 1.001, 1.0, 1.0]))
    noisy = plan(experiment, measured([0.97, 1.03, 1.01, 0.99]))
    assert quiet.seconds_per_pair == 6.0
    assert quiet.axes[0].pairs == 8
    assert (noisy.axes[0].pairs or 0) > 20


def test_an_effect_on_the_margin_is_said_to_need_no_number() -> None:
    experiment = null_experiment(hypothesis=Hypothesis("x", improves={"decode_tps": 0.03}))
    planned = plan(experiment, measured([1.03] * 4))
    assert planned.axes[0].pairs is None
    assert "No number of pairs" in planned.sentence()
