"""Runs that were stopped or killed: sealed once, gone on with where nothing changed, and counted once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from labkit.bench.pairs import visit_order
from labkit.bench.quiet import Probe, standing_probes
from labkit.core.errors import JournalInvalid
from labkit.core.events import Event, Note, Progress, Sink, silent
from labkit.core.records import Record
from labkit.lab.measuring.finished import Finished
from labkit.lab.measuring.measure import coins
from labkit.lab.measuring.quality import Scoring
from labkit.lab.measuring.run import RunStopped, run, utc_now
from labkit.lab.measuring.unfinished import seal_orphans, unfinished
from labkit.model.quality import WindowScore
from labkit.model.windows import Windows
from labkit.store import query
from labkit.store.journal import create_journal, journal_files, journals_folder, open_journal, read_entries
from labkit.store.read import read_records
from tests.unit.command_line import EXPERIMENT, labkit, make_lab
from tests.unit.null_experiment import null_experiment

PAIRS = 9
NO_MLX = """
import datetime, sys
from pathlib import Path
from labkit.lab.measuring.unfinished import seal_orphans
sealed = seal_orphans(Path(sys.argv[1]), lambda e: None, lambda: datetime.datetime.now(datetime.UTC))
print(len(sealed), {m.split(".")[0] for m in sys.modules} & {"mlx", "mlx_lm", "transformers"})
"""


@pytest.fixture(autouse=True)
def quick_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The standing probes of one moment, taken once: they watch the machine for a second each time."""
    probes = standing_probes(0.01)
    monkeypatch.setattr("labkit.lab.measuring.measure.standing_probes", lambda: probes)


@dataclass
class Lab:
    """A lab with one experiment file, run in this process."""

    root: Path
    file: Path

    def run(
        self, *, resume: bool = False, pairs: int | None = PAIRS, sink: Sink = silent, **more: Any
    ) -> Finished:
        return run(self.file, root=self.root, resume=resume, pairs=pairs, sink=sink, lease=self.lease, **more)

    @property
    def lease(self) -> Path:
        return self.root.parent / "device.lock"

    def stop(self, visits: int = 6, *, resume: bool = False, **more: Any) -> Path | None:
        """Interrupt a run as visit number `visits` of its good ones would begin."""
        with pytest.raises(RunStopped) as stopped:
            self.run(sink=interrupting(visits), resume=resume, **more)
        return stopped.value.path

    def kill(self, visits: int = 6) -> None:
        """Leave what a kill at that moment leaves: the journal, not sealed, and no record."""
        record = self.stop(visits)
        assert record is not None
        record.unlink()
        (path,) = journal_files(self.root)
        lines = path.read_bytes().splitlines(keepends=True)
        assert b'"kind":"sealed"' in lines[-1]
        path.write_bytes(b"".join(lines[:-1]))

    def records(self) -> tuple[Record, ...]:
        loaded = read_records(self.root)
        assert loaded.damaged == ()
        return loaded.records


def interrupting(visits: int) -> Sink:
    def sink(event: Event) -> None:
        if isinstance(event, Progress) and event.task == "visits" and event.done == visits:
            raise KeyboardInterrupt

    return sink


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    root = make_lab(tmp_path / "lab", EXPERIMENT)
    return Lab(root, root / "experiments" / "mine.py")


def seal(root: Path, sink: Sink = silent) -> tuple[Path, ...]:
    return seal_orphans(root, sink, utc_now)


def ok(record: Record) -> list[tuple[int, str]]:
    return [(v.pair, v.role) for v in record.visits if v.status == "ok"]


def test_a_complete_run_leaves_no_journal_and_names_its_own(lab: Lab) -> None:
    record = lab.run(pairs=2).record
    assert list(journals_folder(lab.root).iterdir()) == []
    assert record.journal_id == record.run_id
    assert record.resumed == ()


