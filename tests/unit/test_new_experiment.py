"""`labkit new experiment`: what it writes already runs, and nothing is overwritten or left behind."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path

import pytest

from labkit.core.errors import ExperimentInvalid, RecipeInvalid
from labkit.lab import new
from labkit.lab.experiment import load_experiment
from labkit.lab.new import DAYS, new_experiment
from tests.unit.command_line import files, labkit
from tests.unit.null_experiment import null_experiment

TODAY = date(2026, 3, 1)
HEAD = (
    "| experiment | deleted | promoted before | outcome | why | claim | evidence |\n"
    "|---|---|---|---|---|---|---|\n"
)


def test_the_file_is_a_valid_experiment_that_expires(tmp_path: Path) -> None:
    made = new_experiment(tmp_path, "first-try", today=TODAY)
    experiment = load_experiment(made.file).experiment
    assert experiment.name == "first-try"
    assert experiment.expiry() == TODAY + timedelta(days=DAYS)
    assert experiment.baseline.model == experiment.candidate.model == "smollm2"
    assert experiment.hypothesis.margins()


@pytest.mark.slow
def test_both_run_on_the_null_model(tmp_path: Path) -> None:
    assert labkit("new", "experiment", "first-try", "--model", "null", "--root", tmp_path).code == 0
    ran = labkit("run", tmp_path / "experiments" / "first-try.py", "--root", tmp_path)
    assert ran.code == 0, ran.err
    assert "the hypothesis is supported" in ran.out
    command = [
        sys.executable,
        "-m",
        "nbconvert",
        "--to",
        "notebook",
        "--execute",
        "--output-dir",
        str(tmp_path),
    ]
    done = subprocess.run(
        [*command, str(tmp_path / "notebooks" / "first-try.ipynb")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    cells = json.loads((tmp_path / "first-try.ipynb").read_text(encoding="utf-8"))["cells"]
    shown = json.dumps([cell.get("outputs") for cell in cells])
    assert "prefill" in shown and "kv_bytes" in shown and "supported" in shown
    assert len(list((tmp_path / "results").glob("*/*-first-try-*.json"))) == 2


def test_the_notebook_uses_the_public_api_in_short_cells(tmp_path: Path) -> None:
    made = new_experiment(tmp_path, "first-try", today=TODAY)
    cells = json.loads(made.notebook.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert code
    for source in code:
        assert len(source.splitlines()) <= 10
        for node in ast.walk(ast.parse(source)):
            inside = isinstance(node, ast.ImportFrom) and (node.module or "").startswith("labkit.")
            assert not inside and "labkit._" not in source
    assert all(not cell["outputs"] for cell in cells if cell["cell_type"] == "code")


@pytest.mark.parametrize(
    "name", ["", "Upper", "with space", "../up", "-dash", "a/b", "ü", "x" * 65, "a_b", "a\n"]
)
def test_bad_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ExperimentInvalid, match="lower-case letters, digits and hyphens"):
        new_experiment(tmp_path, name, today=TODAY)
    assert list(tmp_path.iterdir()) == []


def test_the_next_step_of_a_bad_name_is_a_good_one(tmp_path: Path) -> None:
    ended = labkit("new", "experiment", "My Idea_2", "--root", tmp_path)
    assert ended.code == 1
    assert ended.message().endswith("next:    labkit new experiment my-idea-2\n")


@pytest.mark.parametrize("there", ["experiments/taken.py", "notebooks/taken.ipynb"])
def test_nothing_is_overwritten(tmp_path: Path, there: str) -> None:
    (tmp_path / there).parent.mkdir()
    (tmp_path / there).write_text("mine")
    with pytest.raises(ExperimentInvalid, match="is there"):
        new_experiment(tmp_path, "taken", today=TODAY)
    assert files(tmp_path) == {there}
    assert (tmp_path / there).read_text() == "mine"


def test_a_file_that_appears_meanwhile_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new, "_check_free", lambda root, wanted: None)
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "taken.ipynb").write_text("mine")
    with pytest.raises(ExperimentInvalid, match=r"taken\.ipynb is there"):
        new_experiment(tmp_path, "taken", today=TODAY)
    assert files(tmp_path) == {"notebooks/taken.ipynb"}
    assert not (tmp_path / "experiments").exists()
    assert (tmp_path / "notebooks" / "taken.ipynb").read_text() == "mine"


def test_the_name_inside_another_file_counts(tmp_path: Path) -> None:
    made = new_experiment(tmp_path, "inside", today=TODAY)
    made.file.rename(made.file.with_name("other.py"))
    made.notebook.unlink()
    with pytest.raises(ExperimentInvalid, match=r"the experiment of experiments/other\.py"):
        new_experiment(tmp_path, "inside", today=TODAY)


def test_a_name_in_the_graveyard_is_taken(tmp_path: Path) -> None:
    (tmp_path / "experiments").mkdir()
    line = "| buried | 2026-01-02 | no | refuted | too slow | it is fast | none |\n"
    (tmp_path / "experiments" / "GRAVEYARD.md").write_text(HEAD + line)
    with pytest.raises(ExperimentInvalid, match="buried: deleted on 2026-01-02"):
        new_experiment(tmp_path, "buried", today=TODAY)
    assert files(tmp_path) == {"experiments/GRAVEYARD.md"}


def test_a_promoted_name_is_taken(tmp_path: Path) -> None:
    from labkit.core.arm import Arm, Workload
    from labkit.core.decision import Evidence, Recipe
    from labkit.store.recipes import add_recipe

    (tmp_path / "experiments").mkdir()
    recipe = Recipe(
        name="kept",
        why="it is fast",
        decided_at="2026-01-02",
        machine="m",
        family="f",
        workload=Workload(8, 8),
        baseline=Arm("a"),
        arm=Arm("a", kv="affine:8"),
        fingerprint="0" * 16,
        outcome="supported",
        axes=("decode: better",),
        evidence=(Evidence("run", "results/m/run.json", "0" * 64),),
    )
    add_recipe(tmp_path, recipe)
    with pytest.raises(ExperimentInvalid, match="kept: promoted on 2026-01-02"):
        new_experiment(tmp_path, "kept", today=TODAY)


def test_a_broken_file_of_decisions_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "promoted.toml").write_text("[[recipe")
    with pytest.raises(RecipeInvalid):
        new_experiment(tmp_path, "any", today=TODAY)
    assert files(tmp_path) == {"experiments/promoted.toml"}


def test_a_name_among_the_records_is_taken(tmp_path: Path) -> None:
    from labkit.store.write import write_record
    from tests.unit.sample_records import sample_record

    path = write_record(sample_record(), tmp_path)
    with pytest.raises(ExperimentInvalid, match="the record results/"):
        new_experiment(tmp_path, path.stem.split("-", 1)[1].rpartition("-")[0], today=TODAY)
    # A name that only begins or ends alike is free.
    assert new_experiment(tmp_path, "kv8", today=TODAY).file.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_folder_is_one_message(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        ended = labkit("new", "experiment", "any", "--root", tmp_path)
    finally:
        tmp_path.chmod(0o700)
    assert ended.code == 1
    assert "Permission denied" in ended.message()


def test_a_failure_half_way_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = new._write

    def full(path: Path, text: str, made: list[Path]) -> None:
        write(path, text[:100], made)
        if path.suffix == ".ipynb":
            raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(new, "_write", full)
    with pytest.raises(OSError, match="No space left"):
        new_experiment(tmp_path, "any", today=TODAY)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_model_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    ended = labkit("new", "experiment", "any", "--model", "smolm2", "--root", tmp_path)
    assert ended.code == 1
    assert "did you mean smollm2?" in ended.message()
    assert list(tmp_path.iterdir()) == []


def test_it_says_what_to_do_next(tmp_path: Path) -> None:
    lab = tmp_path / "a lab"
    lab.mkdir()
    ended = labkit("new", "experiment", "any", "--model", "null", "--root", lab)
    assert f"labkit run '{lab}/experiments/any.py' --root '{lab}'" in ended.out
    listed = json.loads(labkit("new", "experiment", "two", "--model", "null", "--root", lab, "--json").out)
    assert Path(listed["notebook"]).is_file()


def test_the_null_draft_is_like_the_experiments_of_the_tests(tmp_path: Path) -> None:
    made = new_experiment(tmp_path, "any", today=TODAY, model="null:slowdown=2")
    experiment = load_experiment(made.file).experiment
    assert experiment.candidate.model == "null:slowdown=2,kv_bytes_per_token=32"
    assert set(experiment.hypothesis.margins()) == set(null_experiment().hypothesis.margins())
