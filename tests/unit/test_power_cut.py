"""The power goes after any operation of a run or a decision: what was said to be kept is, and is whole."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest

from labkit.bench.quiet import standing_probes
from labkit.core.events import Event, Progress, silent
from labkit.core.records import VisitResult
from labkit.lab.measuring.restored import restore
from labkit.lab.measuring.run import RunStopped, run, utc_now
from labkit.lab.measuring.run_journal import RunJournal
from labkit.lab.measuring.unfinished import seal_orphans, unfinished
from labkit.store.durable import replace_text, write_new
from labkit.store.journal import journal_files, read_entries
from labkit.store.query import sql
from labkit.store.read import read_records
from tests.unit.command_line import EXPERIMENT, make_lab
from tests.unit.power_cut import LOSSES, Loss, Operation, Recorder, every_moment, lay

PAIRS = 8
EXPERIMENT_OF_8 = EXPERIMENT.replace("pairs=2", f"pairs={PAIRS}")
VERDICTS = {"kv_bytes": "better", "decode_tps": "worse"}
Found = dict[str, bytes | None]


@pytest.fixture(autouse=True, scope="module")
def quick_probes() -> Iterator[None]:
    """The standing probes of one moment, taken once: they watch the machine for a second each time."""
    probes = standing_probes(0.01)
    with patch("labkit.lab.measuring.measure.standing_probes", lambda: probes):
        yield


@dataclass(frozen=True)
class Moment:
    """What could lie on the disk, and how many visits had been said to be durable by then."""

    found: Found
    visits: int
    loss: Loss
    operation: int


@pytest.fixture(scope="module")
def operations(tmp_path_factory: pytest.TempPathFactory) -> list[Operation]:
    """Everything done to files by a run that is interrupted after 4 visits, gone on with and completed."""
    root = make_lab(tmp_path_factory.mktemp("recorded") / "lab", EXPERIMENT_OF_8)
    recorder, kept, file = Recorder(root), RunJournal.visit, root / "experiments" / "mine.py"
    lease = root.parent / "lease"

    def visit(self: RunJournal, result: VisitResult) -> None:
        kept(self, result)
        recorder.mark(result.index)

    def interrupting(event: Event) -> None:
        if isinstance(event, Progress) and event.task == "visits" and event.done == 4:
            raise KeyboardInterrupt

    with patch.object(RunJournal, "visit", visit), recorder.recording():
        with pytest.raises(RunStopped):
            run(file, root=root, sink=interrupting, lease=lease)
        run(file, root=root, resume=True, lease=lease)
    return recorder.operations


@pytest.fixture(scope="module")
def moments(operations: list[Operation]) -> list[Moment]:
    """Every different thing that could lie there, however much was lost."""
    seen: dict[str, Moment] = {}
    for number, disk in enumerate(every_moment(operations)):
        for loss in LOSSES:
            found = disk.after(loss)
            seen[repr((sorted(found.items()), len(disk.marks)))] = Moment(
                found, len(disk.marks), loss, number
            )
    return list(seen.values())


def laid(moment: Moment, folder: Path) -> Path:
    """A lab on that disk; the experiment's file had been there long before."""
    root = make_lab(folder, EXPERIMENT_OF_8)
    lay(moment.found, root)
    return root


def visits_of(root: Path) -> set[int]:
    """Indices of the visits in journals and records."""
    found = {visit.index for record in read_records(root).records for visit in record.visits}
    for path in journal_files(root):
        entries = read_entries(path)
        measured = restore(entries, path.name).findings.measured if entries else None
        found |= {visit.index for visit in measured.visits} if measured else set()
    return found


def test_the_recorder_sees_what_a_run_does(operations: list[Operation], moments: list[Moment]) -> None:
    kinds = [operation.kind for operation in operations]
    assert {"make", "write", "sync", "sync folder", "link", "unlink", "folder"} <= set(kinds)
    # Two warm-ups, four visits; two warm-ups again, and the other twelve.
    assert kinds.count("mark") == 20
    assert len(moments) > 100


