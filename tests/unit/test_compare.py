"""Two records side by side: a golden table for every status, and what is never compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import labkit
from labkit.core.errors import NoRecords, RecordInvalid
from labkit.core.metrics import METRICS
from labkit.core.records import Estimate, Record
from labkit.lab.reading.circumstances import changes
from labkit.lab.reading.compare import Compared
from labkit.lab.reading.repeats import Spread, run_spreads
from labkit.lab.reading.unpaired import classified, difference
from tests.unit.command_line import Ended
from tests.unit.command_line import labkit as command
from tests.unit.history_lab import at_level, write_all
from tests.unit.sample_records import KV8, from_elsewhere

GOLDEN = Path(__file__).parent / "golden"
FEW = replace(KV8, values={name: KV8.values[name] for name in ("decode_tps", "kv_bytes")})
FIRST, SECOND = "20261101", "20261102"


def first() -> Record:
    return at_level(17.0, 0, FEW)


def faster() -> list[Record]:
    return [first(), at_level(19.8, 1, FEW)]


def slower() -> list[Record]:
    return [first(), at_level(14.2, 1, FEW)]


def alike() -> list[Record]:
    """As fast, in a lab where the arms were run often enough to know what runs differ by."""
    rates = (17.0, 17.05, 16.95, 17.04, 16.97, 17.02)
    return [at_level(rate, day, FEW) for day, rate in enumerate(rates)]


def unclear() -> list[Record]:
    return [first(), at_level(17.6, 1, FEW)]


def failed() -> list[Record]:
    """The candidate's worker died before its first visit."""
    second = at_level(17.0, 1, FEW)
    baseline, candidate = second.arms
    exact = {name: e for name, e in candidate.metrics.items() if name == "kl_mean_nats"}
    visits = tuple(
        replace(v, status="failed", metrics={}, error="the worker died") if v.role == "candidate" else v
        for v in second.visits
        if v.status != "warmup"
    )
    arms = (baseline, replace(candidate, metrics=exact))
    return [first(), replace(second, arms=arms, visits=visits, outcome="failed")]


def unscored() -> list[Record]:
    return [first(), at_level(17.0, 1, replace(FEW, kl=None))]


def newer() -> list[Record]:
    second = from_elsewhere(at_level(19.8, 1, FEW), code_hash="b2" * 8, packages={"mlx": "0.32.5"})
    return [first(), second]


def elsewhere() -> list[Record]:
    second = from_elsewhere(at_level(19.8, 1, FEW), code_hash="b2" * 8)
    return [first(), replace(second, machine={**second.machine, "slug": "darwin-arm64-metal-m4-10c-32g"})]


def compared(folder: Path, records: list[Record], *options: str) -> Ended:
    return command("compare", FIRST, SECOND, "--root", write_all(folder, records), *options)


