"""The four files of decisions: what is written is read back, a person's edits stay, and damage is named."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.core.arm import Arm, Workload
from labkit.core.decision import Burial, Evidence, Recipe, Renewal, Reopening
from labkit.core.errors import RecipeInvalid
from labkit.core.sampling import Sampling
from labkit.store.decisions import (
    deciding,
    read_burials,
    read_decisions,
    read_recipes,
    read_renewals,
    read_reopenings,
    read_standing,
)
from labkit.store.graveyard import add_burial, graveyard_path
from labkit.store.recipes import add_recipe, promoted_path, remove_recipe
from labkit.store.renewals import add_renewal, renewed_path
from labkit.store.reopenings import add_reopening, reopened_path

EVIDENCE = Evidence("20261129T000000Z-kv8-aaaaaa", "results/m/20261129T000000Z-kv8-aaaaaa.json", "0" * 64)
RECIPE = Recipe(
    name="kv8",
    why='memory is "short"\nand é costs nothing',
    decided_at="2026-11-29",
    machine="linux-cpu",
    family="smollm2",
    workload=Workload(256, 32),
    baseline=Arm("smollm2"),
    arm=Arm("smollm2", kv="affine:8", prefill_chunk=64, sampling=Sampling(0.5, logit_bias={3: 1.0})),
    fingerprint="f" * 64,
    outcome="trade-off",
    axes=("KV cache better: 3.56x", "decode worse: 0.95x"),
    evidence=(EVIDENCE,),
    conditions=("a trade-off that was accepted",),
)
RENEWAL = Renewal("kv4", "2027-06-01", "the new kernel comes in May", "2026-12-01")
BURIAL = Burial("kv2", "2-bit KV is free", "refuted", "it is not", "2026-12-02", ("run-1", "run-2"), True)

REOPENING = Reopening("kv8", "it lost", "2026-12-03", "2027-01-02", ("run-3",), (EVIDENCE.run_id,))


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    (tmp_path / "experiments").mkdir()
    return tmp_path


def test_a_lab_without_decisions_has_none(tmp_path: Path) -> None:
    assert read_decisions(tmp_path) == ()


def test_what_is_written_is_read_back(lab: Path) -> None:
    others = [replace(RECIPE, name="b", conditions=()), replace(RECIPE, name="a", evidence=(EVIDENCE,) * 2)]
    for recipe in (RECIPE, *others):
        add_recipe(lab, recipe)
    add_renewal(lab, RENEWAL)
    add_burial(lab, BURIAL)
    assert read_recipes(lab) == (RECIPE, *others)
    assert read_renewals(lab) == (RENEWAL,)
    assert read_burials(lab) == (BURIAL,)
    add_reopening(lab, REOPENING)
    assert read_reopenings(lab) == (REOPENING,)
    assert [(d.kind, d.name) for d in read_decisions(lab)] == [
        *(("promoted", name) for name in ("a", "b", "kv8")),
        ("renewed", "kv4"),
        ("deleted", "kv2"),
        ("reopened", "kv8"),
    ]


def test_an_arm_is_written_as_the_fields_it_states(lab: Path) -> None:
    add_recipe(lab, RECIPE)
    text = promoted_path(lab).read_text()
    assert '[recipe.baseline]\nmodel = "smollm2"\n\n' in text
    assert "top_p" not in text and "concurrency" not in text


def test_a_recipe_of_a_load_is_read_back(lab: Path) -> None:
    load = Workload(256, 64, 4, requests=16, prompt_tokens_low=64, ttft_objective_s=1)
    arm = Arm("smollm2", policy="decode-first", cap=4, kv_budget_bytes=10**9)
    open_loop = Workload(256, 64, arrivals="poisson", rate_per_s=2.5, requests=16)
    recipes = tuple(
        replace(RECIPE, name=name, workload=workload, arm=arm)
        for name, workload in (("closed", load), ("open", open_loop))
    )
    for recipe in recipes:
        add_recipe(lab, recipe)
    assert read_recipes(lab) == recipes
    assert [r.workload.hash() for r in read_recipes(lab)] == [r.workload.hash() for r in recipes]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("rate_per_s = 2.5", "rate_per_s = -1.0", "workload.rate_per_s: a number above 0 is needed"),
        ("rate_per_s = 2.5", 'rate_per_s = "2"', "workload.rate_per_s: float is needed"),
        ("requests = 16", "requests = 0", "workload.requests: a whole number from 1"),
        ("cap = 4", "cap = 0", "arm.cap: a whole number from 1"),
        ("kv_budget_bytes = 9", "kv_budget_bytes = 0", "arm.kv_budget_bytes: at least 1 is needed"),
    ],
)
def test_a_recipe_of_a_load_that_was_mended_badly_is_named(lab: Path, old: str, new: str, words: str) -> None:
    load = Workload(256, 64, arrivals="poisson", rate_per_s=2.5, requests=16)
    add_recipe(lab, replace(RECIPE, workload=load, arm=Arm("smollm2", cap=4, kv_budget_bytes=9)))
    path = promoted_path(lab)
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(RecipeInvalid) as refused:
        read_recipes(lab)
    assert words in str(refused.value)


@pytest.mark.parametrize("name", ["kv8", "b", "c"])
def test_withdrawing_one_leaves_every_other_line(lab: Path, name: str) -> None:
    names = ("kv8", "b", "c")
    for each in names:
        add_recipe(lab, replace(RECIPE, name=each))
    text = promoted_path(lab).read_text()
    for each in names:
        text = text.replace(
            f'[[recipe]]\nname = "{each}"', f'# above {each}\n[[recipe]]\nname = "{each}"  # mine'
        )
    promoted_path(lab).write_text(text + "# the end\n")
    remove_recipe(lab, name)
    left = promoted_path(lab).read_text()
    assert [r.name for r in read_recipes(lab)] == [each for each in names if each != name]
    assert all(f"# above {each}" in left for each in names) and "# the end" in left
    assert left.count("  # mine") == 2


def test_withdrawing_from_an_inline_array_and_beside_a_text_like_a_heading(lab: Path) -> None:
    tricky = replace(RECIPE, name="tricky", why="x")
    for each in (tricky, RECIPE):
        add_recipe(lab, each)
    path = promoted_path(lab)
    path.write_text(path.read_text().replace('why = "x"', 'why = """\n[[recipe]]\n"""', 1))
    remove_recipe(lab, "kv8")
    assert [(r.name, r.why) for r in read_recipes(lab)] == [("tricky", "[[recipe]]\n")]


def test_a_line_of_the_graveyard_goes_below_the_table_and_a_persons_words_stay(lab: Path) -> None:
    add_burial(lab, BURIAL)
    path = graveyard_path(lab)
    path.write_text("My own words.\n\n" + path.read_text() + "\nAnd | more.\n")
    add_burial(lab, replace(BURIAL, name="kv1"))
    assert [b.name for b in read_burials(lab)] == ["kv2", "kv1"]
    lines = path.read_text().splitlines()
    assert lines[0] == "My own words." and lines[-1] == "And | more."


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=30), min_size=3, max_size=3))
def test_any_text_survives_the_graveyard(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    """Ends of a line of any kind come back as newlines, and blanks around a text are not kept."""
    name, why, claim = ("\n".join(text.splitlines()).strip() for text in texts)
    burial = replace(BURIAL, name=name or "x", why=why, claim=claim)
    lab = tmp_path_factory.mktemp("graveyard")
    add_burial(lab, burial)
    assert read_burials(lab) == (burial,)


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=40).filter(str.strip))
def test_any_text_survives_a_recipe(tmp_path_factory: pytest.TempPathFactory, why: str) -> None:
    lab = tmp_path_factory.mktemp("recipes")
    first, second = replace(RECIPE, name="a", why=why), replace(RECIPE, name="b", why=why)
    add_recipe(lab, first)
    add_recipe(lab, second)
    assert read_recipes(lab) == (first, second)
    remove_recipe(lab, "a")
    assert read_recipes(lab) == (second,)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("[[recipe]]", "[[recipe]"), "line 4"),
        (("[[recipe]]", "[[recipes]]"), "only [[recipe]] tables are needed"),
        (('machine = "linux-cpu"\n', ""), "recipe 1 (kv8): the field 'machine' is missing"),
        (('machine = "linux-cpu"', "machine = 3"), "recipe 1 (kv8): machine: a text is needed, got 3"),
        (('family = "smollm2"', 'family = " "'), "family: a text is needed, got ' '"),
        (("2026-11-29", "yesterday"), "decided_at: a date such as 2027-02-01 is needed, got 'yesterday'"),
        (("outcome =", "outcom ="), "outcom: no such field; options: arm, axes, baseline"),
        (
            ("prompt_tokens = 256", 'prompt_tokens = "256"'),
            "workload.prompt_tokens: int is needed, got '256'",
        ),
        (("new_tokens = 32\n", ""), "recipe 1 (kv8): "),
        (('kv = "affine:8"', "kv = 8"), "arm.kv: str is needed, got 8"),
        (('kv = "affine:8"', 'bits = "8"'), "arm.bits: no such field; options: model, kv, blas"),
        (('kv = "affine:8"', 'recipe = "auto"'), "arm.recipe: an arm without a recipe of its own"),
        (("temperature = 0.5", "heat = 0.5"), "heat: no such field; options: frequency_context_size"),
        (("sha256 =", "md5 ="), "md5: no such field; options: path, run_id, sha256"),
        (("axes = [", "axes = [1,"), "axes: a list of texts is needed, got [1, "),
        (("prompt_tokens = 256", "prompt_tokens = -5"), "workload.prompt_tokens: a whole number from 1 to"),
        (("prompt_tokens = 256", f"prompt_tokens = 1{'0' * 25}"), "workload.prompt_tokens: a whole number"),
        (("prefill_chunk = 64", "prefill_chunk = -1"), "arm.prefill_chunk: a whole number from 1 to"),
        (("temperature = 0.5", 'temperature = "hot"'), "arm.sampling.temperature: a finite number is needed"),
        (("temperature = 0.5", "temperature = nan"), "arm.sampling.temperature: a finite number is needed"),
        (("temperature = 0.5", "temperature = []"), "arm.sampling.temperature: a finite number is needed"),
        (('outcome = "trade-off"', 'outcome = "banana"'), "outcome: one of supported, trade-off is needed"),
        (
            ("[recipe.baseline]\n", '[recipe.baseline]\nrecipe = "auto"\n'),
            "baseline.recipe: an arm without a recipe of its own",
        ),
        (("prompt_tokens = 256", f"prompt_tokens = {'9' * 5000}"), "integer"),
        (("[[recipe]]", "deep = " + "[" * 5000 + "\n[[recipe]]"), "deeper than can be read"),
    ],
)
def test_a_broken_recipe_is_one_message(lab: Path, change: tuple[str, str], words: str) -> None:
    add_recipe(lab, RECIPE)
    path = promoted_path(lab)
    assert change[0] in path.read_text()
    path.write_text(path.read_text().replace(*change, 1))
    with pytest.raises(RecipeInvalid) as refused:
        read_recipes(lab)
    message = str(refused.value)
    assert message.startswith(
        "a readable file of decisions was needed: experiments/promoted.toml\n  got:     "
    )
    assert words in message and "labkit check" in message


def test_one_name_twice_is_refused(lab: Path) -> None:
    add_recipe(lab, RECIPE)
    add_recipe(lab, RECIPE)
    with pytest.raises(RecipeInvalid, match="more than one recipe named 'kv8'"):
        read_recipes(lab)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[[renewal]]\nname = "a"\nuntil = "2027-01-01"\nwhy = "x"', "the field 'decided_at' is missing"),
        ('renewal = "a"', "only [[renewal]] tables are needed"),
        ("renewal = [1]", "renewal 1: a table is needed, got 1"),
        ('[[renewal]]\nname = "a"\nuntil = "2027-13-01"', "until: a date such as"),
    ],
)
def test_a_broken_renewal_is_one_message(lab: Path, text: str, words: str) -> None:
    renewed_path(lab).write_text(text)
    with pytest.raises(RecipeInvalid) as refused:
        read_renewals(lab)
    assert "experiments/renewed.toml" in str(refused.value) and words in str(refused.value)


def test_a_date_of_tomls_own_is_one(lab: Path) -> None:
    entry = 'name = "kv4"\nuntil = 2027-06-01\nwhy = "the new kernel comes in May"\ndecided_at = 2026-12-01\n'
    renewed_path(lab).write_text(f"[[renewal]]\n{entry}")
    assert read_renewals(lab) == (RENEWAL,)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("| kv2 | 2026-12-02 |", "| kv2 |"), "line 7: 8 cells are needed, got 7"),
        (("| 2026-12-02 |", "| soon |"), "line 7: a date such as 2027-02-01 is needed, got 'soon'"),
        (("| yes |", "| perhaps |"), "yes or no in 'promoted before'"),
        (("| experiment | deleted |", "| deleted | experiment |"), "line 5: the head of the table is needed"),
        (("| kv2 |", "<<<<<<< HEAD\n| kv2 |"), "line 7: two versions that were not merged"),
        (("| kv2 |", "words\n| kv2 |"), "line 7: a row of the table is needed between its rows, got 'words'"),
        (("| kv2 |", "\n| kv2 |"), "line 7: a row of the table is needed between its rows, got ''"),
        (("| kv2 | 2026-12-02 |", "  | kv2 |"), "line 7: 8 cells are needed, got 7"),
    ],
)
def test_a_broken_graveyard_is_one_message(lab: Path, change: tuple[str, str], words: str) -> None:
    add_burial(lab, BURIAL)
    path = graveyard_path(lab)
    assert change[0] in path.read_text()
    path.write_text(path.read_text().replace(*change, 1))
    with pytest.raises(RecipeInvalid) as refused:
        read_burials(lab)
    assert "experiments/GRAVEYARD.md" in str(refused.value) and words in str(refused.value)


def test_bytes_that_are_no_text_are_one_message(lab: Path) -> None:
    for path, read in ((promoted_path(lab), read_recipes), (graveyard_path(lab), read_burials)):
        path.write_bytes(b"\xff\xfe")
        with pytest.raises(RecipeInvalid, match=path.name):
            read(lab)


def test_a_recipe_is_not_written_where_it_could_not_be_read(lab: Path) -> None:
    promoted_path(lab).write_text("recipe = []\n")
    with pytest.raises(RecipeInvalid, match="recipe"):
        add_recipe(lab, RECIPE)
    assert promoted_path(lab).read_text() == "recipe = []\n"


def test_an_indented_row_of_the_graveyard_counts(lab: Path) -> None:
    add_burial(lab, BURIAL)
    path = graveyard_path(lab)
    path.write_text(path.read_text().replace("| kv2 |", "  | kv2 |"))
    add_burial(lab, replace(BURIAL, name="kv1"))
    assert [b.name for b in read_burials(lab)] == ["kv2", "kv1"]


def test_the_ends_of_a_files_lines_stay(lab: Path) -> None:
    """An editor of another system wrote the files with carriage returns."""
    adds = (
        (renewed_path(lab), lambda name: add_renewal(lab, replace(RENEWAL, name=name))),
        (promoted_path(lab), lambda name: add_recipe(lab, replace(RECIPE, name=name, why="x"))),
        (graveyard_path(lab), lambda name: add_burial(lab, replace(BURIAL, name=name))),
    )
    for path, add in adds:
        add("first")
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
        add("second")
        data = path.read_bytes()
        assert data.count(b"\n") == data.count(b"\r\n") > 0 and b"\r\r" not in data
    remove_recipe(lab, "first")
    data = promoted_path(lab).read_bytes()
    assert data.count(b"\n") == data.count(b"\r\n") > 0 and b"\r\r" not in data
    assert [r.name for r in read_recipes(lab)] == ["second"]
    assert [r.name for r in read_renewals(lab)] == [b.name for b in read_burials(lab)] == ["first", "second"]


def test_a_byte_order_mark_is_no_part_of_a_text(lab: Path) -> None:
    add_recipe(lab, RECIPE)
    add_burial(lab, BURIAL)
    for path in (promoted_path(lab), graveyard_path(lab)):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert (read_recipes(lab), read_burials(lab)) == ((RECIPE,), (BURIAL,))


def test_what_is_no_regular_file_is_one_message_and_holds_nobody_up(lab: Path) -> None:
    for path, read in ((promoted_path(lab), read_recipes), (graveyard_path(lab), read_burials)):
        os.mkfifo(path)
        with pytest.raises(RecipeInvalid, match="not a regular file"):
            read(lab)


def test_what_a_killed_decision_left_is_swept_by_the_next(lab: Path) -> None:
    aside = lab / "results" / "set-aside" / "experiments"
    aside.mkdir(parents=True)
    left = [folder / ".promoted.toml.0a1b2c3d.tmp" for folder in (lab / "experiments", aside)]
    for path in left:
        path.write_text("half a rec")
    with deciding(lab):
        assert not any(path.exists() for path in left)


def test_a_recipe_stands_until_it_is_buried_or_reopened_and_a_later_one_stands_again(lab: Path) -> None:
    add_recipe(lab, RECIPE)
    assert read_standing(lab) == (RECIPE,)
    add_reopening(lab, REOPENING)
    assert read_standing(lab) == ()
    later = replace(RECIPE, evidence=(replace(EVIDENCE, run_id="another"),))
    remove_recipe(lab, "kv8")
    add_recipe(lab, later)
    assert read_standing(lab) == (later,)
    add_burial(lab, replace(BURIAL, name="kv8"))
    assert read_standing(lab) == ()


def test_one_experiment_may_be_reopened_more_than_once_but_not_of_one_promotion(lab: Path) -> None:
    second = replace(REOPENING, decided_at="2027-02-01", withdrawn=("another",))
    for reopening in (REOPENING, second):
        add_reopening(lab, reopening)
    assert read_reopenings(lab) == (REOPENING, second)
    add_reopening(lab, REOPENING)
    with pytest.raises(RecipeInvalid, match=r"experiments/reopened.toml(?s:.*)more than one reopening"):
        read_reopenings(lab)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("until = ", "till = ", "till: no such field"),
        ('until = "2027-01-02"', 'until = "soon"', "until: a date such as 2027-02-01 is needed"),
        ('evidence = ["run-3"]', "evidence = []", "evidence: at least one run id is needed"),
        ('evidence = ["run-3"]', "", "the field 'evidence' is missing"),
    ],
)
def test_a_broken_reopening_is_one_message(lab: Path, old: str, new: str, words: str) -> None:
    add_reopening(lab, REOPENING)
    path = reopened_path(lab)
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(RecipeInvalid) as refused:
        read_reopenings(lab)
    assert "experiments/reopened.toml" in str(refused.value) and words in str(refused.value)
