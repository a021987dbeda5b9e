"""Points, dominance by intervals, trade-offs and the command that shows them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from labkit.cli.app import app
from labkit.core.arm import Arm
from labkit.core.errors import NoRecords
from labkit.frontier.axis import Registered, axes_for, speed_metric
from labkit.frontier.dominance import Standing, better_axes, dominates, judge
from labkit.frontier.labels import short_label
from labkit.frontier.points import Point, points
from labkit.frontier.table import COLUMNS, frontier_frame, standing_frame
from labkit.frontier.tradeoff import trade_offs
from labkit.store import query
from labkit.store.write import write_record
from tests.unit.frontier_points import GROUP
from tests.unit.frontier_points import point as _point
from tests.unit.sample_records import ARTIFACT_BYTES, BLAS, KV8, from_elsewhere, sample_record, with_candidate


def _status(standings: tuple[Standing, ...]) -> dict[str, str]:
    return {s.point.label: s.status for s in standings}


# Few values make overlaps, ties and rings common; KL differs by far more than its resolution.
ends = st.integers(0, 6).map(float)
intervals = st.tuples(ends, ends).map(lambda pair: (min(pair), max(pair)))
names = st.uuids().map(str)
any_points = st.builds(_point, names, intervals, intervals, intervals)
gappy = st.builds(_point, names, *[st.one_of(st.none(), intervals)] * 3)


@given(gappy)
def test_no_point_dominates_itself(a: Point) -> None:
    assert not dominates(a, a)


@given(gappy, gappy)
def test_dominance_is_never_mutual(a: Point, b: Point) -> None:
    assert not (dominates(a, b) and dominates(b, a))


def test_losses_within_the_margin_do_not_add_up_to_shut_out_a_point() -> None:
    """Each is 10% faster than the one before and 0.008 nats worse, of which 0.01 are no loss."""
    places = (("c", 100, 0.0), ("b", 110, 0.008), ("a", 121, 0.016))
    c, b, a = (_point(name, (speed, speed), (kl, kl), (1, 1)) for name, speed, kl in places)
    assert dominates(a, b)
    assert dominates(b, c)
    assert not dominates(a, c)
    assert _status(judge([a, b, c])) == {"a": "frontier", "b": "dominated", "c": "frontier"}
    assert [(t.point.label, t.other.label) for t in trade_offs(judge([a, b, c]))] == [("a", "c")]


@given(st.lists(any_points, max_size=7))
def test_whoever_dominates_a_point_is_on_the_frontier_itself(members: list[Point]) -> None:
    standings = judge(members)
    status = {id(s.point): s.status for s in standings}
    assert all(status[id(by)] == "frontier" for s in standings for by in s.dominated_by)


@given(st.lists(any_points, min_size=1, max_size=7))
@settings(max_examples=200)
def test_a_group_always_keeps_a_frontier(members: list[Point]) -> None:
    assert any(s.status == "frontier" for s in judge(members))


@given(st.lists(gappy, max_size=7))
def test_only_points_with_a_dominator_are_dominated(members: list[Point]) -> None:
    for standing in judge(members):
        assert (standing.status == "dominated") == bool(standing.dominated_by)
        assert (standing.status == "incomparable") == bool(standing.missing)
        assert all(dominates(other, standing.point) for other in standing.dominated_by)


@given(st.lists(any_points, min_size=2, max_size=6), st.randoms())
def test_standings_do_not_depend_on_the_order(members: list[Point], random: Any) -> None:
    shuffled = list(members)
    random.shuffle(shuffled)
    assert _status(judge(members)) == _status(judge(shuffled))


def test_a_ring_of_dominance_keeps_all_its_points() -> None:
    a = _point("a", (105, 105), (0.008, 0.008), (101.5, 101.5))
    b = _point("b", (100.5, 100.5), (0, 0), (100.8, 100.8))
    c = _point("c", (103, 103), (0.015, 0.015), (100, 100))
    assert dominates(a, b)
    assert dominates(b, c)
    assert dominates(c, a)
    assert set(_status(judge([a, b, c])).values()) == {"frontier"}
    loser = _point("loser", (50, 51), (10, 11), (110, 111))
    assert _status(judge([a, b, c, loser]))["loser"] == "dominated"


def test_touching_intervals_are_not_wholly_better() -> None:
    a, b = _point("a", (4, 5), (0, 0), (1, 1)), _point("b", (3, 4), (0, 0), (1, 1))
    assert not dominates(a, b)
    assert not dominates(_point("a", (4.12, 5), (0, 0), (1, 1)), b), "3% is the margin itself"
    assert dominates(_point("a", (4.13, 5), (0, 0), (1, 1)), b)


def test_kl_below_its_resolution_is_no_loss() -> None:
    """An exact zero against the rounding of another BLAS; 1e-5 nats is the axis's resolution."""
    strict = replace(GROUP, axes=axes_for("decode_tps", [Registered("kl_mean_nats", "holds", 0.0)]))
    reference = _point("reference", (8, 9), (0, 0), (1, 1), strict)
    assert dominates(_point("fast", (270, 280), (2e-9, 4e-9), (1, 1), strict), reference)
    assert not dominates(_point("lossy", (270, 280), (2e-3, 4e-3), (1, 1), strict), reference)


