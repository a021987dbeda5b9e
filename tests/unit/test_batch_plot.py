"""The timeline of a batch: stretches by hand, idle time cut out, and a picture that says what is in them."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import matplotlib.colors
import pandas
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from labkit.core.errors import NoRecords, RecordInvalid
from labkit.engine.load import load
from labkit.plots.batch import LOOKS, MOST, timeline_figure
from labkit.plots.files import write_figure
from labkit.schedule.admission import Budget
from labkit.schedule.arrivals import Arrival, poisson
from labkit.schedule.outcome import Outcome, Timing, Unit
from labkit.schedule.queue import WorkKind
from labkit.schedule.simulate import Costs, simulate
from labkit.schedule.timeline import SPAN_COLUMNS, UNIT_COLUMNS, span_frame, unit_frame, without_idle

# Powers of two, so that sums of seconds are exact and can be compared as equal.
COSTS = Costs(1 / 1024, lambda rows: (4 + rows) / 64)
BUDGET = Budget(1000, lambda tokens: 4 * tokens)


def unit(kind: WorkKind, start_s: float, *ids: str, running: int = 0) -> Unit:
    """A unit of one second."""
    return Unit(kind, start_s, 1.0, ids, running or len(ids), 0, 0)


def small() -> Outcome:
    """`a` reads and decodes, `b` joins it, `c` waits for a row, and `big` can never run."""
    arrivals = [
        *(Arrival("a", 0.0, 65, 4, client="ann"), Arrival("b", 0.0625, 65, 2), Arrival("c", 0.0625, 1, 2)),
        Arrival("big", 0.125, 900, 900),
    ]
    return simulate(arrivals, COSTS, cap=2, prefill_chunk=64, budget=BUDGET)


def held_back() -> Outcome:
    """`a` misses two steps of `b`; `b` has not ended."""
    steps = [unit("decode", 0.0, "a", "b"), unit("decode", 1.0, "b"), unit("decode", 2.0, "b")]
    units = (*steps, unit("decode", 3.0, "a", "b"))
    return Outcome("fcfs", (Timing("a", "", 0.0, 0.0, (1.0, 4.0)),), units)


def told(outcome: Outcome, name: str) -> list[tuple[Any, ...]]:
    rows = span_frame(outcome).query("id == @name")[["kind", "start_s", "end_s", "units"]]
    return sorted(rows.itertuples(index=False, name=None), key=lambda row: row[1])


def drawn(outcome: Outcome, **options: Any) -> Figure:
    return outcome.figure(**options).figure


def words(figure: Figure) -> list[str]:
    return [t.get_text() for t in _texts(figure)]


def _texts(figure: Figure) -> list[Text]:
    found = figure.findobj(Text)
    return [t for t in found if isinstance(t, Text) and t.get_visible() and t.get_text().strip()]


def test_stretches_by_hand() -> None:
    """In 64ths of a second: a chunk takes 4, a step 5 for one row and 6 for two."""
    found = {
        name: [(kind, 64 * start, 64 * end, units) for kind, start, end, units in told(small(), name)]
        for name in ("a", "b", "c")
    }
    assert found == {
        "a": [("prefill", 0, 4, 1), ("decode", 4, 9, 1), ("paused", 9, 13, 0), ("decode", 13, 31, 3)],
        "b": [("paused", 4, 9, 0), ("prefill", 9, 13, 1), ("decode", 13, 25, 2)],
        "c": [("waiting", 4, 25, 0), ("decode", 25, 36, 2)],
    }
    assert told(small(), "big") == [("refused", 0.125, 0.125, 0)]


def test_a_row_that_others_decode_without_is_held_back() -> None:
    assert told(held_back(), "a") == [("decode", 0, 1, 1), ("held back", 1, 3, 0), ("decode", 3, 4, 1)]


def test_a_row_of_a_batch_that_is_held_back_keeps_its_bytes() -> None:
    with load("null").batch(cap=2, max_tokens=100) as batch:
        idle, busy = batch.session("nobody reads this"), batch.session("this is read")
        busy.run()
        idle.run()
        outcome = batch.outcome()
    assert [t.id for t in outcome.timings] == [busy.name, idle.name]
    frame = span_frame(outcome)
    assert list(frame.drop_duplicates("place")["id"]) == [idle.name, busy.name]
    (held,) = frame.query("kind == 'held back'").itertuples()
    start_s, end_s = float(held.start_s), float(held.end_s)  # type: ignore[arg-type]
    units = outcome.units
    begun = next(number for number, unit in enumerate(units) if unit.start_s >= start_s)
    meanwhile = [unit.kv_bytes for unit in units[begun - 1 :] if unit.start_s < end_s]
    assert len(meanwhile) > 9 and meanwhile == sorted(meanwhile)
    assert all(len(unit.ids) <= unit.running for unit in units)


def test_what_has_not_ended_begins_with_its_first_unit() -> None:
    assert told(held_back(), "b") == [("decode", 0, 4, 4)]
    row = span_frame(held_back()).query("id == 'b'").iloc[0]
    assert (row["tokens"], row["client"]) == (0, "")


def test_requests_stand_in_the_order_of_their_arrival_with_their_figures() -> None:
    frame = span_frame(small())
    assert tuple(frame.columns) == SPAN_COLUMNS
    firsts = frame.drop_duplicates("place")[["place", "id", "client", "tokens", "ttft_s"]]
    rows = list(firsts.fillna(-1).itertuples(index=False, name=None))
    assert rows == [
        *((0, "a", "ann", 4, 9 / 64), (1, "b", "", 2, 15 / 64), (2, "c", "", 2, 27 / 64)),
        (3, "big", "", 0, -1),
    ]


def test_units_have_a_row_each() -> None:
    outcome = small()
    frame = unit_frame(outcome)
    assert tuple(frame.columns) == UNIT_COLUMNS
    assert list(frame["served"]) == [len(u.ids) for u in outcome.units]
    assert list(frame["kv_bytes"]) == [u.kv_bytes for u in outcome.units]


def test_idle_time_is_cut_to_a_length_and_work_is_not() -> None:
    units = (unit("decode", 0.0, "a"), unit("decode", 101.0, "a"), unit("decode", 102.5, "b"))
    timings = (Timing("a", "", 0.0, 0.0, (1.0, 102.0)), Timing("b", "", 51.0, 102.5, (103.5,)))
    short = without_idle(Outcome("fcfs", timings, units), 2.0)
    assert [u.start_s for u in short.units] == [0.0, 3.0, 4.5]
    a, b = short.timings
    assert (a.token_s, b.arrival_s, b.admitted_s, b.token_s) == ((1.0, 4.0), 3.0, 4.5, (5.5,))


def test_a_stretch_of_a_kind_is_drawn_where_its_request_stands() -> None:
    outcome = small()
    bars = drawn(outcome).axes[0].collections
    boxes = {tuple(round(64 * x) for x in c.get_paths()[0].vertices[[0, 2], 0]) for c in bars}  # type: ignore[index, union-attr]
    assert {(0, 4), (4, 25), (25, 36)} <= boxes
    named = [t.get_text() for t in drawn(outcome).axes[0].get_yticklabels()]
    assert named == ["a (ann)", "b", "c", "big"]


def test_the_picture_says_what_is_in_it() -> None:
    found = words(drawn(small(), cap=2, budget_bytes=1000))
    for needed in (
        "fcfs: 4 requests, 8 tokens, 0.56 s of work",
        *("time, s", "rows", "KV, kB", "cap 2", "budget 1.00 kB", "refused", "waits for a row"),
        "4 tokens, first after 0.14 s",
    ):
        assert needed in found
    assert LOOKS["held back"].words not in found
    assert LOOKS["held back"].words in words(drawn(held_back()))


def test_bytes_have_a_panel_only_where_they_are_known() -> None:
    assert [len(drawn(outcome).axes) for outcome in (small(), held_back())] == [3, 2]


def test_no_row_has_a_place_while_nothing_is_there() -> None:
    outcome = simulate([Arrival("a", 0.0, 1, 1), Arrival("b", 8.0, 1, 1)], COSTS)
    (line,) = [line for line in drawn(outcome, idle=True).axes[1].lines if len(line.get_xdata()) > 2]  # type: ignore[arg-type]
    assert list(line.get_ydata()) == [1, 0, 1, 0]  # type: ignore[arg-type]
    assert "time, s" in words(drawn(outcome, idle=True))
    assert "time, s, without the time in which nothing ran" in words(drawn(outcome))


@pytest.mark.parametrize("requests", [1, 3, 12, 40, MOST])
def test_texts_neither_overlap_nor_leave_the_picture(requests: int) -> None:
    outcome = simulate(poisson(3, requests, max_tokens=(2, 9), clients=3), COSTS, cap=4)
    figure = drawn(outcome, cap=4)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    width, height = canvas.get_width_height()
    shown = [t for axes in figure.axes for t in (*axes.texts, *_ticks(axes))] + figure.texts
    boxes = [t.get_window_extent(canvas.get_renderer()) for t in shown if t.get_text()]
    for box in boxes:
        assert -1 <= box.x0 <= box.x1 <= width + 1  # a pixel of rounding
        assert -1 <= box.y0 <= box.y1 <= height + 1
    # Two pixels: the extent of a text is that of its line, which is taller than its letters.
    shrunk = [box.padded(-2) for box in boxes]
    assert not [1 for one, other in combinations(shrunk, 2) if one.overlaps(other)]


def _ticks(axes: Axes) -> list[Text]:
    """Labels within the limits; matplotlib keeps and hides others."""
    low, high = sorted(axes.get_ylim())
    return [t for t in axes.get_yticklabels() if low <= t.get_position()[1] <= high]


def test_png_and_svg_come_out_the_same_twice(tmp_path: Path) -> None:
    first, second = (write_figure(drawn(small()), tmp_path / name, "batch") for name in ("one", "two"))
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]
    assert first[0].read_bytes().startswith(b"\x89PNG")
    tree = ElementTree.fromstring(first[1].read_text(encoding="utf-8"))
    texts = ["".join(t.itertext()) for t in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert "decode steps" in texts


def test_frames_that_make_no_picture_are_refused() -> None:
    empty = Outcome("fcfs", (), ())
    with pytest.raises(NoRecords, match="run a batch"):
        timeline_figure(span_frame(empty), unit_frame(empty))
    many = simulate(poisson(3, MOST + 1, max_tokens=1), COSTS)
    with pytest.raises(RecordInvalid, match="at most 200 requests"):
        drawn(many)


def test_kinds_differ_in_more_than_colour() -> None:
    """For whoever tells no two of them apart: by height, filling or hatching."""
    forms = [(look.height, look.hatch, look.face == "none", look.face) for look in LOOKS.values()]
    assert len(set(forms)) == len(LOOKS)
    waiting, prefill, decode, paused, held = LOOKS.values()
    assert len({waiting.height, prefill.height, paused.height, held.height}) == 4
    assert _lightness(prefill.face) - _lightness(decode.face) > 0.25  # a quarter of black to white


def _lightness(colour: str) -> float:
    red, green, blue = matplotlib.colors.to_rgb(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_the_callers_matplotlib_settings_are_left_alone() -> None:
    with matplotlib.rc_context({"font.size": 31.0}):
        drawn(small())
        assert matplotlib.rcParams["font.size"] == 31.0


def test_a_frame_from_elsewhere_is_enough() -> None:
    outcome = replace(small(), policy="")
    again = [pandas.DataFrame(f.to_dict("list")) for f in (span_frame(outcome), unit_frame(outcome))]
    assert "decode steps" in words(timeline_figure(*again))
