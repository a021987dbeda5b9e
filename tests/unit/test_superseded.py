"""A run that stopped and went on counts once: the partial records of its stops decide and double nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from labkit.core.records import Record
from labkit.lab.deciding.burial import delete
from labkit.lab.reading.board import board
from labkit.lab.reading.runs import runs
from labkit.store import query
from labkit.store.index import refresh
from labkit.store.write import write_record
from tests.unit.command_line import labkit
from tests.unit.decided_lab import NAME, open_lab
from tests.unit.sample_records import KV8, SLUG, sample_record

RUN = "20261105T101500Z-null-ab-0a1b2c"
SHAPE = replace(KV8, name=NAME)
VIEWS = ("results", "axes", "visits", "pairs", "history", "arm_metrics", "visit_metrics")


def _stop(number: int, *, journal_id: str = RUN, slug: str = SLUG) -> Record:
    """The partial record of a run's stop, from 1."""
    stopped = sample_record(SHAPE, run_id=f"{journal_id}-part{number}", pairs=1 + number, slug=slug)
    resumed = ({"at": "2026-11-05T10:17:00Z", "pairs": 2, "gap_s": 60.0, "partial": ""},) * (number - 1)
    return replace(stopped, state="partial", outcome="undecided", journal_id=journal_id, resumed=resumed)


def _end(outcome: str = "supported") -> Record:
    """The complete record of the same run, which began when its stops' records say."""
    return replace(sample_record(SHAPE, run_id=RUN, pairs=4), outcome=outcome, journal_id=RUN)


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A run that stopped twice and was then completed."""
    open_lab(tmp_path)
    for record in (_stop(1), _stop(2), _end()):
        write_record(record, tmp_path)
    return tmp_path


def _run_ids(root: Path, name: str) -> set[str]:
    return set(query.sql(root, f"SELECT DISTINCT run_id FROM {name}")["run_id"])


def test_the_complete_record_alone_counts(lab: Path) -> None:
    assert [(run.run_id, run.outcome) for run in runs(lab)] == [(RUN, "supported")]
    (row,) = board(lab, date(2026, 11, 29))
    assert (row.records, row.last_outcome) == (1, "supported")


def test_a_burial_says_the_outcome_of_the_complete_record(lab: Path) -> None:
    decided = delete(NAME, why="enough", root=lab, today=date(2026, 11, 29))
    assert (decided.decision.outcome, decided.decision.evidence) == ("supported", (RUN,))


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("indexed", [True, False])
def test_no_view_counts_a_visit_twice(lab: Path, name: str, indexed: bool) -> None:
    if indexed:
        refresh(lab, query.database_path(lab))
    assert _run_ids(lab, name) == {RUN}
    assert _run_ids(lab, "runs") == {RUN, f"{RUN}-part1", f"{RUN}-part2"}, "the tables hold every record"


def test_history_compares_with_the_run_before_and_not_with_a_stop(lab: Path) -> None:
    assert query.sql(lab, "FROM history WHERE previous IS NOT NULL").empty


@pytest.mark.parametrize("name", VIEWS)
def test_the_last_stop_of_a_run_that_was_not_completed_stands_alone(tmp_path: Path, name: str) -> None:
    write_record(_stop(1), tmp_path)
    assert _run_ids(tmp_path, name) == {f"{RUN}-part1"}
    write_record(_stop(2), tmp_path)
    assert _run_ids(tmp_path, name) == {f"{RUN}-part2"}
    if name in {"visits", "pairs", "history", "axes", "results"}:
        assert set(query.sql(tmp_path, f"FROM {name}")["state"]) == {"partial"}


def test_a_stop_counts_again_once_the_complete_record_is_gone(lab: Path) -> None:
    database = query.database_path(lab)
    refresh(lab, database)
    (lab / "results" / SLUG / f"{RUN}.json").unlink()
    refresh(lab, database)
    assert [run.run_id for run in runs(lab)] == [f"{RUN}-part2"]


def test_records_without_a_journal_and_those_of_other_runs_supersede_nothing(tmp_path: Path) -> None:
    for number in (1, 2):
        write_record(replace(_stop(number), journal_id=""), tmp_path)
    write_record(replace(_end(), journal_id=""), tmp_path)
    write_record(_stop(1, journal_id="another"), tmp_path)
    write_record(_stop(2, journal_id="another", slug="other-machine"), tmp_path)
    assert len(runs(tmp_path)) == 5
    assert query.superseded(tmp_path).empty


def test_superseded_names_the_record_that_holds_each_stop(lab: Path) -> None:
    rows = query.superseded(lab)[["run_id", "machine", "journal_id", "superseded_by"]].values.tolist()
    assert rows == [[f"{RUN}-part{number}", SLUG, RUN, RUN] for number in (1, 2)]


def test_the_list_has_the_complete_record_first_and_marks_its_stops(lab: Path) -> None:
    listed = json.loads(labkit("store", "list", "--root", lab, "--json").out)["records"]
    assert [(row["run_id"], row["superseded_by"]) for row in listed] == [
        (RUN, None),
        (f"{RUN}-part2", RUN),
        (f"{RUN}-part1", RUN),
    ]
    text = labkit("store", "list", "--root", lab).out
    assert text.count("superseded") == 2
    assert text.index("complete") < text.index("superseded")
