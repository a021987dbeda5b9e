"""The DuckDB index: made of all records, replaced under open readers, equal to the records themselves."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import duckdb
import pandas
import pytest
from typer.testing import CliRunner

from labkit.cli.store import app
from labkit.core.canonical import digest
from labkit.core.metrics import METRICS
from labkit.store import query
from labkit.store.index import INDEX_VERSION, open_current, rebuild, refresh
from labkit.store.write import write_record
from tests.unit.sample_records import BLAS, KV8, SLUG, from_elsewhere, sample_record, with_candidate


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A lab with two experiments."""
    write_record(sample_record(run_id="run-1"), tmp_path)
    write_record(sample_record(BLAS, run_id="run-2", started_at="2026-11-06T10:15:00Z"), tmp_path)
    return tmp_path


def _rows(frame: pandas.DataFrame, **where: object) -> list[dict[Any, Any]]:
    """The rows in which every named column has the given value."""
    rows: list[dict[Any, Any]] = frame.to_dict("records")
    return [row for row in rows if all(row[column] == value for column, value in where.items())]


def _count(database: Path) -> int:
    with duckdb.connect(str(database), read_only=True) as connection:
        return connection.execute("SELECT count(*) FROM runs").fetchall()[0][0]


def test_rebuild_indexes_every_record(lab: Path) -> None:
    built = rebuild(lab, query.database_path(lab))
    assert (built.records, built.damaged, built.rebuilt) == (2, (), True)
    assert _count(built.database) == 2
    assert sorted(p.name for p in (lab / "results").iterdir()) == ["lab.duckdb", SLUG]


def test_refresh_does_nothing_until_a_record_comes(lab: Path) -> None:
    database = query.database_path(lab)
    assert refresh(lab, database).rebuilt
    before = database.stat().st_ino
    assert not refresh(lab, database).rebuilt
    assert database.stat().st_ino == before
    write_record(sample_record(run_id="run-3"), lab)
    after = refresh(lab, database)
    assert (after.rebuilt, after.records) == (True, 3)


def test_refresh_notices_a_changed_and_a_removed_record(lab: Path) -> None:
    database = query.database_path(lab)
    refresh(lab, database)
    path = lab / "results" / SLUG / "run-1.json"
    path.write_text(path.read_text().replace('"trade-off"', '"refuted"'))
    assert refresh(lab, database).rebuilt
    outcomes = [row["outcome"] for row in _rows(query.results(lab))]
    assert outcomes == ["refuted", "refuted", "supported", "supported"]
    path.unlink()
    assert refresh(lab, database).records == 1


@pytest.mark.parametrize("content", [b"", b"not a database", None])
def test_refresh_replaces_what_is_no_current_index(lab: Path, content: bytes | None) -> None:
    database = query.database_path(lab)
    if content is None:
        refresh(lab, database)
        with duckdb.connect(str(database)) as connection:
            connection.execute(f"UPDATE index_info SET version = {INDEX_VERSION - 1}")
    else:
        database.write_bytes(content)
    assert refresh(lab, database).rebuilt
    assert _count(database) == 2


def test_an_open_reader_keeps_its_file_while_the_index_is_replaced(lab: Path) -> None:
    database = query.database_path(lab)
    refresh(lab, database)
    with duckdb.connect(str(database), read_only=True) as reader:
        write_record(sample_record(run_id="run-3"), lab)
        assert refresh(lab, database).rebuilt
        assert reader.execute("SELECT count(*) FROM runs").fetchall() == [(2,)]
        assert reader.execute("SELECT count(*) FROM results").fetchall() == [(4,)]
        # The same process sees the new file although DuckDB still holds the old one under its name.
        assert len(query.results(lab)) == 6
        assert not refresh(lab, database).rebuilt
    assert _count(database) == 3


def test_an_open_writer_does_not_block_a_refresh(lab: Path) -> None:
    database = query.database_path(lab)
    refresh(lab, database)
    with duckdb.connect(str(database)) as writer:
        writer.execute("CREATE TABLE mine (x INTEGER)")
        write_record(sample_record(run_id="run-3"), lab)
        assert refresh(lab, database).rebuilt
    assert _count(database) == 3


