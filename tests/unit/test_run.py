"""A run from experiment to record on null models, with real workers; deaths, interruptions, two at once."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from labkit.bench import worker
from labkit.bench.lease import device_lease
from labkit.bench.pairs import visit_order
from labkit.bench.quiet import Probe
from labkit.cli.report import sentence
from labkit.core.arm import Arm, Workload
from labkit.core.errors import BackendMissing, DeviceBusy, WorkerFailed
from labkit.core.events import Event, Note, Progress
from labkit.core.records import Record
from labkit.lab.measuring.measure import coins
from labkit.lab.measuring.run import Finished, RunStopped, run
from labkit.model.backend import prepare
from labkit.store.read import read_record, read_records
from tests.unit.null_experiment import SLEEPY, STEADY, null_experiment


@pytest.fixture
def lease(tmp_path: Path) -> Path:
    return tmp_path / "device.lock"


def worker_pids() -> list[int]:
    children = psutil.Process().children(recursive=True)
    return [c.pid for c in children if "labkit.bench.worker" in " ".join(c.cmdline())]


def at_visit(number: int, act: Callable[[], None]) -> Callable[[Event], None]:
    """A sink that acts a moment after visit `number` has begun, once."""
    fired: list[int] = []

    def sink(event: Event) -> None:
        reached = isinstance(event, Progress) and event.task == "visits" and event.done >= number
        if reached and not fired:
            fired.append(1)
            threading.Timer(0.3, act).start()

    return sink


def test_a_run_becomes_a_record_with_verdicts(tmp_path: Path, lease: Path) -> None:
    done = run(null_experiment(), root=tmp_path, lease=lease)
    record = read_record(done.path)
    assert record == done.record
    assert (record.state, record.outcome) == ("complete", "trade-off")
    assert {a.metric: a.verdict for a in record.axes} == {"kv_bytes": "better", "decode_tps": "worse"}
    decode = record.axes[1]
    # The true ratio is 1 / 1.1 at 2% noise per visit: 8 pairs hold it within 3%.
    assert decode.low < 1 / 1.1 * 1.03
    assert decode.high > 1 / 1.1 * 0.97
    measured = [v for v in record.visits if v.status == "ok"]
    assert len(measured) == 16
    assert [v.status for v in record.visits[:2]] == ["warmup", "warmup"]
    assert all(len(v.decode_seconds) == 16 for v in measured)


def test_the_record_says_where_it_comes_from_and_names_nobody(tmp_path: Path, lease: Path) -> None:
    done = run(null_experiment(), root=tmp_path, pairs=1, lease=lease)
    text = done.path.read_text()
    assert {"code_hash", "packages", "python", "labkit_version"} <= set(done.record.provenance)
    for private in (str(tmp_path), str(Path.home()), os.uname().nodename, "/usr/"):
        assert private not in text


def test_few_pairs_stay_unresolved(tmp_path: Path, lease: Path) -> None:
    record = run(null_experiment(), root=tmp_path, pairs=2, lease=lease).record
    assert record.outcome == "undecided"
    assert all("2 pairs: at least 8 are needed" in a.notes for a in record.axes)


def test_a_coin_says_which_arm_goes_first_and_each_pair_has_one_seed(tmp_path: Path, lease: Path) -> None:
    record = run(null_experiment(), root=tmp_path, pairs=4, lease=lease).record
    visits = record.visits[2:]
    order = visit_order(4, coins(null_experiment(), record.journal_id))
    assert [v.role for v in visits] == [role for roles in order for role in roles]
    for pair in range(4):
        first, second = (v for v in visits if v.pair == pair)
        assert {first.role, second.role} == {"baseline", "candidate"}
        assert first.tokens_hash == second.tokens_hash


def killed_run(tmp_path: Path, lease: Path) -> Finished:
    experiment = null_experiment(SLEEPY, SLEEPY + ",slowdown=1.05")
    kill = at_visit(2, lambda: os.kill(worker_pids()[-1], signal.SIGKILL))
    return run(experiment, root=tmp_path, pairs=3, sink=kill, lease=lease)


def test_a_killed_worker_is_a_failed_visit_and_the_pair_is_made_again(tmp_path: Path, lease: Path) -> None:
    record = killed_run(tmp_path, lease).record
    failed = [v for v in record.visits if v.status == "failed"]
    assert len(failed) == 1
    assert "signal SIGKILL" in failed[0].error
    assert record.state == "complete"
    assert all(a.n == 3 for a in record.axes)
    after = record.visits[record.visits.index(failed[0]) + 1]
    assert (after.role, after.status) == (failed[0].role, "warmup")
    assert worker_pids() == []


def test_a_worker_that_prints_before_it_dies_leaves_its_output(tmp_path: Path, lease: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('the last words of a worker')\n")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    kill = at_visit(1, lambda: os.kill(worker_pids()[-1], signal.SIGKILL))
    experiment = null_experiment(SLEEPY, SLEEPY + ",slowdown=1.05")
    record = run(experiment, root=tmp_path, pairs=2, sink=kill, lease=lease, environ=environ).record
    (failed,) = (v for v in record.visits if v.status == "failed")
    assert "the last words of a worker" in failed.output_tail


def test_a_worker_that_always_dies_ends_the_run_with_what_there_is(tmp_path: Path, lease: Path) -> None:
    def kill_every_visit(event: Event) -> None:
        if isinstance(event, Progress) and event.task == "visits" and event.done < (event.total or 0):
            threading.Timer(0.2, lambda: [os.kill(p, signal.SIGKILL) for p in worker_pids()]).start()

    experiment = null_experiment(SLEEPY, SLEEPY + ",slowdown=1.05")
    with pytest.raises(RunStopped, match="the run failed; what was measured is kept in"):
        run(experiment, root=tmp_path, pairs=2, sink=kill_every_visit, lease=lease)
    (stored,) = read_records(tmp_path).stored
    assert (stored.record.state, stored.record.outcome) == ("partial", "failed")
    assert worker_pids() == []


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path, lease: Path) -> None:
    def interrupt(event: Event) -> None:
        if isinstance(event, Progress) and event.task == "visits" and event.done == 4:
            raise KeyboardInterrupt

    with pytest.raises(RunStopped) as stopped:
        run(null_experiment(), root=tmp_path, sink=interrupt, lease=lease)
    assert stopped.value.exit_code == 130
    assert stopped.value.path is not None
    record: Record = read_record(stopped.value.path)
    assert (record.state, record.outcome) == ("partial", "undecided")
    assert all("stopped at 2 of 8 pairs" in a.notes for a in record.axes)
    assert record.experiment["pairs"] == record.experiment["planned_pairs"] == 8
    assert len([v for v in record.visits if v.status == "ok"]) == 4
    assert worker_pids() == []


def test_ctrl_c_before_anything_leaves_nothing(tmp_path: Path, lease: Path) -> None:
    def interrupt(event: Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(RunStopped, match="nothing had been measured"):
        run(null_experiment(), root=tmp_path, sink=interrupt, lease=lease)
    assert not (tmp_path / "results").exists()
    assert worker_pids() == []


def test_an_arm_that_cannot_run_is_refused_with_the_planners_words(tmp_path: Path, lease: Path) -> None:
    too_long = null_experiment(workload=Workload(4090, 16))
    with pytest.raises(WorkerFailed, match=r"(?s)null.*cannot run this request.*context of 4096 tokens"):
        run(too_long, root=tmp_path, lease=lease)
    with pytest.raises(WorkerFailed, match="prefill_tps must be above 0"):
        run(null_experiment(candidate=STEADY + ",prefill_tps=-1"), root=tmp_path, lease=lease)
    assert not (tmp_path / "results").exists()


def test_the_lease_lets_one_in_and_names_the_holder(tmp_path: Path, lease: Path) -> None:
    notes: list[str] = []
    second = device_lease("second", lease, wait_s=0.5, sink=lambda e: notes.append(str(e)))
    busy = pytest.raises(DeviceBusy, match=r"held by labkit run first \(process")
    with device_lease("labkit run first", lease), busy, second:
        pass
    assert len(notes) == 1
    with device_lease("second", lease, wait_s=0.0):
        pass


def test_a_lock_file_of_another_user_can_be_locked(lease: Path) -> None:
    lease.touch(mode=0o444)
    if os.geteuid() == 0:
        os.chown(lease, 12345, 12345)
    with device_lease("mine", lease, wait_s=0.0):
        assert "mine" in lease.with_suffix(".holder.json").read_text()


def test_a_second_run_waits_for_the_first(tmp_path: Path, lease: Path) -> None:
    notes: list[Event] = []
    held = device_lease("labkit run first", lease)
    held.__enter__()
    threading.Timer(1.0, lambda: held.__exit__(None, None, None)).start()
    started = time.monotonic()
    run(null_experiment(), root=tmp_path, pairs=1, sink=notes.append, lease=lease)
    assert time.monotonic() - started >= 1.0
    assert any(
        isinstance(e, Note) and "waiting for the device: held by labkit run first" in e.text for e in notes
    )


def test_an_arm_whose_blas_this_machine_cannot_use_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere than on a Linux CPU LABKIT_BLAS has no effect: the arm would run against itself."""
    metal = replace(prepare(), device="metal", blas="accelerate", blas_reason="macOS brings Accelerate")
    monkeypatch.setattr(worker, "prepare", lambda: metal)
    with pytest.raises(BackendMissing, match=r"(?s)the mkl BLAS is needed.*accelerate"):
        worker._open_arm(asdict(Arm("null", blas="mkl")))


