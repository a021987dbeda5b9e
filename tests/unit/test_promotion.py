"""What carries a promotion and what does not, each reason in words; and that no step of it loses anything."""

from __future__ import annotations

import html
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import labkit
from labkit.bench.verdict import Samples, axis_verdicts
from labkit.core.arm import Workload
from labkit.core.errors import DecisionRefused, ExperimentInvalid, RecipeInvalid
from labkit.core.hypothesis import Hypothesis
from labkit.core.records import Record, VisitResult
from labkit.lab.deciding.check import check
from labkit.lab.deciding.promotion import promote
from labkit.lab.deciding.rejudging import verdicts
from labkit.lab.deciding.sturdiness import weaknesses
from labkit.lab.experiment import load_experiment
from labkit.lab.reading.board import board
from labkit.store.decisions import deciding, read_decisions, read_recipes
from labkit.store.write import write_record
from tests.unit.decided_lab import (
    BASELINE,
    CANDIDATE,
    CODE,
    DOMINATING,
    EXPERIMENT,
    NAME,
    REFUTED,
    RUN_ID,
    SUPPORTED,
    TODAY,
    TRADE_OFF,
    measured_lab,
    open_lab,
    record_of,
    record_path,
    refusal,
    rejudged,
    unquiet,
)
from tests.unit.sample_records import SLUG, from_elsewhere

OLD = "20261104T101500Z-null-ab-0a1b2c"


pytestmark = pytest.mark.usefixtures("sample_code")


def test_a_record_that_carries_it_becomes_a_recipe(tmp_path: Path) -> None:
    lab = measured_lab(tmp_path)
    decided = promote(NAME, why=" memory is short ", root=lab, today=TODAY, machine=SLUG)
    (recipe,) = read_recipes(lab)
    assert (recipe.name, recipe.why, recipe.decided_at) == (NAME, "memory is short", "2026-12-01")
    assert (recipe.machine, recipe.family) == (SLUG, "smollm2-135m")
    assert (recipe.workload, recipe.baseline, recipe.arm) == (Workload(64, 16), BASELINE, CANDIDATE)
    assert (recipe.outcome, recipe.conditions) == ("supported", ())
    assert recipe.axes[0] == "KV cache better: 2.5x (exact, 10 pairs; improves 0.4)"
    assert recipe.evidence[0].path == record_path(lab).relative_to(lab).as_posix()
    kept = lab / "experiments" / "promoted" / "null-ab.py"
    assert (decided.file, kept.read_text()) == (kept, EXPERIMENT)
    assert not (lab / "experiments" / "null-ab.py").exists()
    assert load_experiment(kept).experiment.name == NAME
    assert check(lab, today=TODAY).ok
    for words in ('recipe="auto"', "bit for bit", "git add -A experiments"):
        assert words in decided.text() and html.escape(words) in decided._repr_html_()


def test_promoting_changes_no_plan_but_that_of_the_arm_that_asks(tmp_path: Path) -> None:
    lab = measured_lab(tmp_path)
    before = [labkit.resolve(arm, Workload(64, 16), root=lab).hash() for arm in (BASELINE, CANDIDATE)]
    promote(NAME, why="memory is short", root=lab, today=TODAY, machine=SLUG)
    after = [labkit.resolve(arm, Workload(64, 16), root=lab).hash() for arm in (BASELINE, CANDIDATE)]
    assert before == after and before[0] != before[1]


def test_no_record(tmp_path: Path) -> None:
    assert refusal(open_lab(tmp_path)) == (
        "null-ab cannot be promoted:\n- record: a complete one is needed, got none\n"
        "  next:    labkit run experiments/null-ab.py"
    )


def test_a_refuted_one(tmp_path: Path) -> None:
    assert "outcome: supported is needed, got refuted" in refusal(measured_lab(tmp_path, REFUTED))


def test_a_trade_off_has_to_be_accepted_and_is_then_named(tmp_path: Path) -> None:
    lab = measured_lab(tmp_path, TRADE_OFF)
    lost = "decode 0.6"
    assert f"needs --accept-trade-off, since it loses {lost}" in refusal(lab)
    decided = promote(NAME, why="x", root=lab, accept_trade_off=True, today=TODAY, machine=SLUG)
    (recipe,) = read_recipes(lab)
    assert recipe.outcome == "trade-off"
    assert recipe.conditions[0].startswith(f"a trade-off that was accepted: {lost}")
    assert recipe.conditions[0] in decided.text()