def test_an_interval_that_hides_a_loss_excuses_none() -> None:
    """Its estimate is 25% slower, and only its width reaches the other's."""
    small, steady = _point("small", (5, 25), (0, 0), (1, 1)), _point("steady", (20, 20), (0, 0), (2, 2))
    assert better_axes(steady, small) == ()
    assert not dominates(small, steady)
    assert dominates(_point("small", (15, 25), (0, 0), (1, 1)), steady)


def test_a_missing_axis_is_incomparable_and_named() -> None:
    best, gap = _point("best", (9, 9), (0, 0), (1, 1)), _point("gap", (1, 1), None, (2, 2))
    standings = judge([gap, best])
    assert _status(standings) == {"gap": "incomparable", "best": "frontier"}
    assert [axis.name for axis in standings[0].missing] == ["quality"]


@pytest.mark.parametrize("part", ["machine", "workload_hash", "windows_hash", "code_hash", "packages_hash"])
def test_groups_are_judged_apart(part: str) -> None:
    other = replace(GROUP, **{part: "another"})
    best, worst = _point("best", (9, 9), (0, 0), (1, 1)), _point("worst", (1, 1), (5, 5), (9, 9), other)
    assert not dominates(best, worst)
    assert _status(judge([best, worst])) == {"best": "frontier", "worst": "frontier"}


def test_a_trade_off_names_gain_and_loss_with_the_reference_as_other() -> None:
    reference = _point("reference", (16, 18), (0, 0), (560, 560))
    small = _point("small", (13, 14), (0.02, 0.03), (545, 545))
    for order in ([reference, small], [small, reference]):
        (found,) = trade_offs(judge(order))
        assert (found.point.label, found.other.label) == ("small", "reference")
        assert [axis.name for axis in found.gains] == ["size"]
        assert [axis.name for axis in found.gives_up] == ["speed", "quality"]


def test_points_that_overlap_on_every_axis_are_no_trade_off() -> None:
    a, b = _point("a", (1, 3), (1, 3), (1, 3)), _point("b", (2, 4), (2, 4), (2, 4))
    assert trade_offs(judge([a, b])) == ()
    assert better_axes(a, b) == ()


@pytest.mark.parametrize(
    ("experiments", "speed"),
    [
        ([(["kv_bytes"], ["decode_tps", "kl_mean_nats"])], "decode_tps"),
        ([(["prefill_tps"], ["decode_tps"])], "prefill_tps"),
        ([(["kv_bytes"], ["ttft_s"])], "prefill_tps"),
        ([(["prefill_tps"], []), (["itl_p95_s"], [])], "decode_tps"),
        ([(["prefill_tps"], []), (["kv_bytes"], ["decode_tps"])], "prefill_tps"),
        ([(["kv_bytes"], [])], "decode_tps"),
    ],
)
def test_the_hypotheses_choose_the_speed_axis(
    experiments: list[tuple[list[str], list[str]]], speed: str
) -> None:
    assert speed_metric(experiments) == speed


def test_short_labels_drop_only_a_shared_model() -> None:
    assert short_label("m kv=bf16", ["m kv=bf16", "m kv=affine:8"]) == "kv=bf16"
    assert short_label("m kv=bf16", ["m kv=bf16", "n kv=bf16"]) == "m kv=bf16"
    assert short_label("m", ["m"]) == "m"


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """A lab with the KV and the BLAS experiment."""
    write_record(sample_record(run_id="kv8"), tmp_path)
    write_record(sample_record(BLAS, run_id="blas", started_at="2026-11-06T10:15:00Z"), tmp_path)
    return tmp_path


def test_points_of_records_sum_the_bytes_held(lab: Path) -> None:
    found = {p.label: p for p in points(query.frontier_points(lab))}
    held = found["smollm2 kv=affine:8"].values["size"]
    assert held is not None
    assert held.value == ARTIFACT_BYTES + 6_635_520
    assert found["smollm2 kv=affine:8"].group.axes[0].parts == ("decode_tps",)
    assert found["smollm2 kv=bf16 blas=mkl"].group.axes[0].parts == ("prefill_tps",)


