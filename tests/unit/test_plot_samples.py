"""The raw samples in the picture of a run: every visit is a mark, and the legend adds up to all of them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.text import Text

from labkit.core.records import Record
from labkit.plots.pairs import verdict_figure
from labkit.plots.samples import COLOURS, MARKERS, look_places, samples
from labkit.store import query
from labkit.store.write import write_record
from tests.unit.sample_records import KV8, full_record, sample_record


def _figure(root: Path, record: Record) -> Figure:
    write_record(record, root)
    run = record.run_id
    return verdict_figure(query.axes(root, run), query.pairs(root, run), query.visits(root, run))


def _panels(figure: Figure) -> dict[str, Axes]:
    """The panels of samples by their title."""
    return {axes.get_title(loc="left"): axes for axes in figure.axes if axes.get_title(loc="left")}


def _legend_texts(figure: Figure) -> list[Text]:
    (legend,) = [legend for axes in figure.axes if (legend := axes.get_legend())]
    return legend.get_texts()


def _legend(figure: Figure) -> dict[str, int]:
    texts = [text.get_text() for text in _legend_texts(figure)]
    return {text.rpartition(" (")[0]: int(text.rpartition("(")[2].rstrip(")")) for text in texts}


def _marks(axes: Axes) -> list[tuple[float, float, Any]]:
    """The place and the marker of lines of one point: the samples, and nothing else that is drawn."""
    lines = [(np.asarray(a.get_xdata()), np.asarray(a.get_ydata()), a.get_marker()) for a in axes.lines]
    return [(float(x[0]), float(y[0]), marker) for x, y, marker in lines if len(x) == 1]


def _dashed(axes: Axes) -> list[float]:
    return [float(np.asarray(a.get_xdata())[0]) for a in axes.lines if a.get_linestyle() == "--"]


def test_every_visit_is_drawn_and_the_legend_counts_it(tmp_path: Path) -> None:
    record = full_record()
    figure = _figure(tmp_path, record)
    panels = _panels(figure)
    assert [title.partition(" (")[0] for title in panels] == ["KV cache, MB", "decode, tok/s"]
    for axes in panels.values():
        assert len(_marks(axes)) == len(record.visits)
    counts = _legend(figure)
    assert counts == {"baseline": 8, "candidate": 8, "warm-up": 2, "noisy, made again": 2, "failed": 1}
    assert sum(counts.values()) == len(record.visits)


def test_visits_stand_in_the_order_they_were_made_with_their_values(tmp_path: Path) -> None:
    record = sample_record(pairs=8)
    (axes,) = [a for title, a in _panels(_figure(tmp_path, record)).items() if title.startswith("decode")]
    drawn = {x: (y, marker) for x, y, marker in _marks(axes)}
    for number, visit in enumerate(sorted(record.visits, key=lambda v: v.started_s), start=1):
        assert drawn[number] == (pytest.approx(visit.metrics["decode_tps"]), MARKERS[visit.role])
    assert len(set(MARKERS.values())) == len(set(COLOURS.values())) == 2, "apart by colour and by shape"


def test_the_two_visits_of_each_pair_are_joined_and_no_others(tmp_path: Path) -> None:
    record = full_record()
    axes = _panels(_figure(tmp_path, record))["KV cache, MB"]
    (lines,) = [c for c in axes.collections if isinstance(c, LineCollection)]
    assert len(lines.get_segments()) == 8


def test_the_looks_are_lines_after_the_pairs_they_came_after(tmp_path: Path) -> None:
    record = full_record(pairs=32)
    look = record.looks[0]
    two = replace(record, looks=({**look, "pairs": 8}, {**look, "pairs": 16}))
    axes = _panels(_figure(tmp_path, two))["KV cache, MB"]
    dashed = _dashed(axes)
    visits: list[dict[Any, Any]] = query.visits(tmp_path).to_dict("records")
    assert dashed == look_places(visits, [8, 16]) and len(dashed) == 2
    before = sorted(visits, key=lambda v: v["started_s"])[: int(dashed[0])]
    good = [v for v in before if v["status"] == "ok"]
    assert len(good) == 16, "8 pairs lie before the first look"


def test_one_look_at_the_end_is_no_line(tmp_path: Path) -> None:
    record = sample_record(pairs=8)
    record = replace(record, looks=({"pairs": 8, "alpha": 0.05, "verdicts": {}},))
    axes = _panels(_figure(tmp_path, record))["KV cache, MB"]
    assert _dashed(axes) == []


def test_a_sample_far_off_stands_at_the_edge_and_the_panel_says_so(tmp_path: Path) -> None:
    record = sample_record(pairs=8)
    first, *rest = record.visits
    cold = replace(first, metrics={**first.metrics, "decode_tps": 0.5})
    figure = _figure(tmp_path, replace(record, visits=(cold, *rest)))
    ((title, axes),) = [(t, a) for t, a in _panels(figure).items() if t.startswith("decode")]
    assert title == "decode, tok/s (1 off the scale, at its edge)"
    low, high = axes.get_ylim()
    assert low > 10 and _marks(axes)[0][1] == low
    counted = [v.metrics["decode_tps"] for v in record.visits if v.status == "ok"]
    assert low < min(counted) <= max(counted) < high, "what counts is never off the scale"


def test_a_visit_whose_partner_failed_or_has_no_value_is_told_apart() -> None:
    record = sample_record(pairs=8)
    visits = [
        {
            "visit": v.index,
            "pair": v.pair,
            "role": v.role,
            "status": v.status,
            "started_s": v.started_s,
            **v.metrics,
        }
        for v in record.visits
    ]
    visits[4]["status"] = "failed"
    visits[6]["decode_tps"] = float("nan")
    kinds = [s.kind for s in samples(visits, "decode_tps")]
    assert kinds[4] == "failed" and kinds[6] == "no value"
    assert kinds[5] == "alone", "the partner of a failed visit does not count"
    assert kinds.count("counted") == 16 - 3


@pytest.mark.parametrize("pairs", [8, 32, 200])
def test_no_text_of_the_samples_is_clipped_or_covers_another(tmp_path: Path, pairs: int) -> None:
    figure = _figure(tmp_path, full_record(pairs=2 * pairs))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    width, height = canvas.get_width_height()
    texts = _legend_texts(figure)
    titles = set(_panels(figure))
    texts += [text for text in figure.findobj(Text) if isinstance(text, Text) and text.get_text() in titles]
    assert len(texts) == len(_legend(figure)) + len(titles)
    boxes = [text.get_window_extent(canvas.get_renderer()) for text in texts]
    for box in boxes:
        assert 0 <= box.x0 <= box.x1 <= width and 0 <= box.y0 <= box.y1 <= height
    apart = [(a, b) for i, a in enumerate(boxes) for b in boxes[i + 1 :] if a.overlaps(b)]
    assert not apart


def test_the_interval_is_named_by_its_level_and_the_floor_where_there_is_one(tmp_path: Path) -> None:
    words = _figure(tmp_path, full_record()).get_supxlabel()
    assert "96.9% interval" in words and "the A/A floor" in words
    plain = _figure(tmp_path, sample_record(KV8, run_id="plain")).get_supxlabel()
    assert re.search(r"\b95% interval", plain) and "floor" not in plain


def test_a_difference_that_visits_measure_has_a_margin_on_both_sides(tmp_path: Path) -> None:
    record = sample_record(pairs=8)
    axis = replace(record.axes[2], metric="compile_s", margin=0.5, estimate=-0.8, low=-1.0, high=-0.6)
    visits = tuple(replace(v, metrics={**v.metrics, "compile_s": 1.0 + v.index / 10}) for v in record.visits)
    figure = _figure(tmp_path, replace(record, axes=(axis,), visits=visits))
    forest = figure.axes[0]
    assert forest.get_xlabel() == "candidate less baseline, s (left of 0 is better)"
    (band, *_) = forest.patches
    assert band.get_x() == -0.5 and band.get_x() + band.get_width() == 0.5  # type: ignore[attr-defined]
    assert "compile, s" in _panels(figure)


def test_a_control_is_named_as_one_and_its_floor_is_in_sight(tmp_path: Path) -> None:
    record = sample_record(pairs=8)
    wide = tuple(replace(axis, floor=5.0) if axis.metric == "decode_tps" else axis for axis in record.axes)
    figure = _figure(tmp_path, replace(record, kind="control", axes=wide))
    assert figure.get_suptitle().startswith("kv8-at-1k: a control")
    low, high = figure.axes[0].get_xlim()
    assert low < 1 / 6 and high > 6


def test_frames_without_visits_still_make_the_forest(tmp_path: Path) -> None:
    record = sample_record(pairs=8)
    write_record(record, tmp_path)
    none = pandas.DataFrame(query.visits(tmp_path).head(0))
    figure = verdict_figure(query.axes(tmp_path), query.pairs(tmp_path), none)
    assert not _panels(figure) and len(figure.axes) == 2