def test_a_trade_off_accepted_in_advance_opens_nothing_else(tmp_path: Path) -> None:
    message = refusal(measured_lab(tmp_path, REFUTED), accept_trade_off=True)
    assert "got refuted" in message


def test_an_unquiet_machine_is_accepted_where_no_pair_matters_and_then_said(tmp_path: Path) -> None:
    lab = open_lab(tmp_path)
    write_record(unquiet(record_of(lab, pairs=12)), lab)
    decided = promote(NAME, why="x", root=lab, today=TODAY, machine=SLUG)
    (condition,) = read_recipes(lab)[0].conditions
    assert condition == (
        "measured on a machine that was not quiet (foreign_cpu up to 1.20 in 3 of 24 visits); "
        "every verdict stays with any one of the 12 pairs left out"
    )
    assert condition in decided.text()


def test_an_unquiet_machine_with_no_pair_to_spare_is_refused(tmp_path: Path) -> None:
    lab = open_lab(tmp_path)
    write_record(unquiet(record_of(lab, pairs=8)), lab)
    assert (
        "- machine: a quiet one is needed, got one that was not (foreign_cpu up to 1.20 in 3 of 16 visits), "
        "and of 8 pairs none can be left out, since 8 are needed for a verdict"
    ) in refusal(lab)


RATIOS = [1.10 + 0.01 * pair for pair in range(10)]


def fragile_margin() -> float:
    """A margin just inside the interval of all pairs."""
    claim = Hypothesis("", improves={"decode_tps": 0.01})
    (found,) = axis_verdicts({"decode_tps": Samples([100.0 * r for r in RATIOS], [100.0] * 10)}, claim)
    # A millionth inside: far beyond rounding, far below what any pair moves the interval by.
    return found.low * (1 - 1e-6) - 1


def fragile(record: Record) -> Record:
    """Decode as better by a hair, in a record whose hypothesis claims that."""

    def visit(v: VisitResult) -> VisitResult:
        decode = 100.0 * RATIOS[v.pair] if v.role == "candidate" and v.pair >= 0 else 100.0
        return replace(v, metrics={**v.metrics, "decode_tps": decode})

    claims = {"improves": {"decode_tps": fragile_margin()}, "holds": {"kl_mean_nats": 0.001}}
    changed = replace(record, visits=tuple(map(visit, record.visits)))
    return rejudged(replace(changed, experiment={**record.experiment, **claims}))


def test_a_verdict_that_hangs_on_one_pair_is_refused_on_an_unquiet_machine_only(tmp_path: Path) -> None:
    old = 'improves={"kv_bytes": 0.4},\n               holds={"decode_tps": 0.2, '
    new = f'improves={{"decode_tps": {fragile_margin()!r}}}, holds={{'
    assert old in EXPERIMENT
    lab = open_lab(tmp_path, EXPERIMENT.replace(old, new))
    record = fragile(record_of(lab))
    assert verdicts(record)["decode_tps"] == "better"
    assert verdicts(record, without=9)["decode_tps"] == "unresolved"
    assert "decode_tps loses its verdict without" in " ".join(weaknesses(record))
    write_record(unquiet(record), lab)
    assert "and decode_tps loses its verdict without" in refusal(lab)
    record_path(lab).unlink()
    write_record(record, lab)
    promote(NAME, why="x", root=lab, today=TODAY, machine=SLUG)


@pytest.mark.parametrize(("p_value", "verdict"), [(0.049, "equivalent"), (0.051, "unresolved")])
def test_leaving_a_pair_out_keeps_the_score_in_the_family_of_tests(
    p_value: float, verdict: str, tmp_path: Path
) -> None:
    """Holm counts all tested axes: a score's p just under 0.05 / 1 falls once it is not the largest."""
    record = record_of(open_lab(tmp_path))
    windows = record.quality["window_kl_nats"]
    away = -stats.t.ppf(p_value / 2, len(windows) - 1) * stats.sem(windows)
    margin = float(np.mean(windows) + away)
    claimed = replace(record, experiment={**record.experiment, "holds": {"kl_mean_nats": margin}})
    assert verdicts(claimed, without=3)["kl_mean_nats"] == verdict


def test_a_dominated_baseline_is_refused_and_the_candidate_itself_does_not_count(tmp_path: Path) -> None:
    lab = measured_lab(tmp_path)
    other = "20261105T111500Z-other-ab-0a1b2c"
    write_record(record_of(lab, DOMINATING, other), lab)
    assert "- baseline: one that no arm dominates is needed, got one dominated by " in refusal(lab)
    assert other in refusal(lab)


