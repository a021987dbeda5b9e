"""Experiment files: what loads, and one clear message for what does not."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from labkit.cli.demo import SHIPPED
from labkit.core.errors import ExperimentInvalid
from labkit.core.hypothesis import Hypothesis
from labkit.lab.deciding.ledger import kept_folder, open_folder
from labkit.lab.experiment import ScoreText, load_experiment
from labkit.lab.reading.board import board
from labkit.store.decisions import read_burials
from tests.unit.null_experiment import null_experiment

LAB = Path(__file__).parents[2]
GOOD = """
from labkit import Arm, Experiment, Hypothesis, Workload
experiment = Experiment("mine", Hypothesis("x", improves={"decode_tps": 0.1}), Arm("null"),
                        Arm("null:slowdown=0.8"), Workload(8, 8), expires="2099-01-01")
"""


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_experiment_states_what_it_expects_until_it_is_deleted(name: str) -> None:
    """Others in experiments/ are the reader's own: `labkit check` looks at those."""
    files = [p for f in (open_folder(LAB), kept_folder(LAB)) if (p := f / f"{name}.py").exists()]
    assert files or name in {burial.name for burial in read_burials(LAB)}
    for path in files:
        experiment = load_experiment(path).experiment
        assert experiment.name == name
        assert set(experiment.expects) == set(experiment.hypothesis.margins())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("experiment = (", "bad.py, line 1, cannot be loaded"),
        ("x = 1\nraise ValueError('oops')", "bad.py, line 2, cannot be loaded\n  got:     ValueError: oops"),
        ("import sys\nsys.exit(3)", "bad.py, line 2, cannot be loaded\n  got:     SystemExit: 3"),
        ("x = 1", "exactly one Experiment is needed in a file\n  got:     0 of them in bad.py"),
        (GOOD + GOOD.replace("experiment =", "other ="), "got:     2 of them in bad.py"),
        (GOOD.replace("decode_tps", "speed"), "'speed' is not a metric; options: prefill_tps, decode_tps"),
        (GOOD.replace("0.1", "float('nan')"), "margin of 'decode_tps' must be a positive number, got nan"),
        (GOOD.replace("2099-01-01", "soon"), "expires: a date such as 2027-02-01 is needed, got 'soon'"),
        (GOOD.replace("null:slowdown=0.8", "null"), "candidate: an arm that differs from the baseline"),
        (GOOD.replace('"mine"', '"My Exp"'), "name: lower-case letters, digits and hyphens"),
        (
            GOOD.replace("Workload(8, 8)", "Workload(8, 0)"),
            "workload.new_tokens: a whole number of at least 1",
        ),
        (
            GOOD.replace("expires=", "pairs=0, expires="),
            "pairs: a whole number of at least 1 is needed, got 0",
        ),
        (GOOD.replace("expires=", "expects={'kv_bytes': 'better'}, expires="), "expects: a metric of the"),
    ],
)
def test_a_malformed_file_gives_one_message(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bad.py"
    path.write_text(text)
    with pytest.raises(ExperimentInvalid) as refused:
        load_experiment(path)
    assert words in str(refused.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ExperimentInvalid, match="an experiment file is needed"):
        load_experiment(tmp_path / "none.py")


def test_every_problem_is_listed() -> None:
    with pytest.raises(ExperimentInvalid) as refused:
        null_experiment(name="", expires="", hypothesis=Hypothesis("nothing"), pairs=0).validate()
    assert str(refused.value).count("\n- ") == 4


def test_a_metric_cannot_be_improved_and_held() -> None:
    both = Hypothesis("x", improves={"kv_bytes": 0.1}, holds={"kv_bytes": 0.1})
    with pytest.raises(ExperimentInvalid, match="cannot be both improved and held"):
        null_experiment(hypothesis=both).validate()


def test_the_board_shows_open_expired_and_invalid(tmp_path: Path) -> None:
    folder = tmp_path / "experiments"
    folder.mkdir()
    (folder / "a.py").write_text(GOOD)
    (folder / "b.py").write_text(GOOD.replace("2099-01-01", "2026-01-31").replace("mine", "old"))
    (folder / "c.py").write_text("nonsense(")
    rows = board(tmp_path, date(2026, 2, 2))
    assert [(r.name, r.state, r.conditions, r.records) for r in rows] == [
        ("mine", "open", (), 0),
        ("old", "open", ("expired",), 0),
        ("c", "open", ("invalid",), 0),
    ]
    assert rows[1].days_left == -2
    assert "c.py, line 1, cannot be loaded" in rows[2].statement


def test_an_empty_lab_says_what_is_needed(tmp_path: Path) -> None:
    with pytest.raises(ExperimentInvalid, match="experiment files are needed"):
        board(tmp_path, date(2026, 2, 2))


def test_eight_pairs_are_too_few_for_seven_axes() -> None:
    """The smallest p of 8 pairs is 2 / 256, and Holm asks for 0.05 / 7 of the first axis."""
    held = ("decode_tps", "prefill_tps", "ttft_s", "itl_p50_s", "itl_p95_s", "itl_p99_s")
    seven = Hypothesis("x", improves={"kv_bytes": 0.1}, holds=dict.fromkeys(held, 0.1))
    with pytest.raises(
        ExperimentInvalid, match=r"at least 9 are needed to decide 7 visit axes \(Holm\), got 8"
    ):
        null_experiment(hypothesis=seven).validate()
    null_experiment(hypothesis=seven, pairs=9).validate()


@pytest.mark.parametrize("other", ["artifact_bytes", "ppl_ratio"])
def test_only_axes_of_visits_need_pairs(other: str) -> None:
    """An artifact is exact and no part of the family; a score may pass the hardest step in their place."""
    held = ("decode_tps", "prefill_tps", "ttft_s", "itl_p50_s", "itl_p95_s", other)
    claim = Hypothesis("x", improves={"kv_bytes": 0.1}, holds=dict.fromkeys(held, 0.1))
    null_experiment(hypothesis=claim, score=ScoreText()).validate()


def test_a_name_in_place_of_a_path_is_answered_with_the_path(tmp_path: Path) -> None:
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "mine.py").write_text("")
    with pytest.raises(ExperimentInvalid, match=r"did you mean .*experiments/mine\.py"):
        load_experiment(tmp_path / "mine")
