"""Which promoted recipe an arm gets, and what the plan says of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import labkit
from labkit import Arm, Sampling, Workload
from labkit.core.decision import Evidence, Recipe
from labkit.core.errors import BackendMissing, PlanRefused, RecipeInvalid
from labkit.lab.deciding.recipes import choose_recipe, resolve_arms
from labkit.model.null import parse_null
from labkit.plan.recipes import Situation, choose

MACHINE = "linux-x86-64-cpu-test-2c-8g"
RECIPE = Recipe(
    name="kv8",
    why="memory is short",
    decided_at="2026-11-29",
    machine=MACHINE,
    family="smollm2-135m-instruct",
    workload=Workload(256, 32),
    baseline=Arm("smollm2"),
    arm=Arm("smollm2", kv="affine:8"),
    fingerprint="f" * 64,
    outcome="trade-off",
    axes=("KV cache 3.56x better",),
    evidence=(Evidence("20261129T000000Z-kv8-aaaaaa", "results/x/y.json", "0" * 64),),
)
HERE = Situation(MACHINE, RECIPE.family, RECIPE.fingerprint, Workload(256, 32))
ASKED = Arm("smollm2", recipe="auto")


def test_an_arm_that_asks_for_none_runs_as_written_whatever_is_promoted() -> None:
    chosen = choose(Arm("smollm2"), (RECIPE,), HERE)
    assert (chosen.arm, chosen.recipe, chosen.reason) == (Arm("smollm2"), None, "")


def test_the_recipe_of_machine_family_and_workload_is_laid_over_the_arm() -> None:
    chosen = choose(ASKED, (RECIPE,), HERE)
    assert chosen.arm == Arm("smollm2", kv="affine:8") and chosen.recipe is RECIPE
    assert chosen.reason == (
        "kv8, trade-off, promoted 2026-11-29: kv=affine:8 (not bf16)\nmeasured on this machine class and "
        "family at 256+32 tokens\nwhy: memory is short\nevidence: 20261129T000000Z-kv8-aaaaaa"
    )


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ({"machine": "another"}, f"measured on {MACHINE}"),
        ({"family": "gemma-3-270m"}, "for the family smollm2-135m-instruct"),
        ({"workload": Workload(513, 32)}, "measured at 256+32, not near 513+32"),
        ({"workload": Workload(127, 32)}, "measured at 256+32, not near 127+32"),
        ({"workload": Workload(256, 65)}, "measured at 256+32, not near 256+65"),
        ({"workload": Workload(256, 32, concurrency=2)}, "measured at 256+32, not near 256+32 x2"),
        ({"workload": Workload(256, 32, requests=4)}, "measured at 256+32, not near 256+32 of 4"),
    ],
)
def test_elsewhere_none_applies_and_the_reason_says_why(where: dict[str, Any], reason: str) -> None:
    chosen = choose(ASKED, (RECIPE,), replace(HERE, **where))
    assert chosen.arm == Arm("smollm2") and chosen.recipe is None
    assert chosen.reason == f"none applies, so the arm runs as written (kv8: {reason})"


@pytest.mark.parametrize("lengths", [(512, 64), (128, 16), (300, 20)])
def test_a_recipe_reaches_lengths_within_a_factor_of_two(lengths: tuple[int, int]) -> None:
    chosen = choose(ASKED, (RECIPE,), replace(HERE, workload=Workload(*lengths)))
    assert chosen.recipe is RECIPE
    assert f"at 256+32 tokens, asked for {lengths[0]}+{lengths[1]}\n" in chosen.reason


@pytest.mark.parametrize(
    "stated", [{"kv": "affine:4"}, {"method": "mlx-lm"}, {"prefill_chunk": 64}, {"blas": "reference"}]
)
def test_what_an_arm_states_is_never_changed_nor_combined_with_what_was_not_measured(
    stated: dict[str, Any],
) -> None:
    asked = replace(ASKED, **stated)
    chosen = choose(asked, (RECIPE,), HERE)
    assert chosen.arm == replace(asked, recipe=None) and chosen.recipe is None
    assert "and the arm states" in chosen.reason


def test_sampling_comes_after_the_graph_so_it_may_differ() -> None:
    warm = Sampling(temperature=0.8)
    assert choose(replace(ASKED, sampling=warm), (RECIPE,), HERE).arm == Arm(
        "smollm2", kv="affine:8", sampling=warm
    )


def test_what_both_measured_arms_share_must_be_the_arms_own() -> None:
    both = replace(
        RECIPE,
        baseline=Arm("smollm2", kv="affine:8"),
        arm=Arm("smollm2", kv="affine:8", prefill_chunk=64),
    )
    assert choose(replace(ASKED, kv="affine:8"), (both,), HERE).arm == both.arm
    plain = choose(ASKED, (both,), HERE)
    assert plain.recipe is None and "measured with kv=affine:8, and the arm states bf16" in plain.reason


def test_another_model_than_the_baselines_gets_no_recipe_that_changes_the_model() -> None:
    small = replace(RECIPE, arm=Arm("smollm2-4bit"))
    here = replace(HERE, models={"smollm2-4bit": RECIPE.fingerprint})
    other = choose(Arm("smollm2-8bit", recipe="auto"), (small,), here)
    assert other.recipe is None and "the arm states smollm2-8bit" in other.reason
    same_model = choose(Arm("smollm2-8bit", recipe="auto"), (RECIPE,), HERE)
    assert same_model.arm == Arm("smollm2-8bit", kv="affine:8")


def test_the_nearest_workload_decides_then_the_newest_and_the_rest_is_named() -> None:
    near = replace(RECIPE, name="near", workload=Workload(300, 32), arm=Arm("smollm2", kv="affine:4"))
    newer = replace(near, name="newer", decided_at="2026-12-01")
    chosen = choose(ASKED, (RECIPE, near, newer), replace(HERE, workload=Workload(320, 32)))
    assert chosen.recipe is newer
    assert chosen.reason.endswith("nearer or newer than kv8, near")
    assert choose(ASKED, (near, RECIPE, newer), HERE).recipe is RECIPE


def test_a_blas_that_this_process_does_not_have_is_not_pretended() -> None:
    mkl = replace(RECIPE, baseline=Arm("smollm2", blas="reference"), arm=Arm("smollm2", blas="mkl"))
    assert choose(ASKED, (mkl,), HERE).arm.blas == "mkl"
    refused = choose(ASKED, (mkl,), replace(HERE, blas="openblas"))
    assert refused.arm.blas is None
    assert "it needs the mkl BLAS, and this process runs on openblas" in refused.reason


def test_another_model_is_put_in_place_only_where_the_very_artifact_is_here() -> None:
    small = replace(RECIPE, arm=Arm("smollm2-4bit"))
    here = replace(HERE, models={"smollm2-4bit": RECIPE.fingerprint})
    assert choose(ASKED, (small,), here).arm == Arm("smollm2-4bit")
    assert "its model smollm2-4bit is not here" in choose(ASKED, (small,), HERE).reason
    other = replace(HERE, models={"smollm2-4bit": "e" * 64})
    assert "is another artifact here" in choose(ASKED, (small,), other).reason


def test_an_artifact_of_the_family_that_was_not_measured_is_said() -> None:
    chosen = choose(ASKED, (RECIPE,), replace(HERE, fingerprint="e" * 64))
    assert chosen.recipe is RECIPE and "measured on another artifact of the family" in chosen.reason


def test_a_recipe_by_name_that_does_not_apply_or_is_not_there_is_refused() -> None:
    elsewhere = replace(HERE, machine="another")
    with pytest.raises(RecipeInvalid, match=f"kv8: measured on {MACHINE}"):
        choose(replace(ASKED, recipe="kv8"), (RECIPE,), elsewhere)
    with pytest.raises(RecipeInvalid, match="no such recipe") as refused:
        choose(replace(ASKED, recipe="kv9"), (RECIPE,), HERE)
    assert refused.value.options == ("auto", "kv8")


NULL = "null:kv_bytes_per_token=100"
SMALLER = "null:kv_bytes_per_token=40"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lab with one recipe for null models on this very machine class."""
    from labkit.lab.measuring.provenance import machine_class
    from labkit.model.backend import prepare
    from labkit.store.recipes import add_recipe

    (tmp_path / "experiments").mkdir()
    recipe = replace(
        RECIPE,
        machine=machine_class(prepare())["slug"],
        family="null",
        workload=Workload(16, 8),
        baseline=Arm(NULL),
        arm=Arm(SMALLER),
        fingerprint=parse_null(SMALLER).profile.fingerprint,
    )
    add_recipe(tmp_path, recipe)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_session_and_a_plan_of_an_arm_say_which_recipe_they_follow(lab: Path) -> None:
    arm = Arm(NULL, recipe="auto")
    plan = labkit.resolve(arm, Workload(16, 8))
    assert plan.model == SMALLER and "recipe      kv8, trade-off" in plan.explain()
    assert "\n            why: memory is short\n" in plan.explain()
    with labkit.session(arm, range(1, 17), max_tokens=8) as session:
        assert session.plan.model == SMALLER and session.plan.recipe == plan.recipe
        assert len(session.run().tokens) == 8