@pytest.mark.parametrize("part", ["code_hash", "machine", "packages"])
def test_a_point_of_other_code_packages_or_machine_dominates_nothing(part: str, tmp_path: Path) -> None:
    lab = measured_lab(tmp_path)
    other = record_of(lab, DOMINATING, "20261105T111500Z-other-ab-0a1b2c")
    changed = {
        "code_hash": from_elsewhere(other, code_hash="old"),
        "packages": from_elsewhere(other, packages={"mlx": "0.1"}),
        "machine": replace(other, machine={**other.machine, "slug": "elsewhere"}),
    }
    write_record(changed[part], lab)
    promote(NAME, why="x", root=lab, today=TODAY, machine=SLUG)


def test_the_candidate_may_dominate_its_baseline(tmp_path: Path) -> None:
    best = replace(DOMINATING, name=NAME, candidate=CANDIDATE)
    promote(NAME, why="x", root=measured_lab(tmp_path, best), today=TODAY, machine=SLUG)


def test_the_newest_complete_record_of_this_machine_counts(tmp_path: Path) -> None:
    lab = measured_lab(tmp_path)
    write_record(record_of(lab, REFUTED, OLD, started_at="2026-11-04T10:15:00Z"), lab)
    newer = record_of(lab, TRADE_OFF, "20261106T101500Z-null-ab-0a1b2c", started_at="2026-11-06T10:15:00Z")
    write_record(replace(newer, machine={**newer.machine, "slug": "elsewhere"}), lab)
    partial = record_of(lab, REFUTED, "20261107T101500Z-null-ab-0a1b2c", started_at="2026-11-07T10:15:00Z")
    write_record(replace(partial, state="partial"), lab)
    promote(NAME, why="x", root=lab, today=TODAY, machine=SLUG)
    assert read_recipes(lab)[0].evidence[0].run_id == RUN_ID


def test_a_record_can_be_chosen_and_one_of_another_machine_too(tmp_path: Path) -> None:
    lab = measured_lab(tmp_path, REFUTED)
    write_record(record_of(lab, SUPPORTED, OLD, started_at="2026-11-04T10:15:00Z", slug="elsewhere"), lab)
    assert "got refuted" in refusal(lab)
    assert f"options: {RUN_ID}, {OLD}" in refusal(lab, record="none")
    promote(NAME, why="x", root=lab, record=OLD, today=TODAY, machine=SLUG)
    assert read_recipes(lab)[0].machine == "elsewhere"


def test_the_only_other_machine_is_taken_and_several_are_options(tmp_path: Path) -> None:
    lab = measured_lab(tmp_path / "one", slug="elsewhere")
    promote(NAME, why="x", root=lab, today=TODAY, machine=SLUG)
    lab = measured_lab(tmp_path / "two", slug="a-machine")
    write_record(record_of(lab, SUPPORTED, OLD, slug="b-machine"), lab)
    message = refusal(lab)
    assert f"- record: one of this machine class, {SLUG}, is needed, got those of 2 others" in message
    assert f"options: --record {RUN_ID} (a-machine), --record {OLD} (b-machine)" in message


def test_a_record_of_another_experiment_is_no_option(tmp_path: Path) -> None:
    lab = measured_lab(tmp_path)
    other = "20261105T111500Z-other-ab-0a1b2c"
    write_record(record_of(lab, DOMINATING, other), lab)
    assert f"got {other}" in refusal(lab, record=other)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    assert "why: text in Unicode is needed" in refusal(measured_lab(tmp_path), why="\udcff")


def test_a_file_in_the_way_is_not_overwritten(tmp_path: Path) -> None:
    lab = measured_lab(tmp_path)
    (lab / "experiments" / "promoted").mkdir()
    (lab / "experiments" / "promoted" / "null-ab.py").write_text("precious")
    assert "a free place at experiments/promoted/null-ab.py is needed" in refusal(lab)


def test_a_file_named_otherwise_moves_under_its_experiments_name(tmp_path: Path) -> None:
    lab = open_lab(tmp_path, file="mine.py")
    write_record(record_of(lab), lab)
    promote(NAME, why="x", root=lab, today=TODAY, machine=SLUG)
    assert [p.name for p in (lab / "experiments" / "promoted").glob("*.py")] == ["null-ab.py"]


