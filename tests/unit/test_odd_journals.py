"""Journals that are damaged, odd or another's: told, kept as far as they are whole, never gone on with."""

from __future__ import annotations

import json
import os
import shutil
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from labkit.bench.quiet import Probe, standing_probes
from labkit.core.errors import JournalInvalid
from labkit.core.events import Note, silent
from labkit.core.journal import Entry
from labkit.core.records import Record
from labkit.lab.deciding.check import check
from labkit.lab.measuring.journal_shape import FORMAT
from labkit.lab.measuring.keep import ResultsUnwritable
from labkit.lab.measuring.restored import restore
from labkit.lab.measuring.run import RunStopped, run, utc_now
from labkit.lab.measuring.run_journal import RunJournal
from labkit.lab.measuring.unfinished import damaged, seal_orphans, unfinished
from labkit.model.quality import WindowScore
from labkit.store import durable
from labkit.store.journal import journal_files, read_entries
from labkit.store.read import read_records
from labkit.store.write import write_record
from tests.unit.command_line import EXPERIMENT, labkit, make_lab
from tests.unit.null_experiment import null_experiment
from tests.unit.test_resume import Lab, interrupting

Data = dict[str, Any]
Change = Callable[[Data], None]


def quick(patch: pytest.MonkeyPatch) -> None:
    """The probes of one moment, and one code, whoever edits it meanwhile."""
    probes = standing_probes(0.01)
    patch.setattr("labkit.lab.measuring.measure.standing_probes", lambda: probes)
    patch.setattr("labkit.lab.measuring.provenance.code_hash", lambda: "c0de0123456789ab")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lab with what a kill after three pairs leaves."""
    root = make_lab(tmp_path_factory.mktemp("killed") / "lab", EXPERIMENT)
    with pytest.MonkeyPatch.context() as patch:
        quick(patch)
        Lab(root, root / "experiments" / "mine.py").kill(6)
    return root


@pytest.fixture
def lab(killed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    quick(monkeypatch)
    root = tmp_path / "lab"
    shutil.copytree(killed, root)
    return Lab(root, root / "experiments" / "mine.py")


def journal(lab: Lab) -> Path:
    (path,) = journal_files(lab.root)
    return path


def rewrite(path: Path, kind: str, change: Change) -> int:
    """Change every entry of a kind, with checksums that fit; give the number of the first such line."""
    lines, first = [], 0
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        entry = json.loads(line[9:])
        if entry["kind"] == kind:
            change(entry["data"])
            first = first or number
        text = json.dumps(entry, sort_keys=True, separators=(",", ":")).encode()
        lines.append(b"%08x %s\n" % (zlib.crc32(text), text))
    path.write_bytes(b"".join(lines))
    return first


def flip(path: Path, number: int) -> None:
    """Flip a bit in the middle of a line."""
    lines = path.read_bytes().splitlines(keepends=True)
    text = bytearray(lines[number - 1])
    text[len(text) // 2] ^= 1
    path.write_bytes(b"".join([*lines[: number - 1], bytes(text), *lines[number:]]))


def first_visit_line(path: Path, count: int) -> int:
    """The number of the line of visit number `count`."""
    lines = path.read_bytes().splitlines()
    return [n for n, line in enumerate(lines, 1) if b'"kind":"visit"' in line][count - 1]


def put(**fields: Any) -> Change:
    return lambda data: data.update(fields)


# name -> the kind of entry that is odd, what makes it so, and what is said of it.
ODD: dict[str, tuple[str, Change, str]] = {
    "machine": ("header", put(machine={}), "slug"),
    "slug": ("header", put(machine={"slug": "../../elsewhere"}), "plain file name"),
    "naive": ("header", put(started="2026-11-29T21:00:00"), "time with its zone"),
    "pairs": ("header", put(pairs="x"), "header.pairs"),
    "no pairs": ("header", put(pairs=0), "at least 1"),
    "provenance": ("header", put(provenance=5), "header.provenance"),
    "experiment": ("header", put(experiment={"name": "null-ab"}), "experiment"),
    "format": ("header", put(format=FORMAT + 1), f"format {FORMAT}"),
    "metrics": ("visit", lambda data: data["visit"].update(metrics=None), "visit.metrics"),
    "samples": ("visit", lambda data: data["visit"].update(decode_seconds=["x"]), "visit.decode_seconds"),
    "quiet": ("visit", lambda data: data["visit"].update(quiet={"failed": ["load"]}), "load"),
    "role": ("visit", lambda data: data["visit"].update(role="third"), "visit.role"),
    "at": ("visit", put(at=5), "time"),
    "artifact": ("opened", lambda data: data["answer"].update(artifact={}), "name"),
    "probes": ("standing", put(probes=[{"name": 5}]), "Probe"),
    "note": ("note", put(text=5), "note.text"),
}


@pytest.mark.parametrize("name", [name for name in ODD if name != "note"])
def test_odd_entries_with_checksums_that_fit_are_damage_for_every_command(lab: Lab, name: str) -> None:
    kind, change, said = ODD[name]
    rewrite(journal(lab), kind, change)
    assert unfinished(lab.root) == ()
    (why,) = damaged(lab.root).values()
    assert said in str(why.got)
    with pytest.raises(JournalInvalid, match="results/journals"):
        run(lab.file, root=lab.root, resume=True, pairs=9, sink=silent, lease=lab.lease)
    notes: list[str] = []
    seal_orphans(lab.root, lambda e: notes.append(e.text) if isinstance(e, Note) else None, utc_now)
    assert journal(lab).exists()
    assert any("results/journals" in note for note in check(lab.root).notes)
    assert len(read_records(lab.root).records) == (1 if name == "note" else 0)


def test_what_came_before_a_damaged_line_is_kept_once_with_a_note(lab: Lab) -> None:
    number = first_visit_line(journal(lab), 7)
    flip(journal(lab), number)
    before = journal(lab).read_bytes()
    (path,) = seal_orphans(lab.root, silent, utc_now)
    (record,) = read_records(lab.root).records
    assert path.stem == record.run_id == f"{journal(lab).stem}-part1"
    assert len(record.visits) == 6
    assert f"its journal was damaged at line {number}" in record.notes[-1]
    notes: list[str] = []
    assert seal_orphans(lab.root, lambda e: notes.append(str(e)), utc_now) == ()
    assert f"line {number} is damaged; what came before that is kept in {path}" in notes[0]
    assert journal(lab).read_bytes() == before
    with pytest.raises(JournalInvalid, match=f"line {number} is damaged"):
        run(lab.file, root=lab.root, resume=True, sink=silent, lease=lab.lease)
    assert len(read_records(lab.root).records) == 1


def test_damage_in_what_a_partial_record_holds_already_makes_no_second_one(lab: Lab) -> None:
    assert len(seal_orphans(lab.root, silent, utc_now)) == 1
    flip(journal(lab), first_visit_line(journal(lab), 7))
    assert seal_orphans(lab.root, silent, utc_now) == ()
    (record,) = read_records(lab.root).records
    assert len(record.visits) > 6


def test_an_odd_visit_ends_what_is_kept_as_a_damaged_line_does(lab: Lab) -> None:
    seen: list[Data] = []
    count = 7

    def seventh(data: Data) -> None:
        seen.append(data)
        if len(seen) == count:
            data["visit"]["metrics"] = None

    rewrite(journal(lab), "visit", seventh)
    seal_orphans(lab.root, silent, utc_now)
    (record,) = read_records(lab.root).records
    assert len(record.visits) == count - 1


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir])
def test_what_is_no_file_is_damage_and_holds_nothing_up(lab: Lab, make: Callable[[Path], None]) -> None:
    path = journal(lab)
    path.unlink()
    make(path)
    record = lab.root / "results" / "machine" / "run.json"
    record.parent.mkdir()
    make(record)
    assert list(damaged(lab.root)) == [path.stem]
    assert labkit("store", "rebuild", "--root", lab.root).code == 0
    listed = labkit("store", "list", "--root", lab.root)
    assert "results/machine/run.json: a readable record was needed" in listed.err
    assert "not a regular file" in listed.err
    assert labkit("check", "--root", lab.root).code == 1
    assert "journals" in labkit("run", "--resume", "--root", lab.root).message()


def test_a_run_of_another_file_leaves_the_journals_of_its_name(lab: Lab) -> None:
    other = lab.root / "experiments" / "other.py"
    other.write_text(EXPERIMENT.replace("slowdown=1.1", "slowdown=1.2"))
    kept, notes = journal(lab), []
    sink = lambda event: notes.append(getattr(event, "text", ""))  # noqa: E731
    run(other, root=lab.root, pairs=1, sink=sink, lease=lab.lease)
    run(null_experiment(pairs=1), root=lab.root, sink=sink, lease=lab.lease)
    assert journal_files(lab.root) == (kept,)
    assert not any("To go on with it instead" in note for note in notes)
    with pytest.raises(JournalInvalid, match="none of null-ab"):
        run(other, root=lab.root, resume=True, sink=silent, lease=lab.lease)


def test_a_run_of_the_file_as_it_is_now_leaves_the_journals_of_another_text(lab: Lab) -> None:
    kept = journal(lab)
    lab.file.write_text(EXPERIMENT.replace("slowdown=1.1", "slowdown=1.2"))
    run(lab.file, root=lab.root, pairs=1, sink=silent, lease=lab.lease)
    assert journal_files(lab.root) == (kept,)


def test_a_run_that_lives_or_is_not_sealed_keeps_its_journal(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("labkit.lab.measuring.run.seal_orphans", lambda *_, **__: ())
    kept = journal(lab)
    run(lab.file, root=lab.root, pairs=1, sink=silent, lease=lab.lease)
    assert journal_files(lab.root) == (kept,)


def test_a_resume_whose_journal_cannot_be_written_loses_no_visit(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    seal_orphans(lab.root, silent, utc_now)
    with monkeypatch.context() as patch:
        patch.setattr(durable, "append", full)
        second = lab.stop(8, resume=True)
    third = lab.stop(10, resume=True)
    visits = {record.run_id: len(record.visits) for record in read_records(lab.root).records}
    assert second is not None
    assert third is not None
    assert third.stem == f"{journal(lab).stem}-part3"
    assert len(visits) == 3
    assert visits[third.stem] > visits[f"{journal(lab).stem}-part1"]


def test_the_journal_of_a_name_is_not_taken_for_that_of_a_longer_one(lab: Lab) -> None:
    path = journal(lab)
    flip(path.rename(path.with_name(path.name.replace("null-ab", "null-ab-at-1k"))), 1)
    with pytest.raises(JournalInvalid, match="none of null-ab"):
        run(lab.file, root=lab.root, resume=True, sink=silent, lease=lab.lease)


def test_a_run_whose_file_is_gone_is_not_offered(lab: Lab) -> None:
    kept = lab.root / "experiments" / "promoted"
    kept.mkdir()
    moved = lab.file.rename(kept / "null-ab.py")
    (run_,) = unfinished(lab.root)
    assert run_.place(lab.root) == moved
    moved.unlink()
    assert run_.place(lab.root) is None
    assert "an unfinished run to resume was needed" in labkit("run", "--resume", "--root", lab.root).message()
    assert check(lab.root).notes == ()


def test_a_whole_last_line_that_does_not_check_is_damage_and_is_not_cut(lab: Lab) -> None:
    path = journal(lab)
    last = len(path.read_bytes().splitlines())
    flip(path, last)
    before = path.read_bytes()
    assert f"line {last} is damaged" in str(damaged(lab.root)[path.stem].got)
    assert len(seal_orphans(lab.root, silent, utc_now)) == 1
    assert path.read_bytes() == before


def test_a_stop_without_a_whole_journal_does_not_offer_to_go_on(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, calls = durable.append, iter(range(1000))

    def full_after(handle: int, data: bytes) -> None:
        if next(calls) >= 10:
            raise OSError(28, "No space left on device")
        append(handle, data)

    journal(lab).unlink()
    monkeypatch.setattr(durable, "append", full_after)
    with pytest.raises(RunStopped) as stopped:
        lab.run(sink=interrupting(6))
    assert stopped.value.path is not None
    assert stopped.value.next_step is None


def test_everything_that_a_journal_tells_comes_back(lab: Lab) -> None:
    path, at = journal(lab), "2030-01-01T00:00:00+00:00"
    busy = Probe("busy_cores", True, 9.0, 1.0, ok=False)
    told = {
        "note": {"text": "a recipe was laid over the candidate"},
        "ceilings": {"role": "baseline", "card": {"card": "a cost card"}},
        "standing": {"probes": [busy.to_json()]},
        "windows": {"text_hash": "text", "windows_hash": "windows"},
        "score": {"score": WindowScore((0.1,), (1.0,), (1.1,), (True,)).to_json()},
        "resumed": {"pairs": 3, "gap_s": 1.5, "partial": "part1"},
    }
    entries = [*read_entries(path), *(Entry(kind, {**data, "at": at}) for kind, data in told.items())]
    restored = restore(entries, path.name)
    found = restored.findings
    assert found.notes[-1:] == ["a recipe was laid over the candidate"]
    assert found.rooflines["baseline"] == {"card": "a cost card"}
    assert found.measured.standing[-1] == busy
    assert (found.text_hash, found.windows_hash, len(found.scores)) == ("text", "windows", 1)
    assert found.resumed == [{"at": at, "pairs": 3, "gap_s": 1.5, "partial": "part1"}]
    assert restored.last_at.isoformat() == at
    later = Entry("sealed", {"run_id": "r", "at": "2031-01-01T00:00:00+00:00"})
    sealed = restore([*entries, later], path.name)
    assert (sealed.sealed, sealed.last_at) == ("r", restored.last_at)


def test_a_control_is_made_anew_so_nobody_is_told_to_go_on_with_one(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal(lab)
    assert any("unfinished run" in note for note in check(lab.root).notes)
    (found,) = unfinished(lab.root)
    file = found.restored.findings.file
    control = replace(file.experiment, name="aa-null-ab", control=True)
    found.restored.findings.file = replace(file, experiment=control)
    monkeypatch.setattr("labkit.lab.deciding.notes.unfinished", lambda root: (found,))
    assert not any("unfinished run" in note for note in check(lab.root).notes)


def test_a_partial_record_ends_with_the_last_sign_of_life(lab: Lab) -> None:
    last = json.loads(journal(lab).read_bytes().splitlines()[-1][9:])["data"]["at"]
    seal_orphans(lab.root, silent, utc_now)
    (record,) = read_records(lab.root).records
    assert record.ended_at == f"{last[:19]}+00:00"


@pytest.mark.parametrize("told", [True, False], ids=["told", "a full disk takes no line of it"])
def test_a_finished_run_whose_record_was_rescued_is_not_taken_for_a_killed_one(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    def full(record: Record, root: Path) -> Path:
        if root == lab.root:
            raise OSError(28, "No space left on device")
        return write_record(record, root)

    with monkeypatch.context() as patch:
        patch.setattr("labkit.lab.measuring.keep.write_record", full)
        if not told:
            patch.setattr(RunJournal, "rescued", lambda *_: None)
        with pytest.raises(ResultsUnwritable) as caught:
            lab.run(resume=True)
    rescued = caught.value.path
    assert rescued is not None
    notes: list[str] = []
    assert seal_orphans(lab.root, lambda e: notes.append(str(e)), utc_now) == ()
    assert str(rescued) in notes[0]
    assert unfinished(lab.root) == ()
    assert read_records(lab.root).records == ()
    with pytest.raises(JournalInvalid, match=f"(?s)complete record of .*{rescued}.*move it there"):
        lab.run(resume=True)
    folder = lab.root / "results" / rescued.parent.name
    folder.mkdir(exist_ok=True)
    shutil.move(rescued, folder)
    seal_orphans(lab.root, silent, utc_now)
    assert journal_files(lab.root) == ()
    assert [record.state for record in read_records(lab.root).records] == ["complete"]
