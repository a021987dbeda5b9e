"""Controls as experiments of their own: what they compare, what they are called, what is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from labkit.core.arm import Arm
from labkit.core.errors import ExperimentInvalid
from labkit.core.hypothesis import Hypothesis
from labkit.lab.experiment import Experiment
from labkit.lab.measuring.controls import control, control_of
from labkit.lab.measuring.run import utc_now
from labkit.lab.reading.board import board
from labkit.store import query
from tests.unit.command_line import EXPERIMENT, labkit, make_lab
from tests.unit.null_experiment import null_experiment


def weights(**changes: object) -> Experiment:
    return replace(null_experiment("smollm2", "smollm2"), candidate=Arm("smollm2", kv="affine:8"), **changes)


def test_two_equal_arms() -> None:
    made = control_of(weights(), None, 8)
    assert made.baseline == made.candidate == Arm("smollm2")
    assert (made.name, made.control, made.pairs, made.score) == ("aa-null-ab", True, 8, None)
    assert made.hypothesis.margins() == {"decode_tps": 0.03, "kv_bytes": 0.4}
    made.validate()


def test_a_slowed_arm_against_one_that_differs_by_the_share_alone() -> None:
    made = control_of(weights(), 0.1, 16, seed=3)
    assert (made.baseline.method, made.candidate.method) == ("slowed:0", "slowed:0.1")
    assert (made.name, made.seed) == ("slowed-null-ab", 3)
    assert replace(made.baseline, method=None) == replace(made.candidate, method=None) == Arm("smollm2")


def test_an_experiment_without_axes_of_visits_is_watched_on_its_rates() -> None:
    claim = Hypothesis("same text", holds={"kl_mean_nats": 0.01})
    assert control_of(weights(hypothesis=claim), None, 8).hypothesis.holds == {
        "decode_tps": 0.03,
        "prefill_tps": 0.03,
    }


def test_a_long_name_stays_one() -> None:
    made = control_of(weights(name="a" * 61 + "-b"), None, 8)
    assert len(made.name) <= 64
    made.validate()


@pytest.mark.parametrize("slowed", [-0.1, float("nan"), float("inf"), True, "0.1"])
def test_a_share_that_is_none_is_refused(slowed: float) -> None:
    with pytest.raises(ExperimentInvalid, match="a share of 0 or more"):
        control_of(weights(), slowed, 8)


@pytest.mark.parametrize("arm", [Arm("null:"), Arm("smollm2", method="mlx-lm")])
def test_only_the_autoregressive_method_can_be_slowed(arm: Arm) -> None:
    with pytest.raises(ExperimentInvalid, match="only that can be slowed"):
        control_of(weights(baseline=arm), 0.1, 8)


def test_equal_arms_are_refused_where_they_are_no_control() -> None:
    with pytest.raises(ExperimentInvalid, match="an arm that differs from the baseline"):
        replace(control_of(weights(), None, 8), control=False).validate()


def test_a_control_is_no_point_on_the_frontier_and_nobody_s_to_decide(tmp_path: Path) -> None:
    soon = (utc_now().date() + timedelta(days=30)).isoformat()
    lab = make_lab(tmp_path / "lab", EXPERIMENT.replace("2099-01-01", soon))
    found = control(lab / "experiments" / "mine.py", root=lab, lease=tmp_path / "lease")
    assert found.record.kind == "control"
    assert query.frontier_points(lab).empty
    (row,) = board(lab, utc_now().date())
    assert (row.name, row.records) == ("null-ab", 0)
    assert len(query.results(lab)) == 2, "its arms are results all the same"
    checked = labkit("check", "--root", lab)
    assert checked.code == 0, checked.err


def test_the_command(tmp_path: Path) -> None:
    lab = make_lab(tmp_path / "lab", EXPERIMENT)
    ended = labkit("control", lab / "experiments" / "mine.py", "--root", lab, "--seed", "4")
    assert ended.code == 0, ended.err
    assert "aa-null-ab" in ended.out
    assert "record:" in ended.out
    refused = labkit("control", lab / "experiments" / "mine.py", "--root", lab, "--slowed", "0.1")
    assert (refused.code, "only that can be slowed" in refused.message()) == (1, True)
    for few in ("0", "7"):
        refused = labkit("control", lab / "experiments" / "mine.py", "--root", lab, "--pairs", few)
        assert (refused.code, "at least 8 pairs are needed" in refused.message()) == (1, True)