KILLED = """
import os, signal, sys
from datetime import date
from pathlib import Path
from labkit.lab.deciding import promotion
promotion.code_hash = lambda: sys.argv[2]
promotion.move_file = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
promotion.promote("null-ab", why="first", root=Path(sys.argv[1]), today=date(2026, 12, 1))
"""


def test_one_killed_between_its_two_steps_is_told_and_ended_by_the_same_command(tmp_path: Path) -> None:
    lab = measured_lab(tmp_path)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(lab), CODE], timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert (lab / "experiments" / "null-ab.py").exists() and len(read_recipes(lab)) == 1
    (fault,) = check(lab, today=TODAY).faults
    assert "is open under the name of null-ab, which was promoted" in fault.problem
    assert fault.next_step.startswith("labkit promote null-ab")
    assert board(lab, TODAY)[0].conditions == ("conflict",)
    decided = promote(NAME, why="again", root=lab, today=TODAY, machine=SLUG)
    assert decided.decision.why == "first" == read_decisions(lab)[0].why
    assert check(lab, today=TODAY).ok


def test_a_disk_that_does_not_move_the_file_is_one_message(tmp_path: Path) -> None:
    lab = measured_lab(tmp_path)
    (lab / "experiments" / "promoted").write_text("a file in the way")
    with pytest.raises(DecisionRefused, match=r"null-ab is promoted, but null-ab.py could not be moved"):
        promote(NAME, why="first", root=lab, today=TODAY, machine=SLUG)
    (lab / "experiments" / "promoted").unlink()
    promote(NAME, why="again", root=lab, today=TODAY, machine=SLUG)
    assert check(lab, today=TODAY).ok


def test_another_file_under_a_promoted_name_is_not_moved(tmp_path: Path) -> None:
    lab = measured_lab(tmp_path)
    promote(NAME, why="x", root=lab, today=TODAY, machine=SLUG)
    (lab / "experiments" / "promoted" / "null-ab.py").unlink()
    open_lab(lab, EXPERIMENT + "# another\n")
    message = refusal(lab)
    assert (
        "- state: an open experiment is needed, got null-ab, which was promoted on 2026-12-01: x" in message
    )
    assert "- name: one of its own is needed for experiments/null-ab.py" in message


def test_a_broken_file_of_decisions_stops_it(tmp_path: Path) -> None:
    lab = measured_lab(tmp_path)
    (lab / "experiments" / "promoted.toml").write_text("[[recipe]]\nname = ")
    with pytest.raises(RecipeInvalid, match=r"(?s)experiments/promoted.toml.*line 2"):
        promote(NAME, why="x", root=lab, today=TODAY, machine=SLUG)


def test_a_folder_that_is_no_lab(tmp_path: Path) -> None:
    with pytest.raises(ExperimentInvalid, match="experiment files are needed"):
        promote(NAME, why="x", root=tmp_path)


def test_two_promotions_at_once_make_one_recipe(tmp_path: Path) -> None:
    lab = measured_lab(tmp_path)
    refused: list[str] = []

    def decide() -> None:
        try:
            promote(NAME, why="x", root=lab, today=TODAY, machine=SLUG)
        except DecisionRefused as error:
            refused.append(str(error))

    threads = [threading.Thread(target=decide) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_recipes(lab)) == 1
    assert len(refused) == 1 and "was promoted on" in refused[0]


def test_a_lock_that_is_held_is_one_message(tmp_path: Path) -> None:
    lab = open_lab(tmp_path)
    held = pytest.raises(DecisionRefused, match="another decision has held it")
    with deciding(lab), held, deciding(lab, wait_s=0.0):
        pass


def test_a_clock_set_back_changes_nothing(tmp_path: Path) -> None:
    lab = measured_lab(tmp_path)
    promote(NAME, why="x", root=lab, today=TODAY.replace(year=1970), machine=SLUG)
    assert check(lab, today=TODAY.replace(year=1969)).ok


def test_a_recipe_of_another_machine_class_is_not_laid_over_an_arm_here(tmp_path: Path) -> None:
    lab = measured_lab(tmp_path)
    promote(NAME, why="x", root=lab, today=TODAY, machine=SLUG)
    asked = replace(BASELINE, recipe=NAME)
    with pytest.raises(RecipeInvalid, match=f"measured on {SLUG}"):
        labkit.resolve(asked, Workload(64, 16), root=lab)
