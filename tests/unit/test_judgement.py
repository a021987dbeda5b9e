"""`labkit judge`: an outcome, the rule, the trail and the next command; nothing is changed by it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from labkit.core.errors import DecisionRefused
from labkit.core.records import Record
from labkit.lab.deciding.judgement import judge
from labkit.lab.deciding.procedure import RULES
from labkit.lab.deciding.situation import SuiteEvidence
from labkit.store.write import write_record
from tests.unit.command_line import labkit
from tests.unit.decided_lab import (
    CODE,
    NAME,
    REFUTED,
    SUPPORTED,
    TRADE_OFF,
    measured_lab,
    open_lab,
    record_of,
    record_path,
    with_windows,
)
from tests.unit.sample_records import EQUAL, SLUG

NEWER = "20261106T101500Z-null-ab-0a1b2c"


def judged(lab: Path, **options: Any) -> Any:
    before = {path: path.read_bytes() for path in lab.rglob("*") if path.is_file()}
    found = judge(NAME, root=lab, **{"machine": SLUG, "code": CODE, **options})
    after = {path: path.read_bytes() for path in before}
    assert before == after
    return found


def exact(record: Record) -> Record:
    oracles = {"baseline": EQUAL}
    parity = {"candidate": {"equals": ["baseline"], "oracles": oracles, "prompt_tokens": 64}}
    return replace(record, parity=parity, quality={**record.quality, "kl_max_nats": 1e-3})


@pytest.mark.parametrize(
    ("shape", "outcome", "rule", "step"),
    [
        (SUPPORTED, "kept off (kill switch)", "parity unknown", "labkit run experiments/null-ab.py"),
        (TRADE_OFF, "trade-off (Lab item)", "gain for loss", "labkit promote null-ab --accept-trade-off"),
        (REFUTED, "delete", "refuted", "labkit delete null-ab --why ..."),
    ],
)
def test_the_outcome_of_a_record(tmp_path: Path, shape: Any, outcome: str, rule: str, step: str) -> None:
    found = judged(measured_lab(tmp_path, shape))
    assert (found.outcome, found.rule) == (outcome, rule)
    assert found.next_step.startswith(step) and found.record.endswith("0a1b2c")
    assert [looked.fired for looked in found.trail].index(True) == len(found.trail) - 1


def test_more_pairs_where_an_axis_is_unresolved(tmp_path: Path) -> None:
    write_record(with_windows(record_of(open_lab(tmp_path)), [1e-4, 2e-3] * 8), tmp_path)
    found = judged(tmp_path)
    assert (found.rule, found.next_step) == ("unresolved", "labkit run experiments/null-ab.py --pairs 20")


def test_what_is_exact_with_a_suite_and_without(tmp_path: Path) -> None:
    """Its KL is not zero at every position, so that equal tokens do not make it exact."""
    write_record(exact(record_of(open_lab(tmp_path))), tmp_path)
    assert judged(tmp_path).rule == "lossy and not confirmed"
    suite = SuiteEvidence("frozen-1", {"mmlu": "equivalent"})
    found = judged(tmp_path, suite=suite)
    assert (found.outcome, found.next_step) == ("default-on", "labkit promote null-ab --why ...")


def test_a_record_of_other_code_says_what_it_would_be(tmp_path: Path) -> None:
    found = judged(measured_lab(tmp_path, TRADE_OFF), code="0ther")
    assert (found.rule, found.otherwise) == ("an outdated record", "trade-off (Lab item): gain for loss")
    assert judged(tmp_path).otherwise == ""


def test_a_file_that_was_edited_is_not_what_was_measured(tmp_path: Path) -> None:
    lab = measured_lab(tmp_path)
    path = lab / "experiments" / f"{NAME}.py"
    path.write_text(path.read_text() + "# edited\n")
    found = judged(lab)
    assert found.rule == "an outdated record"
    assert "the file was changed since" in next(f.detail for f in found.findings if f.part == "record")


def test_a_newer_record_that_says_otherwise_and_one_that_was_asked_for(tmp_path: Path) -> None:
    lab = measured_lab(tmp_path)
    newer = replace(record_of(lab, REFUTED, NEWER), started_at="2026-11-06T10:15:00Z")
    write_record(newer, lab)
    assert judged(lab).rule == "refuted"
    older = judged(lab, record="20261105T101500Z-null-ab-0a1b2c")
    assert (older.outcome, older.rule) == ("kept off (kill switch)", "a contradicted record")


def test_a_record_that_was_tampered_with_decides_nothing(tmp_path: Path) -> None:
    lab = measured_lab(tmp_path, REFUTED)
    data = json.loads(record_path(lab).read_text())
    data["axes"][0]["verdict"], data["outcome"] = "better", "supported"
    record_path(lab).write_text(json.dumps(data))
    assert judged(lab).rule == "a contradicted record"


def test_without_a_record_and_of_an_unknown_name(tmp_path: Path) -> None:
    with pytest.raises(DecisionRefused, match="a complete one is needed, got none"):
        judged(open_lab(tmp_path))
    with pytest.raises(DecisionRefused, match="the name of an experiment of this lab"):
        judge("another", root=tmp_path)


def test_the_command_prints_it_within_80_columns_and_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lab = measured_lab(tmp_path, REFUTED)
    done = labkit("judge", NAME, "--root", str(lab))
    assert done.code == 0 and done.out.startswith("null-ab: kept off (kill switch)\n")
    assert "were it not: delete: refuted" in done.out
    tables = [line for line in done.out.splitlines() if line.startswith("  ")]
    assert tables and max(map(len, tables)) <= 80
    data = json.loads(labkit("judge", NAME, "--root", str(lab), "--json").out)
    assert data["rule"] == "an outdated record" and data["trail"][0]["saw"] == {"record": "outdated"}
    assert {looked["rule"] for looked in data["trail"]} <= {rule.name for rule in RULES}
    missing = labkit("judge", "another", "--root", str(lab))
    assert missing.code == 1 and missing.out == "" and "labkit experiments --all" in missing.err


def test_the_command_to_revalidate_a_lab_where_nothing_is_promoted(tmp_path: Path) -> None:
    lab = open_lab(tmp_path)
    done = labkit("revalidate", "--root", str(lab))
    assert (done.code, done.out) == (0, "Promoted experiments: none.\n")
    assert json.loads(labkit("revalidate", "--root", str(lab), "--json").out) == {"ok": True, "results": []}
    refused = labkit("revalidate", NAME, "--root", str(lab))
    assert refused.code == 1 and "null-ab: an open one" in refused.err
