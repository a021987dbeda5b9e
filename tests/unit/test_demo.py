"""`labkit demo` runs the shipped experiments that are open or promoted, and says what became of others."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from labkit.cli.demo import SHIPPED
from tests.unit.command_line import EXPERIMENT, files, labkit, make_lab

FIRST, SECOND = SHIPPED
# 40% fewer bytes, which is exact: two pairs leave it unresolved and the picture is drawn all the same.
OPEN = {name: EXPERIMENT.replace("null-ab", name) for name in SHIPPED}


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lab with both, whose lease is nobody else's."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    folder = make_lab(tmp_path / "lab", OPEN[FIRST], f"{FIRST}.py")
    (folder / "experiments" / f"{SECOND}.py").write_text(OPEN[SECOND])
    return folder


def recorded(lab: Path) -> list[str]:
    return sorted(name for name in files(lab) if name.startswith("results/") and name.endswith(".json"))


def promote(lab: Path, name: str) -> None:
    """What a promotion does with the file."""
    (lab / "experiments" / "promoted").mkdir(exist_ok=True)
    file = lab / "experiments" / f"{name}.py"
    file.rename(file.parent / "promoted" / file.name)


def test_a_promoted_one_runs_and_an_open_one_too(lab: Path) -> None:
    promote(lab, FIRST)
    ended = labkit("demo", "--root", lab)
    assert ended.code == 0, ended.err
    assert len(recorded(lab)) == 2
    assert "skipped" not in ended.out
    assert "labkit new experiment mine" in ended.out and "cp " not in ended.out


def test_of_a_deleted_one_it_says_what_was_decided(lab: Path) -> None:
    assert labkit("delete", FIRST, "--why", "too slow here", "--root", lab).code == 0
    ended = labkit("demo", "--root", lab)
    assert ended.code == 0, ended.err
    assert f"- skipped {FIRST}, which was deleted on " in ended.out
    assert ": too slow here" in ended.out
    assert len(recorded(lab)) == 1


def test_with_none_left_it_says_so_and_what_next(lab: Path) -> None:
    assert labkit("delete", FIRST, "--why", "too slow here", "--root", lab).code == 0
    (lab / "experiments" / f"{SECOND}.py").unlink()
    ended = labkit("demo", "--root", lab)
    assert ended.code == 1
    for words in (
        f"a shipped experiment, open or promoted, was needed in {lab / 'experiments'}",
        f"{FIRST}, which was deleted on ",
        f"{SECOND}, which is not in this lab",
        "labkit new experiment NAME",
    ):
        assert words in ended.message()
    assert recorded(lab) == []
