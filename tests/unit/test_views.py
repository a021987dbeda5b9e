"""The views of the index beside results: history, decisions, evidence, the long forms and the frontier."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas
import pytest

from labkit.core.decision import Burial, Evidence, Recipe
from labkit.frontier.table import frontier_frame
from labkit.lab.reading.question import sql
from labkit.lab.reading.runs import runs
from labkit.store import query
from labkit.store.graveyard import add_burial
from labkit.store.index import refresh
from labkit.store.recipes import add_recipe
from labkit.store.views import VIEWS
from labkit.store.write import write_record
from tests.unit.sample_records import KV8, SLUG, from_elsewhere, full_record, sample_record


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    (tmp_path / "experiments").mkdir()
    write_record(sample_record(run_id="run-1"), tmp_path)
    later = sample_record(run_id="run-2", started_at="2026-11-07T10:15:00Z")
    write_record(from_elsewhere(later, code_hash="another"), tmp_path)
    return tmp_path


def _recipe(*run_ids: str) -> Recipe:
    evidence = tuple(Evidence(name, f"results/{SLUG}/{name}.json", "0" * 64) for name in run_ids)
    return Recipe(
        "kv8-at-1k", "it is smaller", "2026-11-10", SLUG, "smollm2-135m", KV8.workload, KV8.baseline,
        KV8.candidate, "f1f2f3f4", "trade-off", ("KV cache: better",), evidence,
    )  # fmt: skip


def test_history_follows_a_metric_of_an_arm_over_time(lab: Path) -> None:
    frame = query.history(lab)
    mine = frame[(frame["metric"] == "decode_tps") & (frame["role"] == "candidate")]
    first, second = pandas.DataFrame(mine).to_dict("records")
    record = sample_record(run_id="run-2", started_at="2026-11-07T10:15:00Z")
    estimate = record.arm("candidate").metrics["decode_tps"]
    assert (first["run_id"], second["run_id"]) == ("run-1", "run-2")
    assert (second["value"], second["low"], second["high"], second["n"]) == (
        estimate.value, estimate.low, estimate.high, estimate.n,
    )  # fmt: skip
    assert (first["code_hash"], second["code_hash"]) == ("c0de0123456789ab", "another")
    assert pandas.isna(first["previous"]) and pandas.isna(first["ratio"])
    assert second["previous"] == first["value"]
    assert second["ratio"] == second["value"] / first["value"]
    assert frame["started_at"].is_monotonic_increasing


def test_history_has_a_row_per_record_arm_and_metric(lab: Path) -> None:
    frame = query.history(lab)
    assert not frame.duplicated(["run_id", "machine", "role", "metric"]).any()
    # Four visit metrics and two counts an arm, and the candidate's KL, in two records.
    assert len(frame) == 2 * (6 + 7)
    assert len(frame) == len(query.sql(lab, "FROM arm_metrics"))


def test_the_long_form_of_visits_holds_every_value(lab: Path) -> None:
    visits = sample_record(run_id="run-1").visits
    found = query.sql(lab, "FROM visit_metrics WHERE run_id = ?", ["run-1"])
    rows = {(row["visit"], row["metric"]): row["value"] for row in found.to_dict("records")}
    assert rows == {(v.index, name): value for v in visits for name, value in v.metrics.items()}


def test_axes_visits_and_pairs_of_one_run_are_those_of_all(lab: Path) -> None:
    for frame in (query.axes, query.visits, query.pairs):
        everything = frame(lab)
        mine = pandas.DataFrame(everything[everything["run_id"] == "run-2"]).reset_index(drop=True)
        pandas.testing.assert_frame_equal(frame(lab, "run-2"), mine)


def test_decisions_and_their_evidence_are_joined_with_the_records(lab: Path) -> None:
    add_recipe(lab, _recipe("run-1", "run-gone"))
    add_burial(lab, Burial("old-idea", "it is faster", "refuted", "it is not", "2026-11-09", ("run-2",)))
    assert query.decisions(lab)[["kind", "name"]].values.tolist() == [
        ["deleted", "old-idea"],
        ["promoted", "kv8-at-1k"],
    ]
    columns = ["name", "outcome", "run_id", "path", "state", "run_outcome", "missing"]
    rows = query.evidence(lab)[columns].astype(object)
    kept = [f"results/{SLUG}/{run_id}.json" for run_id in ("run-1", "run-2")]
    assert rows.where(rows.notna(), None).values.tolist() == [
        ["old-idea", "refuted", "run-2", kept[1], "complete", "trade-off", False],
        ["kv8-at-1k", "trade-off", "run-1", kept[0], "complete", "trade-off", False],
        ["kv8-at-1k", "trade-off", "run-gone", None, None, None, True],
    ]


def test_an_edited_or_broken_file_of_decisions_makes_the_index_stale(lab: Path) -> None:
    database = query.database_path(lab)
    refresh(lab, database)
    add_recipe(lab, _recipe("run-1"))
    assert refresh(lab, database).rebuilt
    assert len(query.decisions(lab)) == 1
    promoted = lab / "experiments" / "promoted.toml"
    whole = promoted.read_text()
    promoted.write_text(whole + "\n[[[")
    broken = refresh(lab, database)
    assert [bad.path for bad in broken.damaged] == ["experiments/promoted.toml"]
    assert query.decisions(lab).empty
    promoted.write_text(whole)
    mended = refresh(lab, database)
    assert (mended.damaged, mended.records) == ((), 2)
    assert len(query.decisions(lab)) == 1


def test_the_frontier_is_a_table_of_judged_points(lab: Path) -> None:
    judged = frontier_frame(query.frontier_points(lab))
    found = sql("SELECT * FROM frontier", lab)
    assert list(found.columns) == list(judged.columns)
    assert found[["label", "status"]].values.tolist() == judged[["label", "status"]].values.tolist()
    assert found["speed"].tolist() == judged["speed"].tolist()
    joined = sql("SELECT path FROM frontier JOIN runs USING (run_id, machine) WHERE status = 'frontier'", lab)
    assert len(joined) == (judged["status"] == "frontier").sum()


def test_an_empty_lab_has_an_empty_frontier_with_columns_of_the_same_types(tmp_path: Path, lab: Path) -> None:
    described = [
        sql("DESCRIBE frontier", root)[["column_name", "column_type"]] for root in (lab, tmp_path / "no")
    ]
    pandas.testing.assert_frame_equal(pandas.DataFrame(described[0]), pandas.DataFrame(described[1]))
    assert sql("FROM frontier", tmp_path / "no").empty


def test_a_failed_record_stays_out_of_the_frontier_and_in_the_history(lab: Path) -> None:
    write_record(replace(sample_record(run_id="run-3"), outcome="failed"), lab)
    assert "run-3" in set(query.history(lab)["run_id"])
    assert "run-3" not in set(sql("FROM frontier", lab)["run_id"])


@pytest.fixture
def told(tmp_path: Path) -> Path:
    """A lab with a record that tells everything, and one that tells nothing beyond its verdicts."""
    write_record(full_record("full"), tmp_path)
    write_record(sample_record(run_id="plain"), tmp_path)
    return tmp_path


def test_a_run_says_its_kind_design_looks_and_floor(told: Path) -> None:
    columns = "kind, design, looks_planned, looks_taken, floor_run_id"
    rows = query.sql(told, f"SELECT {columns} FROM runs ORDER BY run_id").astype(object)
    floor = "20261104T080000Z-null-control-aa00aa"
    assert rows.where(rows.notna(), None).values.tolist() == [
        ["experiment", "process-pair", 2, 1, floor],
        ["experiment", "process-pair", 1, 0, None],
    ]


def test_verdicts_say_their_level_their_floor_and_the_looks(told: Path) -> None:
    rows = query.axes(told, "full").set_index("metric")
    assert rows["alpha"].unique().tolist() == [0.031]
    assert rows["floor"].to_dict() == {"kv_bytes": 0.0, "decode_tps": 0.004, "kl_mean_nats": 0.0}
    assert {tuple(pairs) for pairs in rows["look_pairs"]} == {(8,)}
    unknown = query.sql(
        told, "SELECT DISTINCT look_pairs IS NULL AS unknown FROM axes WHERE run_id = 'plain'"
    )
    assert unknown["unknown"].tolist() == [True]
    looks = query.sql(told, "SELECT look, pairs, alpha, metric, verdict FROM looks").values.tolist()
    record = full_record("full")
    assert looks == [[1, 8, 0.031, a.metric, a.verdict] for a in sorted(record.axes, key=lambda a: a.metric)]


def test_noise_is_a_row_per_field_whatever_the_fields_are(told: Path) -> None:
    rows = query.sql(told, "SELECT metric, field, value, text FROM noise WHERE run_id = 'full'").astype(
        object
    )
    found = {(r["metric"], r["field"]): (r["value"], r["text"]) for r in rows.to_dict("records")}
    assert found["decode_tps", "level_drift"][0] == -0.061
    assert found["decode_tps", "phrases[0]"][1] == "decode drifted by -6.1% over the run (p 0.002)"
    assert pandas.isna(found["decode_tps", "ratio_lag1_p"][0])
    # Five fields and a phrase, less the list itself; two fields and no phrase.
    assert len(found) == 5 + 2
    assert len(query.sql(told, "FROM noise WHERE run_id = 'plain'")) == 0


def test_a_prediction_stands_beside_what_was_measured(told: Path) -> None:
    rows = query.sql(told, "FROM predictions").astype(object)
    found = {(r["role"], r["metric"]): r for r in rows.where(rows.notna(), None).to_dict("records")}
    measured = full_record("full").arm("baseline").metrics["decode_tps"].value
    assert found["baseline", "decode_tps"]["ratio"] == pytest.approx(measured / 18.0)
    assert found["baseline", "peak_bytes"]["measured"] is None, "what was not measured is not left out"
    assert len(found) == 3


def test_a_control_is_no_point_and_no_run_of_an_experiment(lab: Path) -> None:
    before = query.frontier_points(lab)["run_id"].tolist()
    for split in ("promote", "tune"):
        control = sample_record(run_id=f"control-{split}", started_at="2026-11-09T10:15:00Z", split=split)
        write_record(replace(control, kind="control"), lab)
    assert query.frontier_points(lab)["run_id"].tolist() == before
    assert len(query.tuned(lab)) == 0
    assert [run.run_id for run in runs(lab)] == ["run-1", "run-2"]
    kinds = query.history(lab).groupby("run_id")["kind"].first().to_dict()
    assert kinds["control-promote"] == "control", "its history is kept"
    mine = query.history(lab).query("run_id == 'run-2' and metric == 'decode_tps'")
    assert set(mine["git_revision"]) == {"55772b6"} and set(mine["fingerprint"]) == {"f1f2f3f4"}


@pytest.mark.parametrize("field", ["noise", "prediction", "floor"])
@pytest.mark.parametrize("bad", [["a"], "a", 3])
def test_a_record_whose_findings_are_no_table_is_damaged_and_named(
    lab: Path, field: str, bad: object
) -> None:
    path = write_record(sample_record(run_id="odd"), lab)
    path.write_text(json.dumps({**sample_record(run_id="odd").to_json(), field: bad}))
    (told,) = query.damaged(lab).to_dict("records")
    assert told["path"].endswith("odd.json")
    assert set(query.history(lab)["run_id"]) == {"run-1", "run-2"}


ODD_LOOKS: dict[str, object] = {
    "words for numbers": [{"pairs": "eight", "alpha": "some", "verdicts": {"decode_tps": "better"}}],
    "nothing": [{"verdicts": {"decode_tps": "better"}}],
    "no table of verdicts": [{"pairs": 8, "alpha": 0.03, "verdicts": "better"}],
    "no looks": ["one", 2],
    "too large": [{"pairs": 1e30, "alpha": 0.03, "verdicts": {"decode_tps": "better"}}],
    "a list for a number": [{"pairs": [8], "alpha": {}, "verdicts": {"decode_tps": 3}}],
}


@pytest.mark.parametrize("name", ODD_LOOKS)
def test_one_odd_record_breaks_no_view_of_the_others(lab: Path, name: str) -> None:
    path = write_record(sample_record(run_id="odd"), lab)
    path.write_text(json.dumps({**sample_record(run_id="odd").to_json(), "looks": ODD_LOOKS[name]}))
    for view in VIEWS:
        query.sql(lab, f"FROM {view}")
    assert {"run-1", "run-2"} <= set(query.axes(lab)["run_id"])
