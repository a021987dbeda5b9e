"""Promoted experiments are measured again: what holds stays, what fails is open again, the rest is told."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path

import pytest

import labkit
from labkit.core.arm import Arm, Workload
from labkit.core.decision import Reopening
from labkit.core.errors import DecisionRefused, LabkitError
from labkit.core.records import Record
from labkit.lab.deciding.burial import delete
from labkit.lab.deciding.check import check
from labkit.lab.deciding.ledger import read_ledger
from labkit.lab.deciding.promotion import promote
from labkit.lab.deciding.renewal import renew
from labkit.lab.deciding.reopening import reopen
from labkit.lab.deciding.revalidate import revalidate
from labkit.lab.measuring.run import RunStopped
from labkit.lab.reading.board import board
from labkit.store.decisions import read_decisions, read_recipes, read_reopenings, read_standing
from labkit.store.query import results
from labkit.store.read import read_record
from labkit.store.recipes import add_recipe
from labkit.store.reopenings import add_reopening
from labkit.store.write import write_record
from tests.unit.command_line import labkit as command
from tests.unit.decided_lab import (
    CODE,
    NAME,
    REFUTED,
    RUN_ID,
    SUPPORTED,
    TODAY,
    TRADE_OFF,
    open_lab,
    record_of,
    record_path,
    refusal,
    with_windows,
)
from tests.unit.promoted_lab import AGAIN, Measured, again, at_hand, promoted_lab
from tests.unit.sample_records import SLUG, Shape

KEPT = Path("experiments") / "promoted" / f"{NAME}.py"
OPEN = Path("experiments") / f"{NAME}.py"
LOST = Measured(REFUTED)

pytestmark = pytest.mark.usefixtures("sample_code")


@pytest.fixture(scope="module")
def promoted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lab with a promoted experiment, made once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("labkit.lab.deciding.promotion.code_hash", lambda: CODE)
        return promoted_lab(tmp_path_factory.mktemp("promoted"))


@pytest.fixture
def lab(tmp_path: Path, promoted: Path) -> Path:
    return Path(shutil.copytree(promoted, tmp_path / "lab"))


def files(lab: Path) -> dict[Path, bytes]:
    found = (path for path in (lab / "experiments").rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {path: path.read_bytes() for path in found}


def test_what_holds_stays_as_it_is(lab: Path) -> None:
    before, measure = files(lab), Measured()
    (found,) = again(lab, measure)
    assert (found.state, found.why, found.record) == ("holds", (), AGAIN)
    assert measure.calls == [(lab / KEPT, 10)], "as many pairs as the promotion had"
    assert files(lab) == before and check(lab, today=TODAY).ok


def test_pairs_as_asked_for(lab: Path) -> None:
    measure = Measured()
    again(lab, measure, NAME, pairs=12)
    assert measure.calls == [(lab / KEPT, 12)]


def test_what_no_longer_holds_is_open_again(lab: Path) -> None:
    source = (lab / KEPT).read_bytes()
    found = revalidate(root=lab, measure=LOST, today=TODAY, machine=SLUG)
    (result,) = found.results
    assert not found.ok and result.state == "reopened" and "KV cache equivalent" in result.why[0]
    assert read_recipes(lab) == () and not (lab / KEPT).exists() and (lab / OPEN).read_bytes() == source
    (reopening,) = read_reopenings(lab)
    assert (reopening.name, reopening.until, reopening.evidence) == (NAME, "2026-12-31", (AGAIN,))
    assert reopening.withdrawn == ("20261105T101500Z-null-ab-0a1b2c",)
    text = result.text()
    assert "experiments/reopened.toml" in text and "labkit run experiments/null-ab.py" in text


def test_the_board_the_index_and_the_check_say_so(lab: Path) -> None:
    again(lab, LOST)
    (row,) = board(lab, TODAY, decided=True)
    assert (row.state, row.conditions, row.days_left) == ("open", ("reopened",), 30)
    assert [decision.kind for decision in read_decisions(lab)] == ["reopened"]
    (entry,) = labkit.sql("SELECT kind, outcome, evidence FROM decisions", root=lab).to_dict("records")
    assert (entry["kind"], entry["outcome"]) == ("reopened", "until 2026-12-31")
    assert list(entry["evidence"]) == [AGAIN]
    assert set(results(lab)["run_id"]) == {AGAIN, "20261105T101500Z-null-ab-0a1b2c"}
    checked = check(lab, today=TODAY)
    assert checked.ok and checked.sentence().startswith("1 experiment open, 0 promoted, 0 deleted")
    assert any("is open again since 2026-12-01" in note for note in checked.notes)
    late = check(lab, today=date(2027, 1, 1))
    assert [fault.problem for fault in late.faults] == ["expired 1 day ago, on 2026-12-31, and is undecided"]


def test_unresolved_stays_promoted_and_is_told(lab: Path) -> None:
    before = files(lab)
    found = revalidate(
        root=lab,
        measure=Measured(change=lambda r: with_windows(r, [1e-4, 2e-3] * 8)),
        today=TODAY,
        machine=SLUG,
    )
    assert not found.ok and found.results[0].state == "not settled"
    assert "KL to the reference unresolved" in found.results[0].why[0]
    assert files(lab) == before


def test_another_machine_class_is_skipped_by_name(lab: Path) -> None:
    measure = Measured()
    found = revalidate(root=lab, measure=measure, today=TODAY, machine="other-machine")
    assert found.ok and found.results[0].state == "skipped" and SLUG in found.results[0].why[0]
    assert measure.calls == []


def test_all_of_a_lab_one_after_the_other_and_one_by_its_name(lab: Path) -> None:
    (recipe,) = read_recipes(lab)
    add_recipe(lab, replace(recipe, name="lost-file"))
    add_recipe(lab, replace(recipe, name="elsewhere", machine="other-machine"))
    told: list[str] = []
    found = again(lab, Measured(), ended=lambda result: told.append(result.name))
    states = {result.name: result.state for result in found}
    assert states == {NAME: "holds", "lost-file": "not run", "elsewhere": "skipped"}
    assert told == [NAME, "lost-file", "elsewhere"]
    assert [result.name for result in again(lab, Measured(), "elsewhere", "elsewhere")] == ["elsewhere"]


def test_a_reopening_of_a_name_that_nothing_bears_is_noted(lab: Path) -> None:
    add_reopening(lab, Reopening("nul-ab", "it lost", "2026-12-01", "2026-12-31", ("a",), ("b",)))
    words = "reopened.toml reopens nul-ab, which no experiment of this lab is called."
    assert words in check(lab, today=TODAY).notes


def edit(lab: Path) -> None:
    (lab / KEPT).write_text((lab / KEPT).read_text() + "# edited\n")


def lose_file(lab: Path) -> None:
    (lab / KEPT).unlink()


def edit_evidence(lab: Path) -> None:
    path = next((lab / "results" / SLUG).glob("*.json"))
    path.write_text(path.read_text() + "\n")


def other_model(lab: Path) -> None:
    path = lab / "experiments" / "promoted.toml"
    path.write_text(path.read_text().replace("fingerprint = ", 'fingerprint = "0ther" # '))


def missing_model(lab: Path) -> None:
    path = lab / "experiments" / "promoted.toml"
    path.write_text(path.read_text().replace("null:kv_bytes_per_token=40", "/no/such/model"))


def take_place(lab: Path) -> None:
    open_lab(lab, "from labkit import Arm\n")


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (edit, "was edited after its promotion"),
        (lose_file, "is missing"),
        (edit_evidence, "its SHA-256 differs"),
        (other_model, "is another artifact: "),
        (missing_model, "its model /no/such/model is not here"),
        (take_place, "a free place at experiments/null-ab.py is needed"),
    ],
)
def test_what_cannot_be_repeated_is_told_and_measures_nothing(
    lab: Path, damage: Callable[[Path], None], word: str
) -> None:
    damage(lab)
    before, measure = files(lab), Measured(REFUTED)
    found = revalidate(root=lab, measure=measure, today=TODAY, machine=SLUG)
    assert not found.ok and found.results[0].state == "not run" and word in found.results[0].why[0]
    assert found.results[0].next_step and measure.calls == [] and files(lab) == before


def test_a_run_that_fails_is_told_and_one_that_is_interrupted_ends_all(lab: Path) -> None:
    def failing(code: int) -> Callable[..., None]:
        def run(*_: object, **__: object) -> None:
            raise RunStopped("the run failed", exit_code=code, path=None)

        return run

    found = revalidate(root=lab, measure=failing(1), today=TODAY, machine=SLUG)  # type: ignore[arg-type]
    assert found.results[0].state == "not run" and "the run failed" in found.results[0].why[0]
    with pytest.raises(RunStopped):
        revalidate(root=lab, measure=failing(130), today=TODAY, machine=SLUG)  # type: ignore[arg-type]


def test_a_file_that_takes_its_place_during_the_run_leaves_it_promoted(lab: Path) -> None:
    def taking(record: Record) -> Record:
        take_place(lab)
        return record

    (found,) = again(lab, Measured(REFUTED, taking))
    assert found.state == "not settled" and "a free place" in found.why[1]
    assert read_standing(lab) and read_reopenings(lab) == ()


@pytest.mark.parametrize("shape", [REFUTED, SUPPORTED])
def test_an_experiment_that_is_decided_during_the_run_is_left_alone(lab: Path, shape: Shape) -> None:
    def deleting(record: Record) -> Record:
        delete(NAME, why="it is not worth it", root=lab, today=TODAY)
        return record

    (found,) = again(lab, Measured(shape, deleting))
    assert found.state == "skipped" and "deleted on 2026-12-01" in found.why[0]
    assert "stays promoted" not in found.text() and found.record == AGAIN
    assert read_reopenings(lab) == ()


@pytest.mark.parametrize("name", ["nul-ab", "open-one"])
def test_a_name_that_is_not_promoted_is_refused_before_anything_runs(lab: Path, name: str) -> None:
    open_lab(lab, (lab / KEPT).read_text().replace('"null-ab"', '"open-one"'), "open-one.py")
    measure = Measured()
    with pytest.raises(DecisionRefused, match=f"(?s){name}.*options: null-ab"):
        again(lab, measure, NAME, name)
    assert measure.calls == []


def test_a_lab_without_promoted_ones(tmp_path: Path) -> None:
    found = revalidate(root=open_lab(tmp_path), measure=Measured(), today=TODAY, machine=SLUG)
    assert found.ok and found.sentence() == "Promoted experiments: none."


def test_one_that_is_open_again_can_be_deleted_or_renewed(lab: Path) -> None:
    again(lab, LOST)
    renew(NAME, until="2027-03-01", why="the driver is being mended", root=lab, today=TODAY)
    assert board(lab, TODAY)[0].days_left == 90
    delete(NAME, why="it lost", root=lab, today=TODAY)
    assert read_ledger(lab).decided(NAME) and check(lab, today=TODAY).ok


def test_a_renewal_from_before_the_promotion_counts_no_more(tmp_path: Path) -> None:
    open_lab(tmp_path)
    renew(NAME, until="2027-06-01", why="the machine was lent", root=tmp_path, today=date(2026, 11, 1))
    lab = promoted_lab(tmp_path)
    again(lab, LOST)
    assert board(lab, TODAY)[0].days_left == 30


def test_one_that_is_open_again_can_be_promoted_again_and_reopened_again(lab: Path) -> None:
    again(lab, LOST)
    with pytest.raises(DecisionRefused, match="supported is needed, got refuted"):
        promote(NAME, why="again", root=lab, today=TODAY, machine=SLUG, record=AGAIN)
    better = Measured(run_id="20261206T101500Z-null-ab-0a1b2c")
    better(lab / OPEN, root=lab, pairs=10, sink=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("labkit.lab.deciding.promotion.code_hash", lambda: "new0" * 4)
        promote(NAME, why="it was mended", root=lab, today=TODAY, machine=SLUG)
    assert read_standing(lab) and check(lab, today=TODAY).ok
    assert [row.state for row in board(lab, TODAY, decided=True)] == ["promoted"]
    again(lab, Measured(TRADE_OFF, run_id="20261207T101500Z-null-ab-0a1b2c"))
    assert len(read_reopenings(lab)) == 2 and not read_standing(lab)
    assert board(lab, TODAY)[0].conditions == ("reopened",)


def test_evidence_that_a_reopening_withdrew_carries_no_promotion_again(lab: Path) -> None:
    older = record_of(lab, SUPPORTED, "20261101T101500Z-null-ab-0a1b2c")
    source = read_record(record_path(lab)).experiment["source_hash"]
    write_record(at_hand(replace(older, experiment={**older.experiment, "source_hash": source})), lab)
    again(lab, LOST)
    for run_id in (RUN_ID, older.run_id):
        got = f"got {run_id}, which the reopening of 2026-12-01 withdrew, since {AGAIN} does not carry it"
        assert got in refusal(lab, record=run_id)
    assert read_recipes(lab) == () and check(lab, today=TODAY).ok


def test_a_recipe_that_changed_meanwhile_is_not_withdrawn(lab: Path) -> None:
    (recipe,) = read_recipes(lab)
    with pytest.raises(DecisionRefused, match="the promotion that was measured again"):
        reopen(lab, replace(recipe, why="another"), why="x", evidence=(AGAIN,), today=TODAY)
    assert read_reopenings(lab) == ()


def test_a_broken_file_of_reopenings_is_one_message(lab: Path) -> None:
    again(lab, LOST)
    path = lab / "experiments" / "reopened.toml"
    path.write_text(path.read_text().replace("withdrawn = ", "withdrew = "))
    with pytest.raises(LabkitError, match=r"(?s)experiments/reopened.toml.*withdrew: no such field"):
        again(lab, Measured())
    assert "reopened.toml" in check(lab, today=TODAY).faults[0].line()


MEASURED = """
from labkit import Arm, Experiment, Hypothesis, Workload
experiment = Experiment(
    "null-ab",
    Hypothesis("less memory at no cost", improves={"kv_bytes": 0.4}, holds={"decode_tps": 0.3}),
    Arm("null:sd=0.02,kv_bytes_per_token=100"), Arm("null:sd=0.02,kv_bytes_per_token=40"),
    Workload(64, 16), expires="2099-01-01", score=None, pairs=12)