def test_a_noisy_run_is_labelled_in_its_record(tmp_path: Path, lease: Path) -> None:
    busy = Probe("busy_cores", True, 1.9, 0.2, False, "stop what else uses the processor")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("labkit.lab.measuring.measure.standing_probes", lambda: (busy,))
        record = run(null_experiment(), root=tmp_path, pairs=1, lease=lease).record
    assert record.quiet["quiet"] is False
    assert record.quiet["reasons"][0].startswith("busy_cores 1.90 beyond 0.20 before the run")


def test_an_arm_whose_visits_differ_is_labelled_and_its_machine_is_not(tmp_path: Path, lease: Path) -> None:
    drifting = "null:noise=drift,slope=0.9,kv_bytes_per_token=40"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("labkit.lab.measuring.measure.standing_probes", lambda: ())
        record = run(null_experiment(candidate=drifting), root=tmp_path, pairs=2, lease=lease).record
    assert record.quiet["unstable"] == ["candidate decode_tps", "candidate prefill_tps"]
    assert not any("tps" in reason for reason in record.quiet["reasons"])
    assert "Unstable from visit to visit: candidate decode_tps, candidate prefill_tps." in sentence(record)


def test_swap_that_grows_slowly_makes_the_whole_run_noisy(tmp_path: Path, lease: Path) -> None:
    """A quarter of the limit between any two looks: no visit alone is beyond it."""
    step = max(2**31, psutil.virtual_memory().total // 8) // 4
    looks = count()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("labkit.lab.measuring.measure.standing_probes", lambda: ())
        patch.setattr("psutil.swap_memory", lambda: SimpleNamespace(used=next(looks) * step))
        record = run(null_experiment(), root=tmp_path, pairs=2, lease=lease).record
    good = [visit for visit in record.visits if visit.status == "ok"]
    assert all("swap_growth_mib" not in visit.quiet["failed"] for visit in good)
    assert "run_swap_growth_mib" in good[-1].quiet["failed"]
    assert record.quiet["quiet"] is False
    assert any(reason.startswith("run_swap_growth_mib up to") for reason in record.quiet["reasons"])
