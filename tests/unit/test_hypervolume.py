"""Hypervolume: exact against a count of cells, and what must hold of it; and its growth in a lab."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from labkit.cli.app import app
from labkit.core.arm import Arm
from labkit.core.records import Record
from labkit.frontier.growth import CORNER, Moment, moments
from labkit.frontier.growth_table import COLUMNS, growth_frame
from labkit.frontier.hypervolume import Place, hypervolume, undominated
from labkit.plots.growth import growth_figure
from labkit.store import query
from labkit.store.write import write_record
from tests.unit.sample_records import KV8, from_elsewhere, sample_record

corners = st.integers(0, 6).map(float)
places = st.integers(1, 3).flatmap(lambda n: st.lists(st.tuples(*[corners] * n), max_size=8))


def _cells(found: list[Place]) -> int:
    """The unit cells that some box covers: what the volume is for whole coordinates."""
    dimensions = len(found[0]) if found else 1
    cells = itertools.product(range(6), repeat=dimensions)
    return sum(any(all(x > c for x, c in zip(p, cell, strict=True)) for p in found) for cell in cells)


@given(places)
@settings(max_examples=300, deadline=None)
def test_it_is_the_volume_of_the_union(found: list[Place]) -> None:
    assert hypervolume(found) == _cells(found)


@given(places, st.randoms())
@settings(deadline=None)
def test_order_copies_and_what_is_dominated_change_nothing(found: list[Place], random: Any) -> None:
    shuffled = [*found, *found]
    random.shuffle(shuffled)
    assert hypervolume(shuffled) == hypervolume(found) == hypervolume(undominated(found))


@given(places.filter(bool), st.data())
@settings(deadline=None)
def test_another_place_takes_nothing_away(found: list[Place], data: Any) -> None:
    more = data.draw(st.tuples(*[corners] * len(found[0])))
    assert hypervolume([*found, more]) >= hypervolume(found)


def test_known_volumes() -> None:
    assert hypervolume([]) == 0.0
    assert hypervolume([(2.0, 1.0, 1.0), (1.0, 2.0, 1.0), (1.0, 1.0, 2.0)]) == 4.0
    assert hypervolume([(-1.0, 5.0), (3.0, 0.0)]) == 0.0
    for wrong in ([(1.0,) * 4], [(1.0,), (1.0, 1.0)], [()]):
        with pytest.raises(ValueError, match="1 to 3"):
            hypervolume(wrong)


def _exact(shape: Any, **changes: Any) -> Record:
    return sample_record(shape, noise=0.0, **changes)


def _moments(lab: Path) -> list[Moment]:
    return list(moments(query.frontier_records(lab)))


def _coordinate(ratio: float, corner: float) -> float:
    return 1 - math.log(ratio) / math.log(corner)


def test_the_first_record_has_the_volume_of_its_two_arms(tmp_path: Path) -> None:
    write_record(_exact(KV8, run_id="kv8"), tmp_path)
    (moment,) = _moments(tmp_path)
    held = [538_060_800 + kv for kv in KV8.values["kv_bytes"]]
    speed, size = _coordinate(14.0 / 17.0, CORNER["speed"]), _coordinate(held[1] / held[0], CORNER["size"])
    # The reference is the unit cube; the candidate adds where it is smaller, as far as it is as good.
    assert moment.volume == pytest.approx(1 + speed * (1 - 0.0021) * (size - 1))
    assert moment.dimensions == ("speed", "quality", "size")
    assert moment.low < moment.volume < moment.high
    assert moment.grew == ("smollm2 kv=bf16", "smollm2 kv=affine:8")


def test_it_grows_with_every_better_arm_and_never_falls(tmp_path: Path) -> None:
    for day, (speed, kv) in enumerate([(14.0, 6e6), (10.0, 6e6), (20.0, 6e6), (20.0, 1e6), (1.0, 9e7)], 1):
        shape = replace(
            KV8,
            candidate=Arm("smollm2", kv="affine:8", prefill_chunk=day),
            values={**KV8.values, "decode_tps": (17.0, speed), "kv_bytes": (23_592_960, kv)},
        )
        write_record(_exact(shape, run_id=f"run-{day}", started_at=f"2026-11-0{day}T10:15:00Z"), tmp_path)
    found = _moments(tmp_path)
    assert [m.run_id for m in found] == [f"run-{day}" for day in range(1, 6)]
    for name in ("volume", "low", "high"):
        values = [getattr(m, name) for m in found]
        assert values == sorted(values)
    assert [bool(m.grew) for m in found] == [True, False, True, True, False]
    assert found[-1].volume == found[-2].volume


def test_a_day_on_which_the_machine_was_faster_moves_nothing(tmp_path: Path) -> None:
    write_record(_exact(KV8, run_id="one"), tmp_path)
    twice = replace(KV8, values={**KV8.values, "decode_tps": (34.0, 28.0)})
    write_record(_exact(twice, run_id="two", started_at="2026-11-07T10:15:00Z"), tmp_path)
    first, second = _moments(tmp_path)
    assert second.volume == pytest.approx(first.volume)


def test_what_is_beyond_the_corner_adds_nothing(tmp_path: Path) -> None:
    lost = replace(KV8, kl=(1.5, 1.4, 1.6), values={**KV8.values, "decode_tps": (17.0, 99.0)})
    write_record(_exact(lost, run_id="lost"), tmp_path)
    (moment,) = _moments(tmp_path)
    assert (moment.volume, moment.grew) == (1.0, ("smollm2 kv=bf16",))


def test_a_group_that_scored_nothing_spans_speed_and_size(tmp_path: Path) -> None:
    unscored = replace(KV8, kl=None, holds={"decode_tps": 0.03})
    write_record(_exact(unscored, run_id="one"), tmp_path)
    (moment,) = _moments(tmp_path)
    assert moment.dimensions == ("speed", "size")
    assert moment.volume > 1


def test_records_of_all_versions_are_one_history_with_its_changes_marked(tmp_path: Path) -> None:
    """Code that made both arms twice as fast moves nothing, and the mark says where it came."""
    write_record(from_elsewhere(_exact(KV8, run_id="old"), code_hash="another"), tmp_path)
    twice = replace(KV8, values={**KV8.values, "decode_tps": (34.0, 28.0)})
    for name, day in (("new", 7), ("newer", 8)):
        write_record(_exact(twice, run_id=name, started_at=f"2026-11-0{day}T10:15:00Z"), tmp_path)
    found = _moments(tmp_path)
    assert [(m.run_id, m.changed) for m in found] == [("old", ()), ("new", ("code",)), ("newer", ())]
    assert found[-1].volume == pytest.approx(found[0].volume)
    (axes,) = growth_figure(growth_frame(found)).axes
    assert [t.get_text() for t in axes.texts if t.get_text() == "code"] == ["code"]
    done = CliRunner().invoke(app, ["frontier", "--root", str(tmp_path), "--over-time"])
    assert "other code" in done.output
    assert "hidden" not in done.output, "nothing is left out of what is shown"


def test_a_record_without_its_reference_is_placed_by_one_of_its_own_version(tmp_path: Path) -> None:
    write_record(from_elsewhere(_exact(KV8, run_id="old"), code_hash="another"), tmp_path)
    faster = Arm("smollm2", kv="affine:8", prefill_chunk=7)
    other = replace(KV8, baseline=faster, candidate=replace(faster, prefill_chunk=9), values={**KV8.values})
    alone = _exact(other, run_id="alone", started_at="2026-11-07T10:15:00Z")
    reference = KV8.baseline.hash()
    arms = tuple(replace(a, reference_hash=reference) for a in alone.arms)
    write_record(replace(alone, arms=arms), tmp_path)
    old, new = _moments(tmp_path)
    assert (new.changed, new.grew, new.volume) == (("code",), (), old.volume)


def test_a_kl_below_zero_is_no_better_than_none(tmp_path: Path) -> None:
    """Rounding alone makes a KL negative; it must not add volume."""
    for name, kl in (("zero", (0.0, 0.0, 0.0)), ("below", (-0.5, -0.6, -0.4))):
        write_record(_exact(replace(KV8, kl=kl), run_id=name), tmp_path / name)
    (zero,), (below,) = _moments(tmp_path / "zero"), _moments(tmp_path / "below")
    assert (below.volume, below.high) == (zero.volume, zero.high)


def test_the_command_shows_it_and_draws_it(tmp_path: Path) -> None:
    write_record(sample_record(run_id="kv8"), tmp_path)
    frame = growth_frame(_moments(tmp_path))
    assert tuple(frame.columns) == COLUMNS
    arguments = ["frontier", "--root", str(tmp_path), "--over-time"]
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    assert "smollm2 kv=bf16 alone is 1" in done.output
    assert "0.25x speed, 1 nats, 4x size" in done.output
    assert all(len(line) <= 80 for line in done.output.splitlines() if not line.startswith("Pictures"))
    svg = tmp_path / "results" / "figures" / "frontier-over-time.svg"
    assert f'xlink:href="../{sample_record().machine["slug"]}/kv8.json"' in svg.read_text()
    answer = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).output)
    assert answer["over_time"]["corner"] == dict(CORNER)
    (moment,) = answer["over_time"]["groups"][0]["moments"]
    assert moment["volume"] == pytest.approx(frame["volume"][0])
