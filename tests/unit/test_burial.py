"""`labkit delete`: the file, its notebook, recipe and name; a deletion that was torn."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from labkit.core.errors import DecisionRefused
from labkit.lab.deciding import burial
from labkit.lab.deciding.burial import delete
from labkit.lab.deciding.check import check
from labkit.lab.deciding.promotion import promote
from labkit.lab.new import new_experiment
from labkit.lab.reading.board import board
from labkit.store.decisions import read_burials, read_recipes
from labkit.store.graveyard import graveyard_path
from labkit.store.journal import create_journal
from tests.unit.decided_lab import EXPERIMENT, NAME, RUN_ID, TODAY, measured_lab, open_lab, record_path
from tests.unit.sample_records import SLUG

ASIDE = Path("results") / "set-aside" / "experiments"


pytestmark = pytest.mark.usefixtures("sample_code")


def git(folder: Path, *arguments: str) -> None:
    own = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    subprocess.run(["git", *own, *arguments], cwd=folder, check=True, capture_output=True)


def test_deleting_keeps_a_file_that_git_does_not_hold(tmp_path: Path) -> None:
    lab = measured_lab(tmp_path)
    decided = delete(NAME, why="it | lost\nall", root=lab, today=TODAY)
    assert (lab / ASIDE / "null-ab.py").read_text() == EXPERIMENT
    assert "deleted on 2026-12-01: it | lost" in (lab / ASIDE / "null-ab.txt").read_text()
    assert "results/set-aside/experiments/null-ab.py" in decided.text()
    (line,) = read_burials(lab)
    assert (line.claim, line.outcome, line.evidence) == (
        "less memory at hardly any cost",
        "supported",
        (RUN_ID,),
    )
    assert record_path(lab).exists() and check(lab, today=TODAY).ok


def test_deleting_removes_a_file_that_git_holds_as_it_is(tmp_path: Path) -> None:
    lab = open_lab(tmp_path)
    git(lab, "init", "-q")
    git(lab, "add", "-A")
    git(lab, "commit", "-qm", "x")
    open_lab(lab, EXPERIMENT.replace("null-ab", "second"), "second.py")
    git(lab, "add", "-A")
    delete(NAME, why="x", root=lab, today=TODAY)
    assert not (lab / "results").exists()
    delete("second", why="only staged", root=lab, today=TODAY)
    assert (lab / ASIDE / "second.py").exists()
    assert [b.name for b in read_burials(lab)] == [NAME, "second"]


def test_deleting_an_edited_file_of_git_keeps_the_edit(tmp_path: Path) -> None:
    lab = open_lab(tmp_path)
    git(lab, "init", "-q")
    git(lab, "add", "-A")
    git(lab, "commit", "-qm", "x")
    open_lab(lab, EXPERIMENT + "# an edit\n")
    delete(NAME, why="x", root=lab, today=TODAY)
    assert (lab / ASIDE / "null-ab.py").read_text().endswith("# an edit\n")


def test_nothing_set_aside_is_overwritten(tmp_path: Path) -> None:
    lab = open_lab(tmp_path)
    (lab / ASIDE).mkdir(parents=True)
    (lab / ASIDE / "null-ab.py").write_text("precious")
    delete(NAME, why="x", root=lab, today=TODAY)
    assert (lab / ASIDE / "null-ab.py").read_text() == "precious"
    assert (lab / ASIDE / "null-ab-2.py").read_text() == EXPERIMENT


def test_deleting_a_promoted_one_withdraws_its_recipe(tmp_path: Path) -> None:
    lab = measured_lab(tmp_path)
    promote(NAME, why="x", root=lab, today=TODAY, machine=SLUG)
    decided = delete(NAME, why="a driver made it slower", root=lab, today=TODAY)
    assert read_recipes(lab) == () and read_burials(lab)[0].withdrawn
    assert "withdrawn" in decided.text() and check(lab, today=TODAY).ok
    assert [(r.state, r.records) for r in board(lab, TODAY, decided=True)] == [("deleted", 1)]


def test_a_file_that_does_not_load_is_deleted_by_its_stem(tmp_path: Path) -> None:
    lab = open_lab(tmp_path, "nonsense(", "broken.py")
    delete("broken", why="x", root=lab, today=TODAY)
    assert (read_burials(lab)[0].outcome, check(lab, today=TODAY).ok) == ("not measured", True)


def test_a_deletion_torn_by_a_kill_is_ended_by_the_same_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = measured_lab(tmp_path)
    promote(NAME, why="x", root=lab, today=TODAY, machine=SLUG)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    for step in ("remove_recipe", "_remove"):
        with monkeypatch.context() as patched:
            patched.setattr(burial, step, killed)
            with pytest.raises(KeyboardInterrupt):
                delete(NAME, why="first", root=lab, today=TODAY)
        assert any("labkit delete null-ab" in f.next_step for f in check(lab, today=TODAY).faults)
    assert delete(NAME, why="again", root=lab, today=TODAY).decision.why == "first"
    assert (check(lab, today=TODAY).ok, len(read_burials(lab)), read_recipes(lab)) == (True, 1, ())


def test_a_disk_that_does_not_let_go_is_one_message(tmp_path: Path) -> None:
    lab = open_lab(tmp_path)
    (lab / "results").write_text("a file in the way")
    with pytest.raises(DecisionRefused, match=r"null-ab is deleted, but experiments/null-ab.py could not be"):
        delete(NAME, why="x", root=lab, today=TODAY)
    (lab / "results").unlink()
    delete(NAME, why="x", root=lab, today=TODAY)
    assert check(lab, today=TODAY).ok


def test_the_notebook_that_was_made_with_the_file_goes_with_it(tmp_path: Path) -> None:
    new_experiment(tmp_path, "mine", today=TODAY, model="null")
    other = tmp_path / "notebooks" / "another.ipynb"
    other.write_text("experiments/mine.py")
    decided = delete("mine", why="x", root=tmp_path, today=TODAY)
    assert list((tmp_path / "notebooks").iterdir()) == [other]
    assert sorted(path.name for path in (tmp_path / ASIDE).iterdir()) == [
        *("mine.ipynb", "mine.ipynb.txt", "mine.py", "mine.txt")
    ]
    assert (
        "notebook:  notebooks/mine.ipynb moved to results/set-aside/experiments/mine.ipynb" in decided.text()
    )


def test_what_is_to_be_committed_is_named_and_git_takes_it(tmp_path: Path) -> None:
    lab = measured_lab(tmp_path)
    git(lab, "init", "-q")
    git(lab, "add", "-A")
    git(lab, "commit", "-qm", "x")
    (lab / "experiments" / "draft.txt").write_text("of no concern")
    for decide in (promote, delete):
        hint = dict(decide(NAME, why="x", root=lab, today=TODAY).lines)["commit"]
        git(lab, *shlex.split(hint)[1:])
        assert staged(lab) == ["?? experiments/draft.txt"]
        git(lab, "commit", "-qm", "x")


def staged(folder: Path) -> list[str]:
    """What git has not staged as it lies there."""
    command = ["git", "status", "--porcelain", "--untracked-files=all"]
    lines = subprocess.run(
        command, cwd=folder, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    return [line for line in lines if line[1] != " " and not line.endswith(".duckdb")]


def test_a_new_experiment_under_a_buried_name_is_not_deleted(tmp_path: Path) -> None:
    lab = open_lab(tmp_path)
    delete(NAME, why="first", root=lab, today=TODAY)
    text = EXPERIMENT.replace("less memory at hardly any cost", "another idea")
    open_lab(lab, text)
    with pytest.raises(DecisionRefused, match=r"got that of a deleted one; give it another"):
        delete(NAME, why="again", root=lab, today=TODAY)
    assert (lab / "experiments" / "null-ab.py").read_text() == text
    (fault,) = check(lab, today=TODAY).faults
    assert fault.next_step == "give the experiment another name"


def test_a_torn_deletion_of_what_was_never_measured_is_ended_and_keeps_its_reason(tmp_path: Path) -> None:
    lab = open_lab(tmp_path)
    delete(NAME, why="first", root=lab, today=TODAY)
    open_lab(lab)
    decided = delete(NAME, why="again", root=lab, today=TODAY)
    assert ("why", "as first given: first; the one given now was not taken") in decided.lines
    assert check(lab, today=TODAY).ok


def test_a_graveyard_without_the_column_of_files_is_read_and_added_to(tmp_path: Path) -> None:
    lab = open_lab(tmp_path)
    head = "| experiment | deleted | promoted before | outcome | why | claim | evidence |\n| --- |\n"
    graveyard_path(lab).write_text(head + "| old | 2026-11-01 | no | refuted | it lost | a claim | none |\n")
    delete(NAME, why="x", root=lab, today=TODAY)
    old, new = read_burials(lab)
    assert (old.name, old.sources, new.name, len(new.sources)) == ("old", (), NAME, 1)


def test_nothing_is_deleted_while_its_run_goes_on(tmp_path: Path) -> None:
    lab = open_lab(tmp_path)
    journal = create_journal(lab / "results" / "journals" / f"{RUN_ID}.jsonl")
    with pytest.raises(DecisionRefused, match="one of null-ab that goes on"):
        delete(NAME, why="gone", root=lab, today=TODAY)
    journal.close()
    delete(NAME, why="gone", root=lab, today=TODAY)
    assert not journal.path.exists() and check(lab, today=TODAY).ok
