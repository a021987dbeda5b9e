"""What more bytes buy: steps along a frontier, budgets, and how bytes are written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from labkit.cli.app import app
from labkit.frontier.byte_count import ByteCountInvalid, byte_count
from labkit.frontier.dominance import judge
from labkit.frontier.marginal import upgrades, within
from labkit.frontier.marginal_table import COLUMNS, marginal_frame
from labkit.store.write import write_record
from tests.unit.frontier_points import point
from tests.unit.sample_records import KV8, sample_record

MB = 1e6
SMALL = point("small", (9.0, 11.0), 0.30, 300 * MB)
MIDDLE = point("middle", (18.0, 22.0), 0.10, 500 * MB)
LARGE = point("large", (19.0, 21.0), 0.02, 1000 * MB)
BAD = point("bad", 5.0, 0.5, 900 * MB)
UNSCORED = point("unscored", 90.0, None, 100 * MB)
ALL = judge([LARGE, BAD, SMALL, UNSCORED, MIDDLE])


def test_steps_lead_from_each_point_of_the_frontier_to_the_next_larger() -> None:
    first, second = upgrades(ALL)
    assert [(s.smaller.label, s.larger.label) for s in (first, second)] == [
        ("small", "middle"),
        ("middle", "large"),
    ]
    assert (first.extra.value, second.extra.value) == (200 * MB, 500 * MB)
    speed, quality = first.gains
    assert (speed.word, quality.word) == ("better", "better")
    assert (speed.total.value, speed.total.low, speed.total.high) == (10.0, 7.0, 13.0)
    assert speed.per is not None and (speed.per.value, speed.per.high) == (5.0, 6.5)
    assert speed.per.low == pytest.approx(3.5)
    assert quality.per is not None and quality.per.value == pytest.approx(0.1)
    assert [gain.word for gain in second.gains] == ["same", "better"]


def test_a_price_takes_the_widest_that_both_intervals_allow() -> None:
    b = point("b", (19.0, 21.0), 0.0, (450 * MB, 550 * MB))
    (step,) = upgrades(judge([SMALL, b]), 50 * MB)
    speed = step.gains[0]
    assert speed.per is not None
    assert (speed.per.low, speed.per.high) == (pytest.approx(8 * 50 / 250), pytest.approx(12 * 50 / 150))


def test_bytes_that_are_not_apart_have_no_price() -> None:
    fast, good = point("fast", 20.0, 0.5, 300 * MB), point("good", 10.0, 0.1, (299 * MB, 302 * MB))
    (step,) = upgrades(judge([fast, good]))
    assert [gain.per for gain in step.gains] == [None, None]
    assert [gain.word for gain in step.gains] == ["worse", "better"]


def test_one_point_has_no_step_and_no_price() -> None:
    assert upgrades(judge([SMALL])) == ()
    assert tuple(marginal_frame(()).columns) == COLUMNS


def test_the_frame_has_a_row_per_step() -> None:
    rows: list[dict[Any, Any]] = marginal_frame(upgrades(ALL, 50 * MB)).to_dict("records")
    assert (rows[0]["smaller"], rows[0]["larger"], rows[0]["speed_per"]) == ("small", "middle", 2.5)
    assert len(rows) == 2
    assert {r["per_bytes"] for r in rows} == {50 * MB}


def test_a_budget_has_its_own_frontier() -> None:
    """What only a larger point dominates is the best that the budget has."""
    early = point("early", 9.0, 0.5, 200 * MB)
    best = point("best", 20.0, 0.1, 150 * MB)
    beaten = point("beaten", 8.0, 0.5, 120 * MB)
    (found,) = within(judge([early, best, beaten]), 130 * MB, 10 * MB)
    assert [p.label for p in found.best] == ["beaten"]
    assert (found.unlocked, found.beyond and found.beyond.label) == ((), "best")


def test_what_the_next_bytes_unlock_is_told_from_the_largest_that_fits() -> None:
    (found,) = within(ALL, 350 * MB, 200 * MB)
    assert [p.label for p in found.best] == ["small"]
    assert [p.label for p in found.unlocked] == ["middle"]
    assert [(s.smaller.label, s.larger.label) for s in found.upgrades] == [("small", "middle")]
    (found,) = within(ALL, 600 * MB, 100 * MB)
    assert (found.unlocked, found.beyond and found.beyond.label) == ((), "large")
    (found,) = within(ALL, 5000 * MB, 100 * MB)
    assert (found.unlocked, found.beyond) == ((), None)
    (found,) = within(ALL, 1 * MB, 400 * MB)
    assert (found.best, [p.label for p in found.unlocked], found.upgrades) == ((), ["small"], ())


def test_a_point_fits_where_its_whole_interval_does() -> None:
    wide = point("wide", 10.0, 0.1, (90 * MB, 110 * MB))
    assert within(judge([wide]), 105 * MB)[0].best == ()
    assert within(judge([wide]), 110 * MB)[0].best == (wide,)


@pytest.mark.parametrize(
    ("written", "count"),
    [
        ("100MB", 1e8),
        ("100 mb", 1e8),
        ("1.5GiB", 1.5 * 1024**3),
        ("4096", 4096.0),
        ("1_000kB", 1e6),
        (250e6, 250e6),
    ],
)
def test_bytes_as_written(written: str | float, count: float) -> None:
    assert byte_count(written) == count


@pytest.mark.parametrize(
    "written", ["", "MB", "0", "-1MB", "1e9", "12XB", "1.5.2MB", "nan", float("nan"), -3.0, 10.0**30]
)
def test_what_is_no_number_of_bytes_is_refused(written: str | float) -> None:
    with pytest.raises(ByteCountInvalid, match="100MB"):
        byte_count(written)


def _labkit(lab: Path, *arguments: str) -> Any:
    return CliRunner().invoke(app, ["frontier", "--root", str(lab), *arguments], env={"COLUMNS": "80"})


def test_the_command_says_what_bytes_buy_and_draws_nothing(tmp_path: Path) -> None:
    write_record(sample_record(run_id="kv8"), tmp_path)
    done = _labkit(tmp_path, "--buys", "10MB")
    assert done.exit_code == 0, done.output
    assert "per 10.0 MB" in done.output
    assert "decode +3" in done.output
    assert "nothing was measured" in done.output.replace("\n", " ")
    assert all(len(line) <= 80 for line in done.output.splitlines())
    answer = json.loads(_labkit(tmp_path, "--buys", "10MB", "--json").output)
    (step,) = answer["upgrades"]
    assert step["extra_bytes"]["value"] == 23_592_960 - 6_635_520
    assert step["speed"]["word"] == "better"
    assert step["speed"]["per"]["value"] == pytest.approx(step["speed"]["total"]["value"] / 1.695744)
    assert answer["figures"] == []
    assert not (tmp_path / "results" / "figures").exists()


def test_the_command_answers_for_a_budget(tmp_path: Path) -> None:
    write_record(sample_record(run_id="kv8"), tmp_path)
    done = _labkit(tmp_path, "--within", "550MB")
    assert "Within 550 MB: kv=affine:8 (545 MB)." in done.output
    assert "The next 100 MB would buy:" in done.output
    none = _labkit(tmp_path, "--within", "550MB", "--buys", "1MB")
    assert "The next 1.00 MB buy nothing: the next point of the frontier is kv=bf16 (562 MB)." in " ".join(
        none.output.split()
    )
    (found,) = json.loads(_labkit(tmp_path, "--within", "550MB", "--json").output)["within"]
    assert (found["best"], found["unlocked"]) == (["smollm2 kv=affine:8"], ["smollm2 kv=bf16"])


def test_a_budget_that_is_none_is_wrong_usage(tmp_path: Path) -> None:
    write_record(sample_record(run_id="kv8"), tmp_path)
    done = _labkit(tmp_path, "--buys", "plenty")
    assert isinstance(done.exception, ByteCountInvalid)
    assert done.exception.exit_code == 2


def test_what_fits_and_cannot_be_judged_is_named_with_what_it_lacks() -> None:
    unsized = point("unsized", 10.0, 0.1, None)
    (found,) = within(judge([LARGE, UNSCORED, unsized]), 350 * MB)
    assert found.best == ()
    lacking = {s.point.label: [axis.name for axis in s.missing] for s in found.incomparable}
    assert lacking == {"unscored": ["quality"], "unsized": ["size"]}
    assert within(judge([LARGE, UNSCORED]), 50 * MB)[0].incomparable == ()


def test_the_command_names_what_cannot_be_judged(tmp_path: Path) -> None:
    write_record(sample_record(replace(KV8, kl=None, holds={"decode_tps": 0.03}), run_id="kv8"), tmp_path)
    lacks = "Not judged: kv=affine:8 (545 MB) has no KL to the reference."
    budget, steps = (
        " ".join(_labkit(tmp_path, *asked).output.split())
        for asked in (("--within", "550MB"), ("--buys", "10MB"))
    )
    assert f"Within 550 MB: nothing that can be judged. {lacks}" in budget
    assert f"No step: the frontier has one point alone. {lacks}" in steps
    answer = json.loads(_labkit(tmp_path, "--within", "550MB", "--json").output)
    expected = {"label": "smollm2 kv=affine:8", "missing": ["quality"]}
    assert answer["within"][0]["incomparable"] == [expected]
    answer = json.loads(_labkit(tmp_path, "--buys", "10MB", "--json").output)
    assert expected.items() <= answer["incomparable"][0].items()
