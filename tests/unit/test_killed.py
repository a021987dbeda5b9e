"""Kill -9 of `labkit run` and `labkit store rebuild` at 50 random moments each: nothing that was is lost."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import psutil
import pytest

from labkit.core.records import VisitResult
from labkit.lab.restored import restore
from labkit.lab.unfinished import unfinished
from labkit.store.journal import journal_files, read_entries
from labkit.store.query import sql
from labkit.store.read import read_records
from tests.unit.command_line import EXPERIMENT, Ended, Running, files, make_lab

KILLS = 50
SEED = 20260101
PAIRS = 12
# 4 tokens at 100 a second: a visit lasts 40 ms, so that kills fall into every part of a run.
TICKING = EXPERIMENT.replace("null:", "null:realtime=true,decode_tps=100,prefill_tps=100000,sd=0.001,")
TICKING = TICKING.replace("Workload(64, 16)", "Workload(8, 4)").replace("pairs=2", f"pairs={PAIRS}")
VERDICTS = {"kv_bytes": "better", "decode_tps": "worse"}
# Says from outside of labkit which visits have ended, before labkit can have kept them.
WITNESS = """
import os
from labkit.bench.client import WorkerClient
visit = WorkerClient.visit
def seen(self, workload, seed, index=0):
    sample = visit(self, workload, seed, index)
    with open(os.environ["WITNESS"], "a") as file:
        file.write(f"{os.getpid()} {index}\\n")
    return sample
WorkerClient.visit = seen
"""
Visits = dict[str, set[int]]


class Bench:
    """A lab whose commands are killed, and a witness of its visits."""

    def __init__(self, folder: Path) -> None:
        self.lab = make_lab(folder / "lab", TICKING)
        self.scratch, self.witness = folder / "scratch", folder / "witness"
        self.scratch.mkdir()
        self.witness.touch()
        (self.scratch / "sitecustomize.py").write_text(WITNESS)

    def start(self, *arguments: str | Path) -> Running:
        root = str(Path(__file__).parents[2])
        environ = {"WITNESS": str(self.witness), "PYTHONPATH": f"{self.scratch}:{root}"}
        return Running(self.scratch, *arguments, "--root", self.lab, **environ)

    def run(self, *arguments: str | Path) -> Running:
        return self.start("run", self.lab / "experiments" / "mine.py", *arguments)

    def seen(self, pid: int) -> list[int]:
        """Indices of the visits that ended in a process, in their order."""
        lines = (line.split() for line in self.witness.read_text().splitlines())
        return [int(index) for found, index in lines if int(found) == pid]

    def kept(self, *, measured_only: bool = False) -> Visits:
        """Indices of the visits in journals and records, by run."""
        found: Visits = {}
        for path in journal_files(self.lab):
            entries = read_entries(path)
            visits = restore(entries, path.name).findings.measured.visits if entries else []
            found.setdefault(path.stem, set()).update(v.index for v in visits if _counts(v, measured_only))
        for record in read_records(self.lab).records:
            indices = (v.index for v in record.visits if _counts(v, measured_only))
            found.setdefault(record.journal_id, set()).update(indices)
        return found

    def check_whole(self) -> None:
        """Every record is whole and indexed, and at most one unfinished write is left, with its log."""
        loaded = read_records(self.lab)
        assert loaded.damaged == ()
        assert set(sql(self.lab, "SELECT run_id FROM runs")["run_id"]) == {r.run_id for r in loaded.records}
        assert len({name.removesuffix(".wal") for name in self.hidden()}) <= 1

    def hidden(self) -> list[str]:
        return [name for name in files(self.lab / "results") if Path(name).name.startswith(".")]


def _counts(visit: VisitResult, measured_only: bool) -> bool:
    return not (measured_only and visit.status == "warmup")


def kill(command: Running, delay_s: float) -> list[psutil.Process]:
    """Kill a command alone, after a delay; its workers at that moment are left to end themselves."""
    time.sleep(delay_s)
    children = command.workers() if command.process.poll() is None else []
    command.process.send_signal(signal.SIGKILL)
    command.process.wait()
    return children


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_runs_killed_at_random_moments_lose_the_running_visit_alone(bench: Bench) -> None:
    chance, before, stages = random.Random(SEED), Visits(), set[str]()
    for number in range(KILLS):
        going_on = bool(unfinished(bench.lab)) and chance.random() < 0.7
        command = bench.run(*(["--resume"] if going_on else []))
        workers = kill(command, chance.uniform(0.2, 4.5))
        bench.check_whole()
        kept, seen = bench.kept(), bench.seen(command.process.pid)
        newest = kept[max(kept)] if kept else set()
        assert set(seen[:-1]) <= newest, f"kill {number}: {set(seen) - newest} of {seen} are lost"
        assert not psutil.wait_procs(workers, timeout=5)[1], f"kill {number}: a worker lives"
        measured = bench.kept(measured_only=True)
        assert all(measured.get(run, set()) >= visits for run, visits in before.items()), f"kill {number}"
        before = measured
        stages.add(f"{'resume' if going_on else 'run'} {'visits' if seen else 'before'}")
    assert stages == {"run before", "run visits", "resume before", "resume visits"}, "kills missed a stage"
    ends_like_an_undisturbed_run(bench)


def ends_like_an_undisturbed_run(bench: Bench) -> None:
    ended: Ended = bench.run(*(["--resume"] if unfinished(bench.lab) else [])).end()
    assert ended.code == 0, ended.err
    bench.check_whole()
    last = max(
        (r for r in read_records(bench.lab).records if r.state == "complete"), key=lambda r: r.ended_at
    )
    assert {axis.metric: axis.verdict for axis in last.axes} == VERDICTS
    assert bench.hidden() == []
    assert journal_files(bench.lab) == ()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_rebuilds_killed_at_random_moments_leave_a_store_that_opens(bench: Bench) -> None:
    chance = random.Random(SEED)
    assert bench.run("--pairs", "1").end().code == 0
    records = read_records(bench.lab)
    for _ in range(KILLS):
        kill(bench.start("store", "rebuild"), chance.uniform(0.2, 1.5))
        bench.check_whole()
        assert read_records(bench.lab) == records
    assert "1 record indexed" in bench.start("store", "rebuild").end().out
    assert bench.hidden() == []
