"""Damaged records set aside: moved with their reason, never deleted, never over another file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from labkit.store import query
from labkit.store.durable import write_new
from labkit.store.index import refresh
from labkit.store.read import read_records, record_files
from labkit.store.set_aside import SetAsideRefused, set_aside
from labkit.store.write import write_record
from tests.unit.command_line import files, labkit
from tests.unit.power_cut import LOSSES, Loss, Recorder, every_moment
from tests.unit.sample_records import SLUG, sample_record

TORN = f"results/{SLUG}/torn.json"


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    write_record(sample_record(run_id="run-1", pairs=2), tmp_path)
    (tmp_path / TORN).write_text('{"schema": 1,')
    wrong = sample_record(run_id="wrong", pairs=2).to_json()
    wrong["arms"][1]["metrics"]["decode_tps"]["value"] = "fast"
    (tmp_path / "results" / SLUG / "wrong.json").write_text(json.dumps(wrong))
    return tmp_path


def test_all_damaged_records_are_moved_with_their_reasons(lab: Path) -> None:
    before = {p.name: p.read_bytes() for p in record_files(lab)}
    moved = set_aside(lab)
    assert [each.path for each in moved] == [TORN, f"results/{SLUG}/wrong.json"]
    assert [p.name for p in record_files(lab)] == ["run-1.json"]
    for each in moved:
        target = lab / each.moved_to
        assert target.read_bytes() == before[target.name]
        assert target.with_name(f"{target.name}.reason.txt").read_text() == f"{each.path}\n{each.reason}\n"
    assert "fast" in moved[1].reason
    assert query.damaged(lab).empty
    assert len(query.results(lab)) == 2
    assert set_aside(lab) == ()


def test_a_taken_name_gets_a_number(lab: Path) -> None:
    for number in range(3):
        (lab / TORN).write_text(f"torn {number}")
        set_aside(lab, [TORN])
    folder = lab / "results" / "set-aside" / SLUG
    assert {p.name: p.read_text() for p in folder.glob("*.json")} == {
        "torn.json": "torn 0",
        "torn.2.json": "torn 1",
        "torn.3.json": "torn 2",
    }


def test_a_name_that_is_taken_without_a_reason_is_taken(lab: Path) -> None:
    folder = lab / "results" / "set-aside" / SLUG
    folder.mkdir(parents=True)
    (folder / "torn.json").write_text("another")
    (moved,) = set_aside(lab, [TORN])
    assert moved.moved_to == f"results/set-aside/{SLUG}/torn.2.json"
    assert files(folder) == {"torn.json", "torn.2.json", "torn.2.json.reason.txt"}
    assert (folder / "torn.json").read_text() == "another"


@pytest.mark.parametrize("loss", LOSSES)
def test_a_power_cut_loses_no_damaged_record(tmp_path: Path, loss: Loss) -> None:
    recorder = Recorder(tmp_path)
    with recorder.recording():
        write_new(tmp_path / TORN, "torn")
        recorder.mark("there")
        set_aside(tmp_path, [TORN])
        recorder.mark("aside")
    place = f"results/set-aside/{SLUG}/torn.json"
    for disk in every_moment(recorder.operations):
        found = disk.after(loss)
        if disk.marks:
            assert b"torn" in (found.get(TORN), found.get(place))
        if len(disk.marks) == 2:
            assert TORN not in found and found[f"{place}.reason.txt"]


def test_a_healthy_record_is_refused_and_nothing_moves(lab: Path) -> None:
    before = files(lab)
    with pytest.raises(SetAsideRefused, match="a healthy one stays"):
        set_aside(lab, [TORN, f"results/{SLUG}/run-1.json"])
    assert files(lab) == before


@pytest.mark.parametrize(
    "path", ["results/nothing.json", "../outside.json", "results", f"results/{SLUG}/no.json"]
)
def test_what_is_no_record_is_refused(lab: Path, path: str) -> None:
    with pytest.raises(SetAsideRefused, match="a file among the records"):
        set_aside(lab, [path])


def test_the_commands_say_what_is_damaged_and_where_it_went(lab: Path) -> None:
    listed = labkit("store", "list", "--root", lab)
    assert listed.code == 0
    assert "run-1" in listed.out and "torn.json" in listed.err and "torn.json" not in listed.out
    rows = json.loads(labkit("store", "list", "--json", "--root", lab).out)
    assert [row["run_id"] for row in rows["records"]] == ["run-1"]
    assert [row["path"] for row in rows["damaged"]] == [TORN, f"results/{SLUG}/wrong.json"]
    refused = labkit("store", "set-aside", f"results/{SLUG}/run-1.json", "--root", lab)
    assert refused.code == 1 and "healthy" in refused.message()
    moved = json.loads(labkit("store", "set-aside", "--json", "--root", lab).out)
    assert [row["path"] for row in moved] == [TORN, f"results/{SLUG}/wrong.json"]
    rebuilt = json.loads(labkit("store", "rebuild", "--json", "--root", lab).out)
    assert (rebuilt["records"], rebuilt["damaged"], rebuilt["database"]) == (1, [], "results/lab.duckdb")


@pytest.fixture
def outside(lab: Path, tmp_path: Path) -> Path:
    """A folder elsewhere with another program's file, which links in the lab lead to."""
    folder = tmp_path.parent / f"{tmp_path.name}-outside"
    folder.mkdir()
    (folder / "precious.json").write_text('{"my": "own"}')
    (lab / "results" / "evil").symlink_to(folder)
    (lab / "results" / SLUG / "link.json").symlink_to(folder / "precious.json")
    return folder


LINKS = ["results/evil", f"results/{SLUG}/link.json"]


def test_a_link_out_of_the_lab_is_listed_and_neither_followed_nor_moved(lab: Path, outside: Path) -> None:
    for _ in range(2):
        listed = query.damaged(lab).set_index("path")["reason"]
        assert all("a link out of the lab" in listed[path] for path in LINKS)
        assert "results/evil/precious.json" not in listed
        assert {*LINKS, TORN} == {d.path for d in read_records(lab).damaged}
        refresh(lab, query.database_path(lab))
    assert [each.path for each in set_aside(lab)] == [TORN, f"results/{SLUG}/wrong.json"]
    assert [path.name for path in outside.iterdir()] == ["precious.json"]
    assert sorted(query.damaged(lab)["path"]) == sorted(LINKS)
    (lab / "results" / "evil").unlink()
    assert list(query.damaged(lab)["path"]) == LINKS[1:]


@pytest.mark.parametrize("named", ["results/evil/precious.json", f"results/{SLUG}/link.json", "outside"])
def test_what_lies_elsewhere_is_refused_by_whatever_name(lab: Path, outside: Path, named: str) -> None:
    path = outside / "precious.json" if named == "outside" else Path(named)
    with pytest.raises(SetAsideRefused, match="a file among the records was needed"):
        set_aside(lab, [path])
    assert (outside / "precious.json").exists()


def test_results_itself_may_be_a_link(lab: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path.parent / f"{tmp_path.name}-disk"
    (lab / "results").rename(elsewhere)
    (lab / "results").symlink_to(elsewhere)
    assert len(query.damaged(lab)) == 2
    assert [each.path for each in set_aside(lab, [elsewhere / SLUG / "torn.json"])] == [TORN]
    assert [each.path for each in set_aside(lab)] == [f"results/{SLUG}/wrong.json"]
