"""`labkit check`: every fault of a lab at once; and renewals and the command line of decisions."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path

import pytest

from labkit.core.decision import Renewal
from labkit.core.errors import DecisionRefused, ExperimentInvalid
from labkit.lab.deciding.burial import delete
from labkit.lab.deciding.check import check
from labkit.lab.deciding.promotion import promote
from labkit.lab.deciding.renewal import renew
from labkit.lab.measuring.provenance import code_hash
from labkit.lab.reading.board import board
from labkit.store.decisions import read_renewals
from labkit.store.recipes import promoted_path
from labkit.store.renewals import add_renewal, renewed_path
from tests.unit.command_line import labkit
from tests.unit.decided_lab import EXPERIMENT, NAME, RUN_ID, TODAY, measured_lab, open_lab, record_path
from tests.unit.sample_records import SLUG

pytestmark = pytest.mark.usefixtures("sample_code")


def test_a_lab_in_order_says_so(tmp_path: Path) -> None:
    checked = check(measured_lab(tmp_path), today=TODAY)
    assert checked.ok and checked.sentence() == "1 experiment open, 0 promoted, 0 deleted: all in order."
    assert checked.sentence() in checked._repr_html_()


def test_every_fault_is_found_at_once(tmp_path: Path) -> None:
    lab = measured_lab(tmp_path)
    open_lab(lab, EXPERIMENT.replace("null-ab", "late").replace("2027-02-01", "2026-11-29"), "late.py")
    open_lab(lab, "nonsense(", "broken.py")
    open_lab(lab, EXPERIMENT, "twin.py")
    record_path(lab).write_text("{")
    renewed_path(lab).write_text("x = 1\n")
    (lab / "experiments" / "promoted").mkdir()
    (lab / "experiments" / "promoted" / "stray.py").write_text(EXPERIMENT.replace("null-ab", "stray"))
    found = {fault.subject: fault.problem for fault in check(lab, today=TODAY).faults}
    assert found.keys() == {
        *("experiments/", "experiments/broken.py", "late", "null-ab", "experiments/promoted/stray.py"),
        record_path(lab).relative_to(lab).as_posix(),
    }
    assert found["late"] == "expired 2 days ago, on 2026-11-29, and is undecided"
    assert "broken.py, line 1, cannot be loaded" in found["experiments/broken.py"]


def test_broken_recipes_are_told_alone_and_not_as_a_fault_of_every_promoted_file(tmp_path: Path) -> None:
    lab = measured_lab(tmp_path)
    promote(NAME, why="x", root=lab, today=TODAY, machine=SLUG)
    promoted_path(lab).write_text(promoted_path(lab).read_text().replace("[recipe.arm]", "[recipe.arm"))
    (fault,) = check(lab, today=TODAY).faults
    assert "experiments/promoted.toml" in fault.problem and "line" in fault.problem


@pytest.mark.parametrize("text", ["{", None])
def test_evidence_that_changed_or_went_is_a_fault(tmp_path: Path, text: str | None) -> None:
    lab = measured_lab(tmp_path)
    promote(NAME, why="x", root=lab, today=TODAY, machine=SLUG)
    record_path(lab).unlink() if text is None else record_path(lab).write_text(text)
    problems = [f.problem for f in check(lab, today=TODAY).faults if f.subject == NAME]
    assert len(problems) == 1
    assert ("cannot be read: No such file" if text is None else "its SHA-256 differs") in problems[0]


def test_evidence_outside_the_lab_is_none(tmp_path: Path) -> None:
    lab = measured_lab(tmp_path / "lab")
    promote(NAME, why="x", root=lab, today=TODAY, machine=SLUG)
    outside = tmp_path / "outside.json"
    outside.write_bytes(record_path(lab).read_bytes())
    old = record_path(lab).relative_to(lab).as_posix()
    promoted_path(lab).write_text(promoted_path(lab).read_text().replace(old, "../outside.json"))
    assert "is no record of this lab" in check(lab, today=TODAY).faults[0].problem


def test_a_promoted_experiment_does_not_expire(tmp_path: Path) -> None:
    lab = measured_lab(tmp_path)
    promote(NAME, why="x", root=lab, today=TODAY, machine=SLUG)
    assert check(lab, today=date(2030, 1, 1)).ok


def test_what_ends_soon_and_what_is_renewed_for_nothing_is_told(tmp_path: Path) -> None:
    lab = open_lab(tmp_path)
    add_renewal(lab, Renewal("nul-ab", "2027-06-01", "a typing error", "2026-12-01"))
    checked = check(lab, today=date(2027, 1, 30))
    assert checked.ok
    assert checked.notes == (
        "null-ab expires in 2 days, on 2027-02-01.",
        "renewed.toml renews nul-ab, which no experiment of this lab is called.",
    )


def test_it_loads_no_mlx_and_is_quick(tmp_path: Path) -> None:
    code = (
        "import sys; from labkit.lab.deciding.check import check; check(sys.argv[1]);"
        "sys.exit(sum(name.split('.')[0] == 'mlx' for name in sys.modules))"
    )
    # A generous limit on a busy machine; it takes about a second.
    subprocess.run([sys.executable, "-c", code, str(measured_lab(tmp_path))], check=True, timeout=30)


def test_the_command_ends_in_1_where_something_is_wrong(tmp_path: Path) -> None:
    lab = open_lab(tmp_path)
    fine = labkit("check", "--root", lab)
    assert (fine.code, fine.out) == (0, "1 experiment open, 0 promoted, 0 deleted: all in order.\n")
    open_lab(lab, "nonsense(", "broken.py")
    wrong = labkit("check", "--root", lab)
    assert (wrong.code, wrong.err) == (1, "")
    assert wrong.out.startswith(
        "experiments/broken.py: does not load: broken.py, line 1, cannot be loaded; got"
    )
    assert wrong.out.endswith("2 experiments open, 0 promoted, 0 deleted: 1 fault.\n")
    told = json.loads(labkit("check", "--root", lab, "--json").out)
    assert (told["ok"], told["open"], told["faults"][0]["subject"]) == (False, 2, "experiments/broken.py")


def test_a_renewal_counts_everywhere_and_leaves_the_file(tmp_path: Path) -> None:
    lab = open_lab(tmp_path)
    renew(NAME, until="2027-03-01", why="x", root=lab, today=TODAY)
    assert (lab / "experiments" / "null-ab.py").read_text() == EXPERIMENT
    assert check(lab, today=date(2027, 2, 28)).ok
    assert not check(lab, today=date(2027, 3, 2)).ok
    row = board(lab, date(2027, 2, 27))[0]
    assert (row.state, row.conditions, row.days_left) == ("open", ("renewed",), 2)


@pytest.mark.parametrize(
    ("until", "today", "words"),
    [
        ("2027-W10-1", TODAY, "until: a date such as 2027-02-01 is needed, got '2027-W10-1'"),
        ("20270301", TODAY, "until: a date such as 2027-02-01 is needed, got '20270301'"),
        ("soon", TODAY, "until: a date such as 2027-02-01 is needed, got 'soon'"),
        ("2027-02-01", TODAY, "until: a date after its expiry, 2027-02-01, is needed, got 2027-02-01"),
        ("2027-03-01", date(2027, 3, 1), "until: a date after today, 2027-03-01, is needed"),
        ("9999-12-31", TODAY, "until: a date within 400 days, by 2028-01-05, is needed, got 9999-12-31"),
    ],
)
def test_a_renewal_needs_a_later_date(tmp_path: Path, until: str, today: date, words: str) -> None:
    lab = open_lab(tmp_path)
    with pytest.raises(DecisionRefused) as refused:
        renew(NAME, until=until, why=" ", root=lab, today=today)
    assert str(refused.value).count("\n- ") == 2 and words in str(refused.value)
    assert read_renewals(lab) == ()


def test_a_second_renewal_is_refused(tmp_path: Path) -> None:
    lab = open_lab(tmp_path)
    renew(NAME, until="2027-03-01", why="the machine was lent", root=lab, today=TODAY)
    with pytest.raises(DecisionRefused, match="got renewed until 2027-03-01, on 2026-12-01: the machine was"):
        renew(NAME, until="2027-04-01", why="x", root=lab, today=TODAY)


def test_all_decisions_at_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the code's own hash
    lab = measured_lab(tmp_path, code=code_hash())
    root = ("--root", lab)
    assert (
        "expires:"
        in labkit("renew", NAME, "--until", str(date.today() + timedelta(days=300)), "--why", "x", *root).out
    )
    promoted = labkit("promote", NAME, "--why", "memory", "--record", RUN_ID, *root)
    assert (promoted.code, promoted.err) == (0, "") and "condition" not in promoted.out
    assert "No open experiment." in labkit("experiments", *root).out
    shown = labkit("experiments", "--all", *root)
    assert "promoted" in shown.out and max(map(len, shown.out.splitlines())) <= 80
    refused = labkit("promote", NAME, "--why", "memory", *root)
    assert (refused.code, refused.out) == (1, "") and "which was promoted on" in refused.message()
    assert labkit("delete", NAME, "--why", "it lost", *root).code == 0
    (row,) = json.loads(labkit("experiments", "--all", "--json", *root).out)
    assert (row["name"], row["state"], row["conditions"]) == (NAME, "deleted", [])
    assert "did you" not in labkit("delete", "nosuch", "--why", "x", *root).message()


def test_a_decision_without_a_reason_is_wrong_usage(tmp_path: Path) -> None:
    for command in (("promote", NAME), ("delete", NAME), ("renew", NAME, "--until", "2098-01-01")):
        ended = labkit(*command, "--root", open_lab(tmp_path))
        assert ended.code == 2 and "--why" in ended.err


def test_a_folder_that_is_no_lab(tmp_path: Path) -> None:
    with pytest.raises(ExperimentInvalid, match="experiment files are needed"):
        check(tmp_path)


def test_an_expiry_that_never_comes_is_a_fault(tmp_path: Path) -> None:
    lab = open_lab(tmp_path, EXPERIMENT.replace("2027-02-01", "9999-12-31"))
    (fault,) = check(lab, today=TODAY).faults
    assert "an experiment is to be decided within 400 days" in fault.problem


def test_a_record_that_came_after_a_deletion_is_a_fault(tmp_path: Path) -> None:
    lab = open_lab(tmp_path)
    delete(NAME, why="gone", root=lab, today=TODAY)
    measured_lab(lab)
    (lab / "experiments" / "null-ab.py").unlink()
    (fault,) = check(lab, today=TODAY).faults
    assert "was deleted, and its line does not list results/" in fault.problem


def test_files_that_no_command_takes_for_experiments_are_told(tmp_path: Path) -> None:
    lab = open_lab(tmp_path)
    for path in ("_late.py", "sub/late.py", "promoted/.late.py", "__pycache__/made.py"):
        (lab / "experiments" / path).parent.mkdir(exist_ok=True)
        (lab / "experiments" / path).write_text(EXPERIMENT)
    checked = check(lab, today=TODAY)
    hidden, nested = "its name begins with a dot or an underscore", "it lies in a folder of its own"
    found = {"_late.py": hidden, "promoted/.late.py": hidden, "sub/late.py": nested}
    told = (f"experiments/{path} is looked past and never expires, since {w}." for path, w in found.items())
    assert checked.ok and checked.notes == tuple(told)


def test_one_day_is_no_days(tmp_path: Path) -> None:
    lab = open_lab(tmp_path)
    assert check(lab, today=date(2027, 1, 31)).notes == ("null-ab expires in 1 day, on 2027-02-01.",)
    decided = renew(NAME, until="2027-02-02", why="x", root=lab, today=date(2027, 2, 1))
    assert "2027-02-02, 1 day from now" in decided.text()


def test_an_experiment_may_be_decided_on_its_last_day(tmp_path: Path) -> None:
    assert check(open_lab(tmp_path), today=date(2027, 2, 1)).ok


def test_a_file_given_for_a_name_is_told_by_that(tmp_path: Path) -> None:
    lab = open_lab(tmp_path, file="mine.py")
    with pytest.raises(DecisionRefused, match=r"did you mean null-ab\?"):
        delete("experiments/mine.py", why="x", root=lab, today=TODAY)
