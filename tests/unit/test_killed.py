"""Kill -9 of `labkit run` and `labkit store rebuild` at 50 random moments each: nothing that was is lost."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from labkit.core.events import silent
from labkit.core.records import VisitResult
from labkit.lab.experiment import load_experiment
from labkit.lab.measuring.measure import Bench as Measuring
from labkit.lab.measuring.measured import Measured
from labkit.lab.measuring.restored import restore
from labkit.lab.measuring.unfinished import unfinished
from labkit.store.files import record_files
from labkit.store.index import open_current
from labkit.store.journal import journal_files, read_entries
from labkit.store.query import sql
from labkit.store.read import read_records
from labkit.store.write import record_text
from tests.unit.command_line import EXPERIMENT, Ended, Running, files, kept_handlers, make_lab, until
from tests.unit.sample_records import SLUG, sample_record

KILLS = 50
# So many that a build lasts long enough to be hit.
RECORDS = 1000
SEED = 20260101
PAIRS = 12
# 4 tokens at 100 a second: a visit lasts 40 ms, so that kills fall into every part of a run.
TICKING = EXPERIMENT.replace("null:", "null:realtime=true,decode_tps=100,prefill_tps=100000,sd=0.001,")
# Slow enough to be told from noise by the clock of a machine that others use.
TICKING = TICKING.replace("slowdown=1.1", "slowdown=1.6")
TICKING = TICKING.replace("Workload(64, 16)", "Workload(8, 4)").replace("pairs=2", f"pairs={PAIRS}")
VERDICTS = {"kv_bytes": "better", "decode_tps": "worse"}
# Says from outside of labkit which visits have ended, before labkit can have kept them; and shortens the
# second for which a run watches the machine's load, since a kill within it shows nothing.
WITNESS = """
import os
from labkit.bench import quiet
from labkit.bench.client import WorkerClient
probes = quiet.standing_probes
quiet.standing_probes = lambda seconds=0.02: probes(seconds)
visit = WorkerClient.visit
def seen(self, workload, seed, index=0):
    sample = visit(self, workload, seed, index)
    with open(os.environ["WITNESS"], "a") as file:
        file.write(f"{os.getpid()} {index}\\n")
    return sample
WorkerClient.visit = seen
"""
STAGES = ("run before", "run visits", "resume before", "resume visits")
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


def random_moment(bench: Bench, command: Running, chance: random.Random) -> float:
    """Wait until a run is somewhere in its visits, or do not; give how many seconds later to kill it."""
    if chance.random() < 0.4:
        return chance.uniform(0.2, 2.5)
    wanted = chance.randint(1, 2 * PAIRS + 2)  # two more are to warm up, of each process
    until(lambda: len(bench.seen(command.process.pid)) >= wanted or command.process.poll() is not None, 60)
    return chance.uniform(0, 0.1)


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
    chance, before, stages = random.Random(SEED), Visits(), Counter[str]()
    for number in range(KILLS):
        going_on = bool(unfinished(bench.lab)) and chance.random() < 0.7
        command = bench.run(*(["--resume"] if going_on else []))
        workers = kill(command, random_moment(bench, command, chance))
        bench.check_whole()
        kept, seen = bench.kept(), bench.seen(command.process.pid)
        newest = kept[max(kept)] if kept else set()
        assert set(seen[:-1]) <= newest, f"kill {number}: {set(seen) - newest} of {seen} are lost"
        assert not psutil.wait_procs(workers, timeout=5)[1], f"kill {number}: a worker lives"
        measured = bench.kept(measured_only=True)
        assert all(measured.get(run, set()) >= visits for run, visits in before.items()), f"kill {number}"
        before = measured
        stages[f"{'resume' if going_on else 'run'} {'visits' if seen else 'before'}"] += 1
    missed = [stage for stage in STAGES if stages[stage] < 2]
    assert not missed, f"kills missed a stage: {stages}"
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


class Builds:
    """A lab of many records, whose index takes a while to be made."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.database = bench, bench.lab / "results" / "lab.duckdb"
        text = record_text(sample_record(run_id="run-0", pairs=4))
        folder = bench.lab / "results" / SLUG
        folder.mkdir(parents=True)
        for number in range(RECORDS):
            (folder / f"run-{number}.json").write_text(text.replace("run-0", f"run-{number}"))
        self.ids, self.records = {f"run-{number}" for number in range(RECORDS)}, self.stats()
        self.start_s, self.build_s = self.durations_s()

    def durations_s(self) -> tuple[float, float]:
        """How long a command takes to begin its build, and the build itself."""
        started = time.monotonic()
        command = self.bench.start("store", "rebuild")
        until(self.building, 60)
        began = time.monotonic()
        until(lambda: not self.building(), 60)
        ended = time.monotonic()
        assert f"{RECORDS} records indexed" in command.end().out
        return began - started, ended - began

    def building(self) -> set[Path]:
        """The hidden files of builds, running and killed."""
        return set(self.database.parent.glob(f".{self.database.name}.*.new"))

    def killed(self, chance: random.Random) -> bool:
        """Kill a rebuild, mostly in the middle of its build; say whether it was."""
        before = self.building()
        command = self.bench.start("store", "rebuild")
        if chance.random() < 0.2:
            kill(command, chance.uniform(0, self.start_s))
            return bool(self.building() - before)
        until(lambda: self.building() - before or command.process.poll() is not None, 60)
        kill(command, chance.uniform(0, self.build_s))
        hit = bool(self.building() - before)
        self.build_s *= 1.05 if hit else 0.6  # how fast the machine is changes with what else it does
        return hit

    def check(self) -> None:
        """The store opens and knows every record, none of which was touched; what lies there is whole."""
        assert set(sql(self.bench.lab, "SELECT run_id FROM runs")["run_id"]) == self.ids
        assert self.stats() == self.records
        assert len({name.removesuffix(".wal") for name in self.bench.hidden()}) <= 1
        if self.database.exists():
            current = open_current(self.bench.lab, self.database)
            assert current is not None, "a half-made index got the name"
            current.close()

    def stats(self) -> dict[str, tuple[int, int]]:
        found = ((path.name, path.stat()) for path in record_files(self.bench.lab))
        return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in found}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_rebuilds_killed_at_random_moments_leave_a_store_that_opens(bench: Bench) -> None:
    chance, builds, during = random.Random(SEED), Builds(bench), 0
    for number in range(KILLS):
        if number % 5 == 0:
            builds.database.unlink(missing_ok=True)  # the first build of all is killed too
        during += builds.killed(chance)
        builds.check()
    assert during >= KILLS // 2, f"only {during} kills fell into a build"
    assert f"{RECORDS} records indexed" in bench.start("store", "rebuild").end().out
    builds.check()
    assert bench.hidden() == []


def test_a_visit_is_kept_whole_or_not_at_all_when_the_run_is_stopped(tmp_path: Path) -> None:
    kept, measured = list[VisitResult](), Measured()

    def keep(visit: VisitResult) -> None:
        signal.raise_signal(signal.SIGINT)
        kept.append(visit)

    visit = VisitResult(0, 0, "baseline", "ok", 0.0)
    held = Measuring(
        load_experiment(make_lab(tmp_path) / "experiments" / "mine.py").experiment, measured, silent, {}, keep
    )
    with kept_handlers():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with pytest.raises(KeyboardInterrupt):
            held._ended(visit)
    assert kept == measured.visits == [visit]
