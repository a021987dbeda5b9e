"""What must not be compared stands apart on the frontier, and what is left out is said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from labkit.cli.app import app
from labkit.core.arm import Arm
from labkit.core.errors import NoRecords
from labkit.core.records import Record
from labkit.frontier.dominance import judge
from labkit.frontier.labels import distinct_labels
from labkit.frontier.points import Point, points
from labkit.frontier.table import frontier_frame
from labkit.frontier.versions import gather
from labkit.store import query
from labkit.store.write import write_record
from tests.unit.sample_records import KV8, from_elsewhere, sample_record, with_candidate

LATER = "2026-11-07T10:15:00Z"
KV4 = replace(KV8, candidate=Arm("smollm2", kv="affine:4"))
UNSCORED = replace(KV8, candidate=Arm("smollm2", kv="turbo:k8v3"), kl=None)


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A lab with one quiet record, scored on `promote` text."""
    write_record(sample_record(run_id="first"), tmp_path)
    return tmp_path


def _later(shape: Any = KV8, run_id: str = "later", **changes: Any) -> Record:
    return sample_record(shape, run_id=run_id, started_at=LATER, **changes)


def _points(lab: Path, across_versions: bool = False) -> tuple[Point, ...]:
    return points(query.frontier_points(lab), across_versions=across_versions)


def _groups(lab: Path, across_versions: bool = False) -> list[list[str]]:
    """The short labels of each group, in the order of the groups."""
    found: dict[Any, list[str]] = {}
    for point in _points(lab, across_versions):
        found.setdefault(point.group, []).append(point.short_label)
    return [sorted(labels) for labels in found.values()]


def _hidden(lab: Path, across_versions: bool = False) -> int:
    return gather(query.frontier_points(lab), across_versions=across_versions).hidden


def _labkit(lab: Path, *options: str) -> str:
    arguments = ["frontier", "--root", str(lab), *options]
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "400"})
    assert done.exit_code == 0, done.output
    return done.output


def _as_found(split: str) -> Record:
    """A later record with another BLAS and mlx, other windows, on a busy machine."""
    later = replace(_later(split=split), quiet={"quiet": False})
    later = from_elsewhere(later, packages={"mlx": "0.33.0"}, windows_hash="16x24")
    return with_candidate(later, plan_hash="another-blas")


def test_a_busy_record_on_tune_text_with_other_packages_replaces_nothing(lab: Path) -> None:
    before = _points(lab)
    write_record(_as_found(split="tune"), lab)
    assert _points(lab) == before
    assert "1 record was scored on text of the split `tune` and left out" in _labkit(lab)


def test_the_same_record_on_promote_text_is_a_group_of_its_own_and_says_what_it_hides(lab: Path) -> None:
    write_record(_as_found(split="promote"), lab)
    assert {(p.run_id, p.quiet, p.group.windows_hash) for p in _points(lab)} == {("later", False, "16x24")}
    output = _labkit(lab)
    assert "not quotable" in output
    assert "Note: 1 older group hidden" in output
    assert "Note: older quiet records of other code or packages are hidden: --across-versions" in output
    assert "labkit frontier --across-versions" in output


@pytest.mark.parametrize(("first_quiet", "later_quiet"), [(False, False), (True, True), (False, True)])
def test_hidden_records_are_told_in_a_group_only_where_they_are_the_quiet_ones(
    tmp_path: Path, first_quiet: bool, later_quiet: bool
) -> None:
    write_record(replace(sample_record(run_id="first"), quiet={"quiet": first_quiet}), tmp_path)
    later = replace(_later(), quiet={"quiet": later_quiet})
    write_record(from_elsewhere(later, code_hash="another"), tmp_path)
    output = _labkit(tmp_path)
    assert "1 older group hidden" in output
    assert "older quiet records" not in output


@pytest.mark.parametrize("elsewhere", [{"code_hash": "another"}, {"packages": {"mlx": "0.33.0"}}])
def test_only_the_newest_version_is_shown_unless_asked_by_name(lab: Path, elsewhere: dict[str, Any]) -> None:
    write_record(from_elsewhere(_later(KV4), **elsewhere), lab)
    assert _groups(lab) == [["kv=affine:4", "kv=bf16"]]
    assert (_hidden(lab), _hidden(lab, across_versions=True)) == (1, 0)
    (together,) = _groups(lab, across_versions=True)
    assert len(together) == 4
    assert "kv=affine:4" in together


def test_an_older_version_is_newest_where_it_was_measured_last(lab: Path) -> None:
    """A quiet record speaks for its version, a later unquiet one still makes that version the newest."""
    write_record(
        from_elsewhere(sample_record(run_id="other", started_at="2026-11-06T10:15:00Z"), code_hash="x"), lab
    )
    assert {p.run_id for p in _points(lab)} == {"other"}
    write_record(replace(_later(), quiet={"quiet": False}), lab)
    assert {p.run_id for p in _points(lab)} == {"first"}