@pytest.mark.parametrize(
    ("name", "made", "options"),
    [
        ("improved", faster, ()),
        ("worse", slower, ()),
        ("equivalent", alike, ()),
        ("unresolved", unclear, ()),
        ("failed", failed, ()),
        ("missing", unscored, ()),
        ("version-mismatch", newer, ()),
        ("version-mismatch-across", newer, ("--across-versions",)),
        ("version-mismatch-machine", elsewhere, ("--across-versions",)),
    ],
)
def test_golden_tables(
    name: str,
    made: Callable[[], list[Record]],
    options: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = compared(tmp_path, made(), *options)
    assert done.code == 0, done.err
    assert done.out == (GOLDEN / f"compare_{name}.txt").read_text(encoding="utf-8")
    assert max(map(len, done.out.splitlines())) <= 80
    assert name.startswith("version-mismatch-across") or name.split("-m", maxsplit=1)[0] in done.out


def statuses(root: Path, **options: bool) -> dict[tuple[str, str], str]:
    found = labkit.compare(FIRST, SECOND, root, **options)
    return {(row.role, row.metric): row.status for row in found.rows}


def test_a_failed_arm_leaves_the_other_compared(tmp_path: Path) -> None:
    found = statuses(write_all(tmp_path, failed()))
    assert found["candidate", "decode_tps"] == found["candidate", "kv_bytes"] == "failed"
    assert found["baseline", "decode_tps"] == "unresolved"


@pytest.mark.parametrize("kind", ["artifact", "blas", "design", "plan", "file"])
def test_every_other_version_bars_a_comparison_until_it_is_named(tmp_path: Path, kind: str) -> None:
    second = at_level(17.0, 1, FEW)
    baseline, candidate = second.arms
    if kind == "artifact":
        candidate = replace(candidate, artifact={**candidate.artifact, "fingerprint": "other"})
    elif kind == "blas":
        candidate = replace(candidate, plan={**candidate.plan, "backend": "cpu/openblas"})
    elif kind == "plan":
        plan = {**candidate.plan, "prefill_chunk": 64}
        candidate = replace(candidate, plan=plan, plan_hash="other")
    elif kind == "file":
        second = replace(second, experiment={**second.experiment, "source_hash": "other"})
    else:
        second = replace(second, experiment={**second.experiment, "design": "fresh"})
    root = write_all(tmp_path, [first(), replace(second, arms=(baseline, candidate))])
    assert statuses(root)["candidate", "decode_tps"] == "version-mismatch"
    assert statuses(root, across_versions=True)["candidate", "decode_tps"] == "unresolved"


@pytest.mark.parametrize("kind", ["workload", "machine"])
def test_another_place_is_never_compared(tmp_path: Path, kind: str) -> None:
    second = at_level(17.0, 1, FEW)
    if kind == "workload":
        second = replace(second, workload_hash="0" * 16)
    else:
        second = replace(second, machine={**second.machine, "slug": "darwin-arm64-metal-m4-10c-32g"})
    root = write_all(tmp_path, [first(), second])
    found = labkit.compare(FIRST, SECOND, root, across_versions=True)
    rows = [row for row in found.rows if METRICS[row.metric].source != "artifact"]
    assert {row.status for row in rows} == {"version-mismatch"}
    assert all(kind in row.why for row in rows)


def test_another_text_bars_scores_alone(tmp_path: Path) -> None:
    second = from_elsewhere(at_level(17.0, 1, FEW), windows_hash="another")
    found = statuses(write_all(tmp_path, [first(), second]), across_versions=True)
    assert found["candidate", "kl_mean_nats"] == "version-mismatch"
    assert found["candidate", "decode_tps"] == "unresolved"


def test_the_margin_is_the_first_records_own(tmp_path: Path) -> None:
    wide = replace(FEW, holds={"decode_tps": 0.5})
    root = write_all(tmp_path, [at_level(17.0, 0, wide), at_level(17.1, 1, FEW)])
    (row,) = [
        r
        for r in labkit.compare(FIRST, SECOND, root).rows
        if (r.role, r.metric) == ("candidate", "decode_tps")
    ]
    assert (row.margin, row.registered, row.status) == (0.5, True, "equivalent")
    assert not any(
        r.registered for r in labkit.compare(FIRST, SECOND, root).rows if r.metric == "kl_mean_nats"
    )


def test_a_record_compared_with_itself_decides_nothing_new(tmp_path: Path) -> None:
    write_all(tmp_path, [first()])
    found = {row.status for row in labkit.compare(FIRST, FIRST, tmp_path).rows}
    assert found <= {"equivalent", "unresolved"}


def test_noise_and_differing_arms_are_noted(tmp_path: Path) -> None:
    second = replace(at_level(17.0, 1, FEW), quiet={"quiet": False, "reasons": ["load"]}, state="partial")
    done = compared(tmp_path, [first(), second])
    assert "was measured on a busy machine, not quotable" in " ".join(done.out.split())
    assert "was stopped early" in " ".join(done.out.split())


def test_json_has_every_row_with_its_reason(tmp_path: Path) -> None:
    answer = json.loads(compared(tmp_path, newer(), "--json").out)
    row = next(r for r in answer["rows"] if (r["role"], r["metric"]) == ("candidate", "decode_tps"))
    assert row["status"] == "version-mismatch"
    assert row["why"] == "code c0de012345 -> b2b2b2b2b2, mlx 0.32.4 -> 0.32.5"
    assert {c["kind"] for c in answer["differs"]["candidate"]} == {"code", "package"}


def test_a_notebook_sees_the_rows(tmp_path: Path) -> None:
    found = labkit.compare(FIRST, SECOND, write_all(tmp_path, faster()))
    assert "improved" in repr(found) and "2026" in repr(found)
    assert list(found.frame()["status"][:2]) == ["improved", "equivalent"]
    assert "<table" in found._repr_html_()


def test_an_experiment_stands_for_its_newest_record(tmp_path: Path) -> None:
    root = write_all(tmp_path, faster())
    found = labkit.compare(FIRST, "kv8-at-1k", root)
    assert found.after.record.run_id.startswith(SECOND)


@pytest.mark.parametrize(("text", "says"), [("2026", "one record was needed"), ("nope", "kv8-at-1k")])
def test_a_record_that_is_not_clear_is_one_message(tmp_path: Path, text: str, says: str) -> None:
    done = command("compare", FIRST, text, "--root", write_all(tmp_path, faster()))
    assert done.code == 1 and says in done.message() and "options:" in done.message()
    with pytest.raises((NoRecords, RecordInvalid)):
        labkit.compare(FIRST, text, tmp_path)


def test_a_record_of_one_arm_is_refused(tmp_path: Path) -> None:
    root = write_all(tmp_path, [first(), replace(at_level(17.0, 1, FEW), arms=first().arms[:1])])
    with pytest.raises(RecordInvalid, match="one baseline and one candidate"):
        labkit.compare(FIRST, SECOND, root)


def test_the_spread_of_runs_counts_a_run_once_and_no_other_version(tmp_path: Path) -> None:
    other = from_elsewhere(at_level(30.0, 9, FEW), code_hash="b2" * 8)
    busy = replace(at_level(40.0, 10, FEW), quiet={"quiet": False})
    root = write_all(tmp_path, [*alike(), other, busy])
    spread = run_spreads(root, (first(), first()))["decode_tps"]
    assert spread.freedom == 5  # six runs of one version
    assert spread.sd < 0.01  # levels within 0.6%, and a mean over ten visits that vary by 1%
    assert run_spreads(write_all(tmp_path, []), (other, other))["decode_tps"] == spread
    alone = write_all(tmp_path / "few", alike()[:3]) if not (tmp_path / "few").mkdir() else tmp_path
    assert run_spreads(alone, (first(), first())) == {}


DECODE, TTFT, KL, KV = (METRICS[m] for m in ("decode_tps", "ttft_s", "kl_mean_nats", "kv_bytes"))


def test_one_visit_is_never_a_verdict() -> None:
    one = Estimate(17.0, 17.0, 17.0, 1, "tok/s")
    change = difference(DECODE, one, replace(one, value=34.0, low=34.0, high=34.0), None)
    assert classified(DECODE, change, 0.03) == ("unresolved", "one visit")


def test_lower_is_better_where_the_metric_says_so() -> None:
    before, after = Estimate(2.0, 1.98, 2.02, 10, "s"), Estimate(1.0, 0.99, 1.01, 10, "s")
    change = difference(TTFT, before, after, Spread(0.01, 10))
    assert change.value == pytest.approx(2.0)
    assert classified(TTFT, change, 0.05)[0] == "improved"
    assert classified(TTFT, difference(TTFT, after, before, Spread(0.01, 10)), 0.05)[0] == "worse"


def test_the_interval_joins_both_and_is_no_narrower_than_repeated_runs() -> None:
    before, after = Estimate(10.0, 9.5, 10.5, 8, "tok/s"), Estimate(10.0, 9.5, 10.5, 8, "tok/s")
    wide = difference(DECODE, before, after, Spread(1e-6, 10))
    # Two intervals of 5%: about 5% times the root of two.
    assert wide.high == pytest.approx(1.073, abs=0.003)
    repeated = difference(DECODE, before, after, Spread(0.05, 4))
    # Student's t of 4 degrees, 2.776, times 5% times the root of two.
    assert repeated.high == pytest.approx(1.217, abs=0.003)


def test_differences_are_in_the_metrics_unit() -> None:
    before, after = Estimate(0.001, 0.0008, 0.0012, 16, "nats"), Estimate(0.05, 0.045, 0.055, 16, "nats")
    change = difference(KL, before, after, None)
    assert change.value == pytest.approx(-0.049)
    assert classified(KL, change, 0.01)[0] == "worse"


def test_bytes_are_exact_and_zero_bytes_have_no_ratio() -> None:
    full, none = Estimate(100.0, 100.0, 100.0, 8, "bytes"), Estimate(0.0, 0.0, 0.0, 8, "bytes")
    assert classified(KV, difference(KV, full, full, None), 0.01)[0] == "equivalent"
    assert classified(KV, difference(KV, none, none, None), 0.01)[0] == "equivalent"
    assert classified(KV, difference(KV, none, full, None), 0.01)[0] == "unresolved"


def row_of(root: Path, metric: str, role: str = "candidate", **options: bool) -> Compared:
    rows = labkit.compare(FIRST, SECOND, root, **options).rows
    return next(row for row in rows if (row.role, row.metric) == (role, metric))


def test_a_goal_is_no_margin(tmp_path: Path) -> None:
    """A goal of +40% says what a success is, not that a third more bytes are no difference."""
    more = replace(FEW, values={**FEW.values, "kv_bytes": (23_592_960, 6_635_520 * 1.34)})
    found = row_of(write_all(tmp_path, [first(), at_level(17.0, 1, more)]), "kv_bytes")
    assert (found.status, found.margin, found.registered) == ("worse", 0.01, False)


def test_the_baseline_has_the_default_margins(tmp_path: Path) -> None:
    wide = replace(FEW, holds={"decode_tps": 0.5})
    root = write_all(tmp_path, [at_level(17.0, 0, wide), at_level(19.8, 1, wide)])
    assert row_of(root, "decode_tps").status == "equivalent"
    baseline = row_of(root, "decode_tps", "baseline")
    assert (baseline.status, baseline.margin, baseline.registered) == ("improved", 0.03, False)


def test_a_plan_is_told_by_the_part_that_differs(tmp_path: Path) -> None:
    second = at_level(17.0, 1, FEW)
    layout = {"cache_layout": ["KVCache"] * 4 + ["RotatingKVCache"] * 2}
    arms = tuple(replace(arm, plan={**arm.plan, **layout}, plan_hash="b" * 16) for arm in second.arms)
    root = write_all(tmp_path, [first(), replace(second, arms=arms)])
    assert row_of(root, "decode_tps").why == "cache_layout none -> 4 KVCache, 2 RotatingKVCache"
    unsaid = tuple(replace(arm, plan_hash="b" * 16) for arm in second.arms)
    told = changes(first(), replace(second, arms=unsaid), "candidate", "candidate")
    assert [change.name for change in told] == ["plan"], "by its hash where no part tells"


def test_different_arms_are_noted_and_their_plans_are_no_version(tmp_path: Path) -> None:
    other = replace(FEW, candidate=replace(FEW.candidate, prefill_chunk=7))
    root = write_all(tmp_path, [first(), at_level(17.0, 1, other)])
    found = labkit.compare(FIRST, SECOND, root)
    label = other.candidate.label()
    assert f"the candidates are different arms: {FEW.candidate.label()}, {label}" in found.notes
    assert not any("baselines" in note for note in found.notes)
    assert row_of(root, "decode_tps").status == "unresolved"


def test_a_metric_that_a_failed_run_lost_is_failed_and_not_missing(tmp_path: Path) -> None:
    """Some visits had succeeded before the run failed, and too few for an estimate."""
    second = at_level(17.0, 1, FEW)
    baseline, candidate = second.arms
    arms = (baseline, replace(candidate, metrics={}))
    lost = replace(second, arms=arms)
    assert row_of(write_all(tmp_path, [first(), replace(lost, outcome="failed")]), "decode_tps").status == (
        "failed"
    )
    (tmp_path / "other").mkdir()
    assert row_of(write_all(tmp_path / "other", [first(), lost]), "decode_tps").status == "missing"


@pytest.mark.parametrize(
    ("metric", "widened"),
    [("decode_tps", True), ("footprint_bytes", False), ("ppl_ratio", False), ("compile_s", False)],
)
def test_a_spread_is_assumed_for_rates_and_times_alone_and_a_known_one_counts_for_all(
    metric: str, widened: bool
) -> None:
    value = Estimate(10.0, 9.99, 10.01, 8, METRICS[metric].unit)
    own, known = (difference(METRICS[metric], value, value, s) for s in (None, Spread(0.1, 10)))
    assert (own.high - own.low > 0.1) == widened
    # Two runs of 10%, ten degrees of freedom: 2.228 times the root of two, on both sides.
    assert known.high - known.low > 0.6


def test_scores_on_another_text_are_no_repeats(tmp_path: Path) -> None:
    kls = (0.002, 0.0021, 0.0019, 0.002, 0.002)
    same = [at_level(17.0, i, replace(FEW, kl=(kl, kl, kl))) for i, kl in enumerate(kls)]
    odd = from_elsewhere(at_level(17.0, 7, replace(FEW, kl=(0.5, 0.5, 0.5))), windows_hash="another")
    spread = run_spreads(write_all(tmp_path, [*same, odd]), (same[0],))["kl_mean_nats"]
    assert (spread.freedom, spread.sd < 1e-3) == (4, True)