def test_an_interrupted_run_goes_on_where_it_was(lab: Lab) -> None:
    partial = lab.stop(6)
    assert partial is not None
    before = json.loads(partial.read_text())
    done = lab.run(resume=True, pairs=None)
    record, (stopped, complete) = done.record, sorted(lab.records(), key=lambda r: r.state, reverse=True)
    assert json.loads(partial.read_text()) == before, "records never change"
    assert (stopped.state, complete, record.state) == ("partial", record, "complete")
    assert stopped.journal_id == record.journal_id == record.run_id
    assert stopped.run_id == f"{record.journal_id}-part1"
    assert record.visits[: len(stopped.visits)] == stopped.visits
    assert [v.status for v in record.visits[len(stopped.visits) :][:3]] == ["warmup", "warmup", "ok"]
    (resumption,) = record.resumed
    assert (resumption["pairs"], resumption["partial"]) == (3, stopped.run_id)
    assert resumption["gap_s"] >= 0
    assert list(journals_folder(lab.root).iterdir()) == []
    assert {a.metric: a.verdict for a in record.axes} == {"kv_bytes": "better", "decode_tps": "worse"}


def test_pairs_go_on_in_the_seeded_order_with_growing_indices_and_times(lab: Lab) -> None:
    lab.stop(6)
    record = lab.run(resume=True).record
    assert [v.index for v in record.visits] == list(range(len(record.visits)))
    assert all(a.started_s <= b.started_s for a, b in pairwise(record.visits))
    order = visit_order(PAIRS, coins(null_experiment(), record.journal_id))
    assert ok(record) == [(pair, role) for pair in range(PAIRS) for role in order[pair]]


def test_a_half_pair_stays_and_is_made_again(lab: Lab) -> None:
    lab.stop(7)
    record = lab.run(resume=True).record
    assert len(ok(record)) == 2 * PAIRS + 1
    assert [role for pair, role in ok(record) if pair == 3] == [
        visit_order(4, coins(null_experiment(), record.journal_id))[3][0]
    ]
    assert max(pair for pair, _ in ok(record)) == PAIRS
    assert all(axis.n == PAIRS for axis in record.axes)
    assert record.resumed[0]["pairs"] == 3


def test_a_killed_run_is_sealed_by_the_next_and_can_still_go_on(lab: Lab) -> None:
    lab.kill(6)
    notes: list[str] = []
    (path,) = seal(lab.root, lambda e: notes.append(e.text) if isinstance(e, Note) else None)
    assert seal(lab.root) == ()
    assert any(str(path) in note for note in notes)
    (partial,) = lab.records()
    assert (partial.state, partial.outcome, partial.run_id) == (
        "partial",
        "undecided",
        f"{partial.journal_id}-part1",
    )
    assert len(ok(partial)) == 6
    assert all("stopped at 3 of 9 pairs" in axis.notes for axis in partial.axes)
    record = lab.run(resume=True).record
    assert record.resumed[0]["partial"] == partial.run_id
    assert len(lab.records()) == 2


def test_going_on_at_once_after_a_kill_needs_no_partial_record(lab: Lab) -> None:
    lab.kill(6)
    record = lab.run(resume=True).record
    assert record.resumed[0]["partial"] == ""
    assert lab.records() == (record,)


def test_a_run_can_be_stopped_and_gone_on_with_again_and_again(lab: Lab) -> None:
    first, second = lab.stop(4), lab.stop(8, resume=True)
    assert first is not None and second is not None
    assert (first.stem[-6:], second.stem[-6:]) == ("-part1", "-part2")
    record = lab.run(resume=True).record
    assert [r["pairs"] for r in record.resumed] == [2, 4]
    assert [r["partial"] for r in record.resumed] == [first.stem, second.stem]
    assert len(ok(record)) == 2 * PAIRS


def test_only_the_complete_record_counts(lab: Lab) -> None:
    lab.stop(6)
    done = lab.run(resume=True)
    assert set(query.frontier_points(lab.root)["run_id"]) == {done.record.run_id}


