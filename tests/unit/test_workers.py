"""Where the arms of a run live: two processes for the whole run, or a fresh one for each visit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from labkit.bench.client import CommandFailed, WorkerClient
from labkit.core.errors import ExperimentInvalid
from labkit.core.hypothesis import Hypothesis
from labkit.lab.experiment import Experiment
from labkit.lab.measuring.run import RunStopped, run
from tests.unit.null_experiment import null_experiment

COLD = ("load_s", "cold_start_s", "warm_start_s", "compile_s")


@pytest.fixture
def lease(tmp_path: Path) -> Path:
    return tmp_path / "device.lock"


def fresh(**changes: Any) -> Experiment:
    claim = Hypothesis("starts as fast", holds={"cold_start_s": 9.0, "compile_s": 9.0, "decode_tps": 0.5})
    return replace(null_experiment(hypothesis=claim, design="fresh"), **changes)


class Processes:
    """Notes the workers that are started and those that live at the same time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started, self.living, self.most = 0, set[int](), 0
        begin, end = WorkerClient.__init__, WorkerClient.close

        def opened(client: WorkerClient, *args: Any, **more: Any) -> None:
            begin(client, *args, **more)
            self.started += 1
            self.living.add(client.pid)
            self.most = max(self.most, len(self.living))

        def closed(client: WorkerClient) -> None:
            end(client)
            self.living.discard(client.pid)

        monkeypatch.setattr(WorkerClient, "__init__", opened)
        monkeypatch.setattr(WorkerClient, "close", closed)


def test_a_pair_of_processes_lives_for_the_whole_run(
    tmp_path: Path, lease: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Processes(monkeypatch)
    run(null_experiment(), root=tmp_path, pairs=2, lease=lease)
    assert (seen.started, seen.most, seen.living) == (2, 2, set())


def test_a_fresh_visit_has_a_process_of_its_own_and_no_other_beside_it(
    tmp_path: Path, lease: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Processes(monkeypatch)
    record = run(fresh(), root=tmp_path, pairs=2, lease=lease).record
    # Two warm-ups and four visits, and one of each arm to open it, of which the candidate's also answers.
    assert seen.started >= 6 + 2
    assert (seen.most, seen.living) == (1, set())
    assert record.experiment["design"] == "fresh"
    for visit in record.visits:
        assert set(COLD) <= set(visit.metrics)
        assert visit.metrics["load_s"] > 0.1, "Python and its imports alone take longer"
        assert visit.metrics["cold_start_s"] > visit.metrics["load_s"]


def test_only_a_fresh_process_starts_cold(tmp_path: Path, lease: Path) -> None:
    record = run(null_experiment(), root=tmp_path, pairs=1, lease=lease).record
    assert not any(set(COLD) & set(visit.metrics) for visit in record.visits)
    with pytest.raises(ExperimentInvalid, match=r"design: 'fresh' is needed to measure cold_start_s"):
        fresh(design="process-pair").validate()


def test_compile_time_is_the_difference_of_the_first_two_waits(tmp_path: Path, lease: Path) -> None:
    record = run(fresh(), root=tmp_path, pairs=1, lease=lease).record
    for visit in record.visits:
        cold = visit.metrics["cold_start_s"] - visit.metrics["load_s"]
        waited = visit.metrics["compile_s"] + visit.metrics["warm_start_s"]
        assert waited == pytest.approx(cold, abs=2e-9)  # it is told to a nanosecond


def test_a_fresh_process_that_dies_while_loading_is_a_failed_visit(
    tmp_path: Path, lease: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, calls = WorkerClient.open, []

    def sometimes(client: WorkerClient, workload: Any) -> Any:
        calls.append(1)
        if len(calls) == 6:
            client.kill()
        return opened(client, workload)

    monkeypatch.setattr(WorkerClient, "open", sometimes)
    record = run(fresh(), root=tmp_path, pairs=2, lease=lease).record
    (failed,) = [v for v in record.visits if v.status == "failed"]
    assert "signal SIGKILL" in failed.error
    assert all(axis.n == 2 for axis in record.axes)


def test_a_worker_that_always_dies_ends_the_run(
    tmp_path: Path, lease: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(client: WorkerClient, *_: Any) -> Any:
        raise CommandFailed("a visit was needed", got="it ended with signal SIGKILL", tail="")

    monkeypatch.setattr(WorkerClient, "visit", never)
    needed = r"at most 3 failed visits in a run\n.*4; the last: it ended with signal"
    with pytest.raises(RunStopped, match=needed):
        run(fresh(), root=tmp_path, pairs=2, lease=lease)