def test_without_a_recipe_the_plan_is_the_one_before_any_promotion(lab: Path) -> None:
    plain = labkit.resolve(Arm(NULL), Workload(16, 8))
    assert "recipe" not in plain.explain() and plain.model == NULL
    far = labkit.resolve(Arm(NULL, recipe="auto"), Workload(160, 8))
    assert far.hash() == plain.hash() and "not near 160+8" in far.explain()


def test_a_session_takes_no_option_that_the_arm_states(lab: Path) -> None:
    with pytest.raises(PlanRefused, match=r"next:    Arm\(\.\.\., kv=\.\.\.\)"):
        labkit.session(Arm(NULL), [1], kv="bf16")
    with pytest.raises(PlanRefused, match="got:     temprature"):
        labkit.session(Arm(NULL), [1], temprature=1.0)
    with pytest.raises(PlanRefused, match="no policy, cap or KV budget"):
        labkit.session(Arm(NULL, cap=1), [1])


def test_a_blas_that_is_stated_and_not_here_is_refused_and_never_ignored(lab: Path) -> None:
    from labkit.model.backend import prepare

    other = "reference" if prepare().blas != "reference" else "mkl"
    for stated in (other, "nonsense"):
        for recipe in (None, "auto"):
            arm = Arm(NULL, blas=stated, recipe=recipe)
            with pytest.raises(BackendMissing, match=f"the {stated} BLAS is needed"):
                labkit.session(arm, [1], max_tokens=2)
            with pytest.raises(BackendMissing, match=f"the {stated} BLAS is needed"):
                labkit.resolve(arm, Workload(16, 8))