def test_what_was_said_to_be_durable_is_there_and_everything_is_whole(
    moments: list[Moment], tmp_path: Path
) -> None:
    for number, moment in enumerate(moments):
        root = laid(moment, tmp_path / str(number))
        where = f"operation {moment.operation}, losing {moment.loss}"
        assert read_records(root).damaged == (), where
        assert visits_of(root) >= set(range(moment.visits)), where
        seal_orphans(root, silent, utc_now)
        assert read_records(root).damaged == (), where
        if moment.visits > 2:
            assert read_records(root).records, where
        assert not [p for p in (root / "results").rglob(".*") if p.suffix == ".tmp"], where
        shutil.rmtree(root)


def test_a_store_opens_after_any_cut(moments: list[Moment], tmp_path: Path) -> None:
    """Once from everything that could lie there beside the journals, which the index knows nothing of."""
    beside = {repr([n for n in sorted(m.found) if "/journals/" not in n]): m for m in moments}
    assert len(beside) > 4
    for number, moment in enumerate(beside.values()):
        root = laid(moment, tmp_path / str(number))
        (root / "results").mkdir(exist_ok=True)
        (root / "results" / "lab.duckdb").write_bytes(bytes(5000))  # an index whose bytes were lost
        ids = {record.run_id for record in read_records(root).records}
        assert set(sql(root, "SELECT run_id FROM runs")["run_id"]) == ids


@pytest.mark.slow
def test_a_run_goes_on_from_any_cut_to_the_same_verdicts(moments: list[Moment], tmp_path: Path) -> None:
    """Once from each different journal: a run goes on from what that says and from nothing else."""
    labs = {journalled(root): (m, root) for m, root in unfinished_labs(moments, tmp_path)}
    assert len(labs) > PAIRS
    for moment, root in labs.values():
        file = root / "experiments" / "mine.py"
        record = run(file, root=root, resume=True, lease=tmp_path / "lease").record
        assert {axis.metric: axis.verdict for axis in record.axes} == VERDICTS, moment.operation
        assert len({visit.index for visit in record.visits}) == len(record.visits)
        assert journal_files(root) == ()


def unfinished_labs(moments: list[Moment], folder: Path) -> Iterator[tuple[Moment, Path]]:
    for number, moment in enumerate(moments):
        root = laid(moment, folder / str(number))
        if unfinished(root):
            yield moment, root


def journalled(root: Path) -> str:
    """What the journals of a lab say, in their order."""
    return repr([read_entries(path) for path in journal_files(root)])


@pytest.mark.parametrize("loss", LOSSES)
def test_a_replaced_text_is_the_old_or_the_new_one(tmp_path: Path, loss: Loss) -> None:
    path = tmp_path / "experiments" / "promoted.toml"
    old, new = "[old]\n" * 3000, "[newer]\n" * 3000
    recorder = Recorder(tmp_path)
    with recorder.recording():
        replace_text(path, old)
        recorder.mark("old")
        replace_text(path, new)
        recorder.mark("new")
    for disk in every_moment(recorder.operations):
        found = disk.after(loss).get("experiments/promoted.toml")
        allowed = {0: (None, old.encode()), 1: (old.encode(), new.encode()), 2: (new.encode(),)}
        assert found in allowed[len(disk.marks)]


@pytest.mark.parametrize("loss", LOSSES)
def test_a_new_file_is_whole_or_absent(tmp_path: Path, loss: Loss) -> None:
    recorder = Recorder(tmp_path)
    with recorder.recording():
        write_new(tmp_path / "a" / "b" / "new.json", "text\n" * 3000)
        recorder.mark("new")
    for disk in every_moment(recorder.operations):
        found = disk.after(loss).get("a/b/new.json")
        assert found == b"text\n" * 3000 or (found is None and not disk.marks)


def test_a_writer_that_spares_an_fsync_is_caught(tmp_path: Path) -> None:
    """The simulation can fail: without the fsync of the file or the folder, a half or no file is found."""
    for spared in ("sync", "sync folder"):
        recorder = Recorder(tmp_path / spared)
        (tmp_path / spared).mkdir()
        with recorder.recording():
            write_new(tmp_path / spared / "new.json", "text\n")
        disk = list(every_moment([o for o in recorder.operations if o.kind != spared]))[-1]
        assert {disk.after(loss).get("new.json") for loss in LOSSES} > {b"text\n"}
