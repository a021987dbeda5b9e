"""A recipe that puts another model in place of the arm's: its tokenizer reads the text, no ids cross."""

from __future__ import annotations

from pathlib import Path

import pytest

import labkit
from labkit import Arm, Workload
from labkit.core.decision import Evidence, Recipe
from labkit.core.errors import RecipeInvalid
from labkit.lab.measuring.provenance import machine_class
from labkit.model import registry
from labkit.model.artifact import measure
from labkit.model.backend import prepare
from labkit.store.recipes import add_recipe

PROMPT = "The capital of France is Paris and the capital of"


@pytest.fixture
def lab(tmp_path: Path, smollm2_path: Path) -> Path:
    try:
        gemma = measure(registry.resolve("gemma3-270m"))
    except labkit.LabkitError:
        pytest.skip("gemma3-270m is not here: labkit models get gemma3-270m")
    recipe = Recipe(
        name="gemma-instead",
        why="to see whose tokens are read",
        decided_at="2026-11-29",
        machine=machine_class(prepare())["slug"],
        family="smollm2-135m-instruct",
        workload=Workload(12, 4),
        baseline=Arm("smollm2"),
        arm=Arm("gemma3-270m"),
        fingerprint=gemma.fingerprint,
        outcome="supported",
        axes=(),
        evidence=(Evidence("run", "results/x/run.json", "0" * 64),),
    )
    (tmp_path / "experiments").mkdir()
    add_recipe(tmp_path, recipe)
    return tmp_path


def test_text_is_read_by_the_model_that_runs(lab: Path) -> None:
    gemma = labkit.load("gemma3-270m").session(PROMPT, max_tokens=4)
    with labkit.session(Arm("smollm2", recipe="auto"), PROMPT, max_tokens=4, root=lab) as session:
        assert session.plan.model == "gemma3-270m"
        assert session.request.prompt == gemma.request.prompt
        assert session.run().text == gemma.run().text


def test_token_ids_of_another_vocabulary_are_refused(lab: Path) -> None:
    with pytest.raises(RecipeInvalid, match="two vocabularies"):
        labkit.session(Arm("smollm2", recipe="auto"), range(1, 13), max_tokens=4, root=lab)