def test_a_session_keeps_the_arms_sampling_and_chunk(lab: Path) -> None:
    warm = Sampling(temperature=0.8)
    with labkit.session(Arm(NULL, prefill_chunk=7, sampling=warm), range(1, 17), max_tokens=8) as session:
        assert (session.plan.prefill_chunk, session.plan.sampling) == (7, warm)


def test_a_recipe_whose_experiment_was_deleted_is_not_taken(lab: Path) -> None:
    from labkit.core.decision import Burial
    from labkit.store.graveyard import add_burial

    add_burial(lab, Burial("kv8", "claim", "supported", "why", "2026-11-30", withdrawn=True))
    assert "none is promoted" in labkit.resolve(Arm(NULL, recipe="auto"), Workload(16, 8)).recipe


def test_the_arms_of_an_experiment_are_resolved_and_told(lab: Path) -> None:
    from tests.unit.null_experiment import null_experiment

    asked = null_experiment(baseline=NULL, candidate=NULL, workload=Workload(16, 8))
    asked = replace(asked, candidate=Arm(NULL, recipe="auto"))
    found = resolve_arms(asked, lab)
    assert (found.experiment.baseline, found.experiment.candidate) == (Arm(NULL), Arm(SMALLER))
    assert len(found.notes) == 1 and found.notes[0].startswith("candidate recipe: kv8, trade-off")
    plain = null_experiment()
    assert resolve_arms(plain, lab).experiment is plain


def test_a_lab_without_promotions_has_no_recipe_to_give(tmp_path: Path) -> None:
    chosen = choose_recipe(Arm(NULL, recipe="auto"), Workload(16, 8), tmp_path)
    assert chosen.reason == "none applies, so the arm runs as written (none is promoted)"
