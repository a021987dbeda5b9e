"""Every state of an experiment x every command answers as the table in life_cycle.txt says."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import pytest

import labkit
from labkit.core.arm import Arm, Workload
from labkit.core.errors import DecisionRefused
from labkit.core.events import Event, Progress
from labkit.lab.deciding.check import check
from labkit.lab.measuring.run import RunStopped, run
from tests.unit.decided_lab import open_lab
from tests.unit.life_cycle import STATES, table

GOLDEN = Path(__file__).with_name("life_cycle.txt").read_text(encoding="utf-8")
SECTIONS = {part.partition("\n")[0]: f"## {part}".rstrip() for part in GOLDEN.split("## ")[1:]}


def test_the_table_has_every_state() -> None:
    assert list(SECTIONS) == list(STATES)


@pytest.mark.parametrize("state", STATES)
def test_every_command_answers_as_the_table_says(state: str) -> None:
    assert table(state).rstrip() == SECTIONS[state]


EXPIRES = date.today() + timedelta(days=300)
MEASURED = f"""
from labkit import Arm, Experiment, Hypothesis, Workload
experiment = Experiment(
    "null-ab",
    Hypothesis("less memory at no cost", improves={{"kv_bytes": 0.4}}, holds={{"decode_tps": 0.3}}),
    Arm("null:sd=0.02,kv_bytes_per_token=100"), Arm("null:sd=0.02,kv_bytes_per_token=40"),
    Workload(64, 16), expires="{EXPIRES}", score=None, pairs=12)
"""
ASKED = Arm("null:sd=0.02,kv_bytes_per_token=100", recipe="auto")


def test_from_a_run_to_a_recipe_that_the_planner_picks_and_back_out(tmp_path: Path) -> None:
    """All of it for real: twelve pairs, so that a busy machine is no hindrance."""
    lab, work = open_lab(tmp_path / "lab", MEASURED), Workload(64, 16)
    plain = labkit.resolve(ASKED, work, root=lab)
    assert "none applies" in plain.explain()
    run(lab / "experiments" / "null-ab.py", root=lab, lease=tmp_path / "lease")
    labkit.promote("null-ab", why="memory is short", root=lab)
    picked = labkit.resolve(ASKED, work, root=lab)
    assert "null-ab, supported, promoted" in picked.explain()
    assert picked.hash() != plain.hash() and labkit.check(lab).ok
    labkit.delete("null-ab", why="the driver was mended", root=lab)
    assert labkit.resolve(ASKED, work, root=lab).hash() == plain.hash()
    assert labkit.check(lab).sentence() == "0 experiments open, 0 promoted, 1 deleted: all in order."


def test_a_run_of_a_candidate_with_a_recipe_cannot_be_promoted(tmp_path: Path) -> None:
    """Its record holds the arm that the recipe made, so that the file alone tells."""
    lab = open_lab(tmp_path / "lab", MEASURED)
    run(lab / "experiments" / "null-ab.py", root=lab, lease=tmp_path / "lease")
    labkit.promote("null-ab", why="memory is short", root=lab)
    text = MEASURED.replace("null-ab", "again").replace("pairs=12", "pairs=1")
    text = text.replace("kv_bytes_per_token=40", 'kv_bytes_per_token=100", recipe="null-ab')
    open_lab(lab, text, "again.py")
    run(lab / "experiments" / "again.py", root=lab, lease=tmp_path / "lease")
    with pytest.raises(DecisionRefused, match="candidate: an arm that states what it runs is needed"):
        labkit.promote("again", why="x", root=lab)


def test_an_unfinished_run_is_told_and_no_fault(tmp_path: Path) -> None:
    lab = open_lab(tmp_path / "lab", MEASURED)

    def interrupt(event: Event) -> None:
        if isinstance(event, Progress) and event.task == "visits" and event.done >= 4:
            raise KeyboardInterrupt

    with pytest.raises(RunStopped):
        run(lab / "experiments" / "null-ab.py", root=lab, lease=tmp_path / "lease", sink=interrupt)
    checked = check(lab)
    assert checked.ok
    assert checked.notes[0].startswith(
        "null-ab has an unfinished run, 2 of 12 pairs; to go on with it: labkit"
    )


def test_the_shipped_lab_is_in_order() -> None:
    lab = Path(labkit.__file__).parent.parent
    assert [fault.line() for fault in check(lab, today=date(2026, 12, 1)).faults] == []