def test_the_report_says_how_often_a_run_was_resumed(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labkit.lab.measuring.run.lease_path", lambda: lab.lease)
    lab.stop(2)
    ended = labkit("run", "--resume", "--root", lab.root)
    assert ended.code == 0, ended.err
    assert "It was resumed once." in " ".join(ended.out.split())
    (record,) = (r for r in lab.records() if r.state == "complete")
    assert ", resumed 1x<br>" in Finished(record, Path())._repr_html_()


CHANGES: dict[str, tuple[Callable[[Lab, pytest.MonkeyPatch], object], str]] = {
    "the file": (lambda lab, _: lab.file.write_text(EXPERIMENT + "\n# changed\n"), "the experiment file"),
    "the code": (
        lambda _, patch: patch.setattr("labkit.lab.measuring.provenance.code_hash", lambda: "0000"),
        "-> 0000",
    ),
    "a package": (
        lambda _, patch: patch.setattr("labkit.lab.measuring.provenance.packages", lambda: {"mlx": "9.9"}),
        r"mlx \(\S+ -> 9.9\)",
    ),
    "the machine": (
        lambda _, patch: patch.setattr("labkit.lab.measuring.run.machine_class", lambda _: {"slug": "other"}),
        r"the machine class \(\S+ -> other\)",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_no_longer_the_same_run_is_refused_by_name(
    lab: Lab, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.stop(2)
    act, named = CHANGES[change]
    act(lab, monkeypatch)
    (journal,) = journal_files(lab.root)
    before = journal.read_bytes()
    with pytest.raises(JournalInvalid, match=rf"(?s)changed since: .*{named}.*run it anew: labkit run"):
        lab.run(resume=True)
    assert journal.read_bytes() == before
    assert len(lab.records()) == 1


def test_another_artifact_behind_the_same_name_is_refused_once_it_is_open(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.stop(2)
    (path,) = journal_files(lab.root)
    journal = open_journal(path)
    assert journal is not None
    entries = journal.entries()
    journal.remove()
    forged = create_journal(path)
    for entry in entries:
        data = json.loads(json.dumps(entry.data))
        if entry.kind == "opened" and data["role"] == "candidate":
            data["answer"]["artifact"]["fingerprint"] = "0" * 16
        forged.append(entry.kind, data)
    forged.close()
    with pytest.raises(JournalInvalid, match="the artifact that the unfinished run's candidate began with"):
        lab.run(resume=True)
    assert [e.kind for e in read_entries(path)] == [e.kind for e in entries]


def test_pairs_and_resume_must_agree(lab: Lab) -> None:
    lab.stop(2)
    with pytest.raises(JournalInvalid, match=r"(?s)got:     4; it began with 9.*without --pairs"):
        lab.run(resume=True, pairs=4)
    assert lab.run(resume=True, pairs=9).record.state == "complete"


def test_with_nothing_to_resume_there_is_one_message(lab: Lab) -> None:
    with pytest.raises(JournalInvalid, match=r"(?s)an unfinished run to resume.*none of null-ab.*labkit run"):
        lab.run(resume=True)
    ended = labkit("run", "--resume", "--root", lab.root)
    assert ended.code == 1
    assert ended.message().startswith("labkit: an unfinished run to resume was needed\n  got:     none in")
    assert labkit("run", "--root", lab.root).code == 2


def test_several_unfinished_runs_are_listed(lab: Lab) -> None:
    lab.stop(2)
    other = lab.root / "experiments" / "other.py"
    other.write_text(EXPERIMENT.replace("null-ab", "other-ab"))
    Lab(lab.root, other).stop(2)
    ended = labkit("run", "--resume", "--root", lab.root)
    assert "options: experiments/mine.py, experiments/other.py" in ended.message()
    assert Lab(lab.root, other).run(resume=True).record.experiment["name"] == "other-ab"


def test_a_fresh_run_tells_of_the_unfinished_one_and_replaces_it(lab: Lab) -> None:
    partial = lab.stop(4)
    notes: list[str] = []
    lab.run(pairs=1, sink=lambda e: notes.append(e.text) if isinstance(e, Note) else None)
    assert "an unfinished run lies here (2 of 9 pairs). To go on with it instead:" in notes
    assert "labkit run experiments/mine.py --resume" in notes
    assert journal_files(lab.root) == ()
    assert partial is not None and partial.exists()


def test_a_run_without_a_measured_visit_leaves_nothing_to_resume(lab: Lab) -> None:
    def in_warm_up(event: Event) -> None:
        if isinstance(event, Progress) and event.task == "warm-up" and event.done == 1:
            raise KeyboardInterrupt

    with pytest.raises(RunStopped, match="nothing had been measured"):
        lab.run(sink=in_warm_up)
    assert journal_files(lab.root) == ()


def test_a_notebooks_experiment_goes_on_in_the_notebook(lab: Lab) -> None:
    experiment = null_experiment()
    with pytest.raises(RunStopped, match=r"labkit.run\(experiment, resume=True\)"):
        run(experiment, root=lab.root, sink=interrupting(4), lease=lab.lease)
    ended = labkit("run", "--resume", "--root", lab.root)
    assert "which a notebook began" in ended.message()
    changed = replace(experiment, seed=1)
    with pytest.raises(JournalInvalid, match="changed since: the experiment"):
        run(changed, root=lab.root, resume=True, lease=lab.lease)
    assert run(experiment, root=lab.root, resume=True, lease=lab.lease).record.resumed[0]["pairs"] == 2


def test_a_clock_set_back_makes_no_negative_gap_and_no_earlier_visit(lab: Lab) -> None:
    lab.stop(4)
    past = datetime(2020, 1, 1, tzinfo=UTC)
    record = lab.run(resume=True, now=lambda: past).record
    assert record.resumed[0]["gap_s"] == 0
    assert all(a.started_s <= b.started_s for a, b in pairwise(record.visits))


def test_the_gap_is_since_the_last_sign_of_life(lab: Lab) -> None:
    lab.kill(4)
    seal_orphans(lab.root, silent, lambda: utc_now() + timedelta(hours=1))
    record = lab.run(resume=True, now=lambda: utc_now() + timedelta(hours=2)).record
    # The kill was moments ago, and the record of it is no sign of life; a slow machine took a minute at most.
    assert 7200 <= record.resumed[0]["gap_s"] < 7260


def test_two_processes_seal_a_killed_run_once(lab: Lab) -> None:
    lab.kill(4)
    command = [sys.executable, "-c", NO_MLX, str(lab.root)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = sorted(process.communicate(timeout=60)[0] for process in both)
    assert said == ["0 set()\n", "1 set()\n"], "sealed once, and without mlx"
    assert len(lab.records()) == 1


def test_a_crash_between_the_record_and_its_seal_makes_no_second_one(lab: Lab) -> None:
    lab.kill(4)
    (journal,) = journal_files(lab.root)
    before = journal.read_bytes()
    (path,) = seal(lab.root)
    journal.write_bytes(before)
    assert seal(lab.root) == ()
    assert read_entries(journal)[-1].kind == "sealed"
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_crash_between_the_complete_record_and_its_journals_end_makes_no_partial_one(lab: Lab) -> None:
    lab.kill(4)
    (journal,) = journal_files(lab.root)
    kept = journal.read_bytes()
    record = lab.run(resume=True).record
    journal.write_bytes(kept)
    assert unfinished(lab.root) == ()
    with pytest.raises(JournalInvalid, match="none of null-ab"):
        lab.run(resume=True)
    assert seal(lab.root) == ()
    assert not journal.exists()
    assert lab.records() == (record,)


def test_a_living_run_is_not_sealed(lab: Lab) -> None:
    lab.kill(4)
    (path,) = journal_files(lab.root)
    living = open_journal(path)
    assert living is not None
    assert seal(lab.root) == ()
    with pytest.raises(JournalInvalid, match="another process has it"):
        lab.run(resume=True)
    living.close()
    assert len(seal(lab.root)) == 1


def test_a_damaged_journal_is_named_and_stays(lab: Lab) -> None:
    lab.kill(4)
    (path,) = journal_files(lab.root)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b"rubbish\n", *lines[1:]]))
    notes: list[str] = []
    lab.run(pairs=1, sink=lambda e: notes.append(e.text) if isinstance(e, Note) else None)
    assert any("line 2 is damaged" in note for note in notes)
    assert path.exists()
    with pytest.raises(JournalInvalid, match="line 2 is damaged"):
        lab.run(resume=True)


@pytest.mark.parametrize("line", [b'{"kind":"visit"}', b'{"data":{},"kind":"header"}'])
def test_a_journal_that_tells_of_no_run_is_named_and_stays(lab: Lab, line: bytes) -> None:
    path = journals_folder(lab.root) / "20260101T000000Z-null-ab-0a1b2c.jsonl"
    journal = create_journal(path)
    journal.append("header", json.loads(line))
    journal.close()
    with pytest.raises(JournalInvalid, match="its header is missing or of another labkit"):
        lab.run(resume=True)
    assert seal(lab.root) == ()
    assert path.exists()


def test_a_run_whose_journal_cannot_be_made_goes_on_and_says_so_once(lab: Lab) -> None:
    journals_folder(lab.root).parent.mkdir()
    journals_folder(lab.root).touch()  # a file where the folder should be
    notes: list[str] = []
    record = lab.run(pairs=2, sink=lambda e: notes.append(e.text) if isinstance(e, Note) else None).record
    assert record.state == "complete"
    assert sum("could not be resumed after a stop" in note for note in notes) == 1


def test_a_disk_that_fills_ends_the_journal_and_not_the_run(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    from labkit.store import durable

    append, calls = durable.append, iter(range(1000))

    def full_after(handle: int, data: bytes) -> None:
        if next(calls) >= 12:
            raise OSError(28, "No space left on device")
        append(handle, data)

    monkeypatch.setattr(durable, "append", full_after)
    notes: list[str] = []
    record = lab.run(pairs=4, sink=lambda e: notes.append(e.text) if isinstance(e, Note) else None).record
    assert record.state == "complete"
    assert [n for n in notes if "journal cannot be written: No space left" in n] == notes[-1:]
    assert "would be resumed from here on after a stop" in notes[-1]
    assert journal_files(lab.root) == ()


def test_what_a_killed_score_left_is_removed(lab: Lab) -> None:
    lab.kill(4)
    (path,) = journal_files(lab.root)
    for left in (path.with_suffix(".scratch"), path.with_name("gone.scratch")):
        left.mkdir()
        (left / "reference.npy").write_bytes(b"0" * 100)
    slug = next((lab.root / "results").glob("linux*"), lab.root / "results" / "machine")
    slug.mkdir(exist_ok=True)
    (slug / ".x.json.0a1b2c3d.tmp").touch()
    seal(lab.root)
    assert [p.name for p in journals_folder(lab.root).iterdir()] == [path.name]
    assert not list(slug.glob(".*"))


class FakeClient:
    """A worker that keeps what it was asked and leaves the reference file, as a real one does."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []

    def ask(self, do: str, **message: Any) -> dict[str, Any]:
        self.asked.append((do, message["window"]["tokens"]))
        Path(message["path"]).touch()
        return WindowScore((0.1,), (1.0,), (1.1,), (True,)).to_json()


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_windows_that_are_scored_are_kept(tmp_path: Path, batch: int) -> None:
    windows = Windows(tuple((n, n, n, n) for n in range(5)), 4, 2)
    reference, candidate = FakeClient(), FakeClient()
    clients: Any = {"baseline": reference, "candidate": candidate}
    scores = list(Scoring(clients.__getitem__, windows, tmp_path, batch).scores(silent, 3))
    assert len(scores) == 2
    assert [tokens for _, tokens in candidate.asked] == [tuple(w.tokens) for w in list(windows)[3:]]
    assert list(tmp_path.iterdir()) == []


def test_probes_before_each_part_are_in_the_record(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.stop(4)
    busy = replace(standing_probes(0.01)[0], name="busy_cores", value=1.9, limit=0.2, ok=False)
    assert isinstance(busy, Probe)
    monkeypatch.setattr("labkit.lab.measuring.measure.standing_probes", lambda: (busy,))
    record = lab.run(resume=True).record
    assert record.quiet["standing"][-1]["value"] == 1.9
    assert any(reason.startswith("busy_cores 1.90") for reason in record.quiet["reasons"])
