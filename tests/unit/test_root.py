"""The lab of a command: the nearest folder upwards with experiments/, as the Python API takes it."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from tests.unit.command_line import files, labkit, make_lab


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lab with a folder of notebooks, whose lease is nobody else's."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    folder = make_lab(tmp_path / "lab")
    (folder / "notebooks" / "deeper").mkdir(parents=True)
    return folder


@pytest.mark.parametrize("inside", [".", "notebooks", "notebooks/deeper", "experiments"])
def test_every_folder_of_a_lab_is_in_it(lab: Path, inside: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lab / inside)
    listed = labkit("experiments", "--json")
    assert [row["name"] for row in json.loads(listed.out)] == ["null-ab"], listed.err
    assert "1 experiment open" in labkit("check").out
    assert labkit("store", "list").code == 0
    assert labkit("store", "rebuild").code == 0
    assert {"results/lab.duckdb"} == {name for name in files(lab) if name.endswith(".duckdb")}


@pytest.mark.parametrize(
    ("inside", "file"), [("notebooks", "../experiments/mine.py"), ("experiments", "mine.py")]
)
def test_a_file_is_named_from_here_and_its_record_lands_in_the_lab(
    lab: Path, inside: str, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lab / inside)
    ended = labkit("run", file)
    assert ended.code == 0, ended.err
    assert [p.parent.parent for p in lab.rglob("*-null-ab-*.json")] == [lab / "results"]
    assert labkit("run", "experiments/mine.py").code == 1


@pytest.mark.parametrize("inside", [".", "notebooks", "experiments"])
def test_a_new_experiment_lands_in_the_lab_around(
    lab: Path, inside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lab / inside)
    ended = labkit("new", "experiment", "second", "--model", "null")
    assert ended.code == 0, ended.err
    assert {"experiments/second.py", "notebooks/second.ipynb"} <= files(lab)
    (line,) = [line for line in ended.out.splitlines() if line.startswith("then")]
    assert "--root" not in line
    assert Path(line.rpartition(" ")[2]).is_file()


def test_no_lab_is_made_inside_of_one(lab: Path) -> None:
    ended = labkit("new", "experiment", "second", "--root", lab / "notebooks")
    assert ended.code == 1
    assert f"{lab / 'notebooks'}, which is in the lab {lab}" in ended.message()
    assert f"next:    labkit new experiment second --root {lab}" in ended.message()
    assert files(lab) == {"experiments/mine.py"}


def test_outside_of_every_lab_the_current_folder_becomes_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = labkit("experiments")
    assert refused.code == 1 and f"none below {tmp_path}" in refused.message()
    assert labkit("new", "experiment", "first", "--model", "null").code == 0
    assert files(tmp_path) == {"experiments/first.py", "notebooks/first.ipynb"}


def test_a_stated_folder_is_taken_as_it_is(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lab / "notebooks")
    for stated in (".", "deeper"):
        refused = labkit("experiments", "--root", stated)
        assert f"none below {(lab / 'notebooks' / stated).resolve()}" in refused.message()