def test_the_reference_is_at_distance_zero_from_itself(lab: Path) -> None:
    found = {p.label: p for p in points(query.frontier_points(lab))}
    quality = found["smollm2 kv=bf16"].values["quality"]
    assert quality is not None
    assert (quality.low, quality.high) == (0.0, 0.0)


def test_the_kv_experiment_is_a_trade_off_and_the_blas_one_dominates(lab: Path) -> None:
    standings = judge(points(query.frontier_points(lab)))
    assert _status(standings) == {
        "smollm2 kv=affine:8": "frontier",
        "smollm2 kv=bf16": "frontier",
        "smollm2 kv=bf16 blas=mkl": "frontier",
        "smollm2 kv=bf16 blas=reference": "dominated",
    }
    assert [t.point.label for t in trade_offs(standings)] == ["smollm2 kv=affine:8"]


def test_an_unmeasured_size_is_missing_not_smaller(tmp_path: Path) -> None:
    record = sample_record(run_id="kv8")
    metrics = {k: v for k, v in record.arm("candidate").metrics.items() if k != "kv_bytes"}
    write_record(with_candidate(record, metrics=metrics), tmp_path)
    standings = judge(points(query.frontier_points(tmp_path)))
    assert _status(standings)["smollm2 kv=affine:8"] == "incomparable"


def test_the_frame_has_a_row_per_point_and_its_standing(lab: Path) -> None:
    frame = frontier_frame(query.frontier_points(lab))
    assert tuple(frame.columns) == COLUMNS
    rows: list[dict[Any, Any]] = frame.to_dict("records")
    slow = next(r for r in rows if r["status"] == "dominated")
    assert slow["dominated_by"] == ["smollm2 kv=bf16 blas=mkl"]
    assert slow["reference"] == slow["label"] == "smollm2 kv=bf16 blas=reference"
    assert slow["speed_low"] < slow["speed"] < slow["speed_high"]
    assert standing_frame([]).empty


def _labkit(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "120"})


def test_the_command_prints_the_set_and_writes_pictures(lab: Path) -> None:
    done = _labkit("frontier", "--root", str(lab))
    assert done.exit_code == 0, done.output
    assert "dominated by kv=bf16 blas=mkl" in done.output
    assert (
        "Trade-off: kv=affine:8 instead of kv=bf16 gains bytes held 1.03x (545 MB, not 562 MB)" in done.output
    )
    figures = lab / "results" / "figures"
    assert sorted(p.name for p in figures.iterdir()) == [
        f"{name}.{kind}" for name in ("frontier-3d", "frontier") for kind in ("png", "svg")
    ]


def test_the_command_names_noise_and_mixed_code(lab: Path) -> None:
    record = sample_record(replace(KV8, candidate=Arm("smollm2", kv="affine:4")), run_id="kv4")
    write_record(from_elsewhere(replace(record, quiet={"quiet": False}), code_hash="another"), lab)
    done = _labkit("frontier", "--root", str(lab), "--across-versions")
    assert "measured on a busy machine, not quotable" in done.output
    assert "2 versions of code and packages measured these" in done.output
    assert "code several, packages" in done.output


def test_the_command_speaks_json(lab: Path, tmp_path: Path) -> None:
    out = tmp_path / "pictures"
    done = _labkit("frontier", "--root", str(lab), "--out", str(out), "--json")
    answer = json.loads(done.output)
    assert [Path(f).parent for f in answer["figures"]] == [out] * 4
    speeds = {g["axes"]["speed"]["title"]: g for g in answer["groups"]}
    (trade,) = speeds["decode"]["trade_offs"]
    assert (trade["point"], [gain["axis"] for gain in trade["gains"]]) == (KV8.candidate.label(), ["size"])
    assert speeds["decode"]["axes"]["speed"]["margin"] == 0.03
    assert speeds["decode"]["windows_hash"] == "promote-16x512"
    assert (answer["notes"], speeds["decode"]["notes"]) == ([], [])
    assert {p["status"] for p in speeds["prefill"]["points"]} == {"frontier", "dominated"}


def test_an_empty_lab_names_the_next_step(tmp_path: Path) -> None:
    done = _labkit("frontier", "--root", str(tmp_path))
    assert done.exit_code == 1
    assert isinstance(done.exception, NoRecords)
    assert "labkit run experiments/" in str(done.exception)
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("axis", range(3))
def test_what_is_no_number_is_missing_and_dominates_nothing(axis: int) -> None:
    speed, quality, size = (float("nan") if i == axis else x for i, x in enumerate((50.0, 0.0, 100.0)))
    odd, known = _point("odd", speed, quality, size), _point("known", 10.0, 0.1, 1000.0)
    assert _status(judge([odd, known])) == {"odd": "incomparable", "known": "frontier"}
    assert not dominates(odd, known)