"""
ASKED = Arm("null:sd=0.02,kv_bytes_per_token=100", recipe="auto")


def test_for_real_from_a_promotion_that_holds_to_one_that_the_planner_picks_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real runs of null models; twelve pairs, so that a busy machine is no hindrance. One settles nothing."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # where the command's lease lies
    lab, work = open_lab(tmp_path / "lab", MEASURED), Workload(64, 16)
    plain = labkit.resolve(ASKED, work, root=lab)
    first = labkit.run(lab / OPEN, root=lab, lease=tmp_path / "lease").record
    monkeypatch.setattr("labkit.lab.deciding.promotion.code_hash", lambda: first.provenance["code_hash"])
    labkit.promote(NAME, why="memory is short", root=lab)
    assert labkit.resolve(ASKED, work, root=lab).hash() != plain.hash()
    measure = partial(labkit.run, lease=tmp_path / "lease")
    assert [r.state for r in revalidate(root=lab, measure=measure).results] == ["holds"]
    done = command("revalidate", NAME, "--pairs", "1", "--root", str(lab), "--json")
    (told,) = json.loads(done.out)["results"]
    assert (done.code, told["state"]) == (1, "not settled") and told["why"] and told["record"]
    (recipe,) = read_recipes(lab)
    reopen(lab, recipe, why="the driver lost it", evidence=("a-run",), today=date.today())
    assert labkit.resolve(ASKED, work, root=lab).hash() == plain.hash()