def test_an_interrupted_rebuild_leaves_the_old_index_alone(
    lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = query.database_path(lab)
    refresh(lab, database)
    before = database.read_bytes()
    write_record(sample_record(run_id="run-3"), lab)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        refresh(lab, database)
    assert database.read_bytes() == before
    assert sorted(p.name for p in database.parent.iterdir()) == ["lab.duckdb", SLUG]


def test_damaged_records_are_listed_and_the_rest_indexed(lab: Path) -> None:
    folder = lab / "results" / SLUG
    (folder / "torn.json").write_text('{"schema": 1,')
    wrong = sample_record(run_id="wrong").to_json()
    wrong["arms"][1]["metrics"]["decode_tps"]["value"] = "fast"
    (folder / "wrong.json").write_text(json.dumps(wrong))
    built = rebuild(lab, query.database_path(lab))
    assert built.records == 2
    assert [Path(d.path).name for d in built.damaged] == ["torn.json", "wrong.json"]
    assert "broken JSON" in built.damaged[0].reason
    assert "fast" in built.damaged[1].reason
    assert refresh(lab, built.database).damaged == built.damaged
    assert [row["path"] for row in _rows(query.damaged(lab))] == [d.path for d in built.damaged]


FRAMES: dict[str, Callable[[Path], pandas.DataFrame]] = {
    "results": query.results,
    "axes": query.axes,
    "visits": query.visits,
    "pairs": query.pairs,
    "frontier_points": query.frontier_points,
    "tuned": query.tuned,
}


@pytest.mark.parametrize("name", sorted(FRAMES))
def test_frames_are_the_same_from_the_index_and_from_the_records(lab: Path, name: str) -> None:
    from_records = FRAMES[name](lab)
    assert not (lab / "results" / "lab.duckdb").exists()
    refresh(lab, query.database_path(lab))
    assert open_current(lab, query.database_path(lab)) is not None
    pandas.testing.assert_frame_equal(FRAMES[name](lab), from_records)


@pytest.mark.parametrize("name", sorted(FRAMES))
def test_frames_of_an_empty_lab_have_columns_and_no_rows(tmp_path: Path, lab: Path, name: str) -> None:
    empty = FRAMES[name](tmp_path / "nowhere")
    assert empty.empty
    assert list(empty.columns) == list(FRAMES[name](lab).columns)


def test_results_have_a_row_per_arm_and_flat_metrics(lab: Path) -> None:
    frame = query.results(lab)
    arms = [(row["run_id"], row["role"]) for row in _rows(frame)]
    assert arms == [(run, role) for run in ("run-1", "run-2") for role in ("baseline", "candidate")]
    record = sample_record(run_id="run-1")
    estimate = record.arm("candidate").metrics["decode_tps"]
    baseline, row = _rows(frame, run_id="run-1")
    got = (row["decode_tps"], row["decode_tps_low"], row["decode_tps_high"], row["decode_tps_n"])
    assert got == (estimate.value, estimate.low, estimate.high, estimate.n)
    assert row["artifact_bytes"] == record.arm("candidate").artifact["artifact_bytes"]
    assert (row["kv"], row["family"], row["code_hash"]) == ("affine:8", "smollm2-135m", "c0de0123456789ab")
    assert set(METRICS) < set(frame.columns)
    assert math.isnan(baseline["kl_mean_nats"])


def test_axes_have_a_row_per_verdict_in_the_experiments_order(lab: Path) -> None:
    mine = _rows(query.axes(lab), run_id="run-1")
    assert [(row["metric"], row["verdict"], row["title"]) for row in mine] == [
        ("kv_bytes", "better", "KV cache"),
        ("decode_tps", "worse", "decode"),
        ("kl_mean_nats", "equivalent", "KL to the reference"),
    ]


def test_visits_include_warmups_and_pairs_do_not(lab: Path) -> None:
    assert len(_rows(query.visits(lab), run_id="run-1")) == 2 + 2 * 10
    mine = _rows(query.pairs(lab), run_id="run-1", metric="decode_tps")
    assert [row["pair"] for row in mine] == list(range(10))


def test_pair_ratios_are_improvements_whatever_the_good_direction(lab: Path) -> None:
    pairs = query.pairs(lab)
    means = {
        metric: fmean(row["ratio"] for row in _rows(pairs, run_id="run-1", metric=metric))
        for metric in ("decode_tps", "ttft_s", "kv_bytes")
    }
    assert means["decode_tps"] < 1, "14 tok/s after 17 is a loss"
    assert means["ttft_s"] < 1, "8.7 s after 3.7 s is a loss"
    assert means["kv_bytes"] == pytest.approx(23_592_960 / 6_635_520, rel=1e-12)  # exact counts


def test_a_failed_visit_drops_its_pair(tmp_path: Path) -> None:
    record = sample_record(run_id="run-1")
    broken = [replace(v, status="failed", error="killed") if v.pair == 3 else v for v in record.visits]
    write_record(replace(record, visits=tuple(broken)), tmp_path)
    assert {row["pair"] for row in _rows(query.pairs(tmp_path))} == set(range(10)) - {3}
    assert len(_rows(query.visits(tmp_path), error="killed")) == 2


def test_the_latest_complete_record_of_an_arm_stands_on_the_frontier(lab: Path) -> None:
    write_record(sample_record(run_id="run-3", started_at="2026-11-07T10:15:00Z", noise=0.001), lab)
    partial = sample_record(run_id="run-4", started_at="2026-11-08T10:15:00Z")
    write_record(replace(partial, state="partial"), lab)
    failed = sample_record(run_id="run-5", started_at="2026-11-09T10:15:00Z")
    write_record(replace(failed, outcome="failed"), lab)
    kv8 = _rows(query.frontier_points(lab), workload_hash=KV8.workload.hash())
    assert [row["run_id"] for row in kv8] == ["run-3", "run-3"]
    assert len(query.results(lab)) == 10


def test_a_new_arm_joins_its_group_and_another_reference_makes_one(lab: Path) -> None:
    joined = sample_record(run_id="run-3", started_at="2026-11-07T10:15:00Z")
    write_record(with_candidate(joined, arm_hash="another-arm", label="smollm2 kv=affine:4"), lab)
    apart = sample_record(run_id="run-4", started_at="2026-11-08T10:15:00Z")
    write_record(with_candidate(apart, reference_hash="another-reference"), lab)
    frame = query.frontier_points(lab)
    workload = KV8.workload.hash()
    assert len(_rows(frame, workload_hash=workload, reference_hash=KV8.baseline.hash())) == 3
    assert len(_rows(frame, workload_hash=workload, reference_hash="another-reference")) == 1


def test_results_say_what_a_record_may_be_compared_with(lab: Path) -> None:
    row = _rows(query.results(lab), run_id="run-1")[1]
    assert (row["text_hash"], row["windows_hash"], row["split"]) == ("7e87", "promote-16x512", "promote")
    assert (row["windows"], row["window_tokens"]) == (16, 512)
    assert row["packages_hash"] == digest({"mlx": "0.32.4"})


def test_a_record_that_scored_nothing_has_no_split_and_no_windows(tmp_path: Path) -> None:
    record = sample_record(replace(KV8, kl=None), run_id="run-1")
    write_record(replace(record, experiment={**record.experiment, "score": None}), tmp_path)
    row = _rows(query.results(tmp_path))[0]
    assert (row["text_hash"], row["windows_hash"]) == ("", "")
    assert pandas.isna(row["split"])


def test_a_later_unquiet_record_does_not_replace_a_quiet_one(lab: Path) -> None:
    noisy = sample_record(run_id="run-3", started_at="2026-11-07T10:15:00Z")
    write_record(replace(noisy, quiet={"quiet": False}), lab)
    kv8 = _rows(query.frontier_points(lab), workload_hash=KV8.workload.hash())
    assert [row["run_id"] for row in kv8] == ["run-1", "run-1"]
    assert {row["group_newest_at"] for row in kv8} == {"2026-11-07T10:15:00Z"}


@pytest.mark.parametrize(
    "elsewhere",
    [{"packages": {"mlx": "0.32.5"}}, {"code_hash": "another"}, {"windows_hash": "another"}],
    ids=lambda elsewhere: next(iter(elsewhere)),
)
def test_packages_code_and_windows_keep_records_apart(lab: Path, elsewhere: dict[str, Any]) -> None:
    later = sample_record(run_id="run-3", started_at="2026-11-07T10:15:00Z")
    write_record(from_elsewhere(later, **elsewhere), lab)
    kv8 = _rows(query.frontier_points(lab), workload_hash=KV8.workload.hash())
    assert sorted(row["run_id"] for row in kv8) == ["run-1", "run-1", "run-3", "run-3"]


def test_two_plans_of_one_arm_both_stand(lab: Path) -> None:
    """An arm that leaves the BLAS to the machine has another plan where the machine has another BLAS."""
    later = sample_record(run_id="run-3", started_at="2026-11-07T10:15:00Z")
    write_record(with_candidate(later, plan_hash="another-plan"), lab)
    found = _rows(query.frontier_points(lab), arm_hash=KV8.candidate.hash())
    assert sorted(row["run_id"] for row in found) == ["run-1", "run-3"]


def test_scores_on_tune_text_stay_in_results_and_leave_the_frontier(lab: Path) -> None:
    write_record(sample_record(run_id="run-3", started_at="2026-11-07T10:15:00Z", split="tune"), lab)
    assert "run-3" not in {row["run_id"] for row in _rows(query.frontier_points(lab))}
    assert len(_rows(query.results(lab), run_id="run-3")) == 2
    assert len(_rows(query.axes(lab), run_id="run-3")) == 3
    assert [row["run_id"] for row in _rows(query.tuned(lab))] == ["run-3"]


def test_a_split_that_was_named_and_not_scored_excludes_nothing(tmp_path: Path) -> None:
    write_record(sample_record(replace(KV8, kl=None), run_id="run-1", split="tune"), tmp_path)
    assert len(query.frontier_points(tmp_path)) == 2
    assert query.tuned(tmp_path).empty


def test_store_rebuild_reports_records_and_damage(lab: Path) -> None:
    (lab / "results" / SLUG / "torn.json").write_text("{")
    done = CliRunner().invoke(app, ["rebuild", "--root", str(lab)])
    assert done.exit_code == 0
    assert "results/lab.duckdb: 2 records indexed." in done.output
    assert "torn.json: a readable record was needed" in done.output


def test_store_rebuild_of_an_empty_lab_says_what_to_run(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["rebuild", "--root", str(tmp_path)])
    assert done.exit_code == 0
    assert "labkit run experiments/" in done.output