def test_versions_are_chosen_for_each_workload_apart(lab: Path) -> None:
    elsewhere = replace(KV8, workload=replace(KV8.workload, new_tokens=8))
    write_record(from_elsewhere(_later(elsewhere), code_hash="another"), lab)
    assert _groups(lab) == [["kv=affine:8", "kv=bf16"]] * 2
    assert _hidden(lab) == 0


def test_kl_over_other_windows_never_stands_beside(lab: Path) -> None:
    write_record(from_elsewhere(_later(KV4), windows_hash="16x24"), lab)
    for across_versions in (False, True):
        groups = _groups(lab, across_versions)
        assert sorted(groups) == [["kv=affine:4", "kv=bf16"], ["kv=affine:8", "kv=bf16"]]
    rows: list[dict[Any, Any]] = frontier_frame(query.frontier_points(lab)).to_dict("records")
    assert {(row["group"], row["windows_hash"]) for row in rows} == {(0, "16x24"), (1, "promote-16x512")}


def test_an_unscored_record_joins_the_newest_windows_and_lacks_quality(lab: Path) -> None:
    newer = sample_record(KV4, run_id="newer", started_at="2026-11-06T10:15:00Z")
    write_record(from_elsewhere(newer, windows_hash="16x1024"), lab)
    write_record(_later(UNSCORED), lab)
    assert sorted(_groups(lab)) == [
        ["kv=affine:4", "kv=bf16", "kv=turbo:k8v3"],
        ["kv=affine:8", "kv=bf16"],
    ]
    standing = next(s for s in judge(_points(lab)) if s.point.short_label == "kv=turbo:k8v3")
    assert (standing.status, [a.name for a in standing.missing]) == ("incomparable", ["quality"])
    assert standing.point.group.windows_hash == "16x1024"


def test_an_unscored_record_of_other_code_joins_no_older_windows(lab: Path) -> None:
    write_record(from_elsewhere(_later(UNSCORED), code_hash="another"), lab)
    assert _groups(lab) == [["kv=bf16", "kv=turbo:k8v3"]]
    assert _hidden(lab) == 1
    assert "KL not measured; code another" in _labkit(lab)


def test_a_later_unscored_record_takes_no_quality_away(lab: Path) -> None:
    write_record(_later(replace(KV8, kl=None)), lab)
    found = {p.short_label: p for p in _points(lab)}
    assert (found["kv=affine:8"].run_id, found["kv=affine:8"].missing()) == ("first", ())
    assert found["kv=bf16"].run_id == "later", "the reference's quality is known in either record"


def test_kl_over_unknown_windows_compares_with_nothing(lab: Path) -> None:
    write_record(from_elsewhere(_later(KV4), windows_hash=""), lab)
    standing = next(s for s in judge(_points(lab)) if s.point.short_label == "kv=affine:4")
    assert standing.status == "incomparable"


def test_the_same_arm_of_two_versions_is_told_apart(lab: Path) -> None:
    write_record(from_elsewhere(_later(), code_hash="another1234"), lab)
    (labels,) = _groups(lab, across_versions=True)
    assert labels == [
        "kv=affine:8 code another1",
        "kv=affine:8 code c0de0123",
        "kv=bf16 code another1",
        "kv=bf16 code c0de0123",
    ]
    (group,) = json.loads(_labkit(lab, "--across-versions", "--json"))["groups"]
    assert (group["code_hash"], group["reference"]) == (None, "smollm2 kv=bf16")
    assert "which alone may explain a difference" in group["notes"][0]


def test_two_plans_of_one_arm_are_told_apart() -> None:
    same = {"label": "m kv=bf16", "arm_hash": "a", "code_hash": "c", "packages_hash": "p"}
    rows = [
        {**same, "plan_hash": "first"},
        {**same, "plan_hash": "second"},
        {**same, "label": "m", "plan_hash": "x"},
    ]
    assert distinct_labels(rows) == ("m kv=bf16 plan first", "m kv=bf16 plan second", "m")


def test_the_json_counts_what_is_left_out(lab: Path) -> None:
    write_record(from_elsewhere(_later(), code_hash="another"), lab)
    write_record(_later(run_id="tuned", split="tune"), lab)
    hidden, tuned = json.loads(_labkit(lab, "--json"))["notes"]
    assert hidden.startswith("1 older group hidden")
    assert tuned.startswith("1 record was scored on text of the split `tune`")


def test_a_lab_with_nothing_but_tune_scores_has_no_frontier(tmp_path: Path) -> None:
    write_record(sample_record(split="tune"), tmp_path)
    done = CliRunner().invoke(app, ["frontier", "--root", str(tmp_path)])
    assert isinstance(done.exception, NoRecords)
    assert "none, and 1 scored on text of the split `tune`" in str(done.exception)
