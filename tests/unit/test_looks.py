"""A run with several looks stops where it is clear, and ends at the maximum where it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from labkit.core.errors import ExperimentInvalid
from labkit.core.events import Event, Progress
from labkit.core.hypothesis import Hypothesis
from labkit.lab.measuring.run import RunStopped, run
from tests.unit.null_experiment import SLOWER, STEADY, null_experiment


@pytest.fixture
def lease(tmp_path: Path) -> Path:
    return tmp_path / "device.lock"


@pytest.fixture
def known_coins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of visits that leaves noise unresolved: one run in thirty would find a difference in it."""
    monkeypatch.setattr("labkit.lab.measuring.measure.coins", lambda *_: "x0")


def test_a_clear_result_stops_at_the_first_look(tmp_path: Path, lease: Path) -> None:
    record = run(null_experiment(pairs=32, looks=4), root=tmp_path, lease=lease).record
    assert [look["pairs"] for look in record.looks] == [8]
    (look,) = record.looks
    assert look["stopped"] is True
    assert look["verdicts"] == {"kv_bytes": "better", "decode_tps": "worse"}
    assert (record.state, record.outcome) == ("complete", "trade-off")
    assert record.experiment["pairs"] == 32
    assert all(axis.n == 8 for axis in record.axes)
    decode = record.axes[1]
    assert decode.alpha == pytest.approx(look["alpha"])
    assert 0 < decode.alpha < 0.05, "a look spends a part of alpha"
    assert max(axis.p_holm for axis in record.axes) <= 0.05


@pytest.mark.usefixtures("known_coins")
def test_an_unclear_result_ends_at_the_maximum_unresolved(tmp_path: Path, lease: Path) -> None:
    noisy = "null:sd=0.2,noise=independent,kv_bytes_per_token=100"
    claim = Hypothesis("no slower", holds={"decode_tps": 0.01})
    experiment = null_experiment(noisy, noisy + ",slowdown=1.001", hypothesis=claim, pairs=16, looks=2)
    record = run(experiment, root=tmp_path, lease=lease).record
    assert [look["pairs"] for look in record.looks] == [8, 16]
    assert [look["stopped"] for look in record.looks] == [False, True]
    assert [axis.verdict for axis in record.axes] == ["unresolved"]
    assert all(0.02 < look["alpha"] < 0.035 for look in record.looks), "Pocock: about equal shares"


def test_one_look_spends_all_of_alpha(tmp_path: Path, lease: Path) -> None:
    record = run(null_experiment(), root=tmp_path, lease=lease).record
    assert [(look["pairs"], look["alpha"]) for look in record.looks] == [(8, 0.05)]
    assert {axis.alpha for axis in record.axes} == {0.05}


@pytest.mark.usefixtures("known_coins")
def test_a_run_that_goes_on_does_not_look_again_at_what_it_saw(tmp_path: Path, lease: Path) -> None:
    noisy = "null:sd=0.2,noise=independent,kv_bytes_per_token=100"
    claim = Hypothesis("no slower", holds={"decode_tps": 0.01})
    experiment = null_experiment(noisy, noisy + ",slowdown=1.001", hypothesis=claim, pairs=16, looks=2)

    def stop(event: Event) -> None:
        if isinstance(event, Progress) and event.task == "visits" and event.done == 20:
            raise KeyboardInterrupt

    with pytest.raises(RunStopped):
        run(experiment, root=tmp_path, lease=lease, sink=stop)
    record = run(experiment, root=tmp_path, lease=lease, resume=True).record
    assert [look["pairs"] for look in record.looks] == [8, 16]
    assert record.resumed[0]["pairs"] == 10
    assert len([v for v in record.visits if v.status == "ok"]) == 32


def test_more_looks_than_there_is_evidence_for_are_refused() -> None:
    with pytest.raises(ExperimentInvalid, match="looks: at least 8 pairs before each are needed; 16 pairs"):
        null_experiment(STEADY, SLOWER, pairs=16, looks=3).validate()
