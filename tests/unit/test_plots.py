"""Pictures: they render, say what they should, keep texts apart and come out the same twice."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import pandas
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text

from labkit.core.arm import Arm
from labkit.core.errors import NoRecords, RecordInvalid
from labkit.frontier.table import COLUMNS, frontier_frame
from labkit.plots.amounts import amount, digits, interval, ratio_interval
from labkit.plots.files import write_figure
from labkit.plots.frontier import frontier_figure
from labkit.plots.pairs import verdict_figure
from labkit.store import query
from labkit.store.write import write_record
from tests.unit.sample_records import BLAS, KV8, Shape, from_elsewhere, sample_record

KV4 = replace(
    KV8,
    name="kv4-at-1k",
    candidate=Arm("smollm2", kv="affine:4"),
    values={**KV8.values, "decode_tps": (17.0, 13.2), "kv_bytes": (23_592_960, 3_686_400)},
    kl=(1.3, 1.1, 1.5),
)
SLOW = replace(
    KV8,
    name="small-chunks",
    candidate=Arm("smollm2", prefill_chunk=64),
    values={**KV8.values, "decode_tps": (17.0, 15.1), "kv_bytes": (23_592_960, 24_592_960)},
)
UNSCORED = replace(
    KV8,
    name="unscored",
    candidate=Arm("smollm2", kv="turbo:k8v3"),
    holds={"decode_tps": 0.03},
    values={**KV8.values, "decode_tps": (17.0, 14.6), "kv_bytes": (23_592_960, 5_000_000)},
    kl=None,
)


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """Five experiments: two on the frontier, one dominated, one without quality, one about prefill."""
    shapes: list[Shape] = [KV8, KV4, SLOW, UNSCORED, BLAS]
    for shape in shapes:
        write_record(sample_record(shape, run_id=shape.name), tmp_path)
    return tmp_path


def _frontier(lab: Path) -> Figure:
    return frontier_figure(frontier_frame(query.frontier_points(lab)))


def _verdicts(lab: Path, run_id: str) -> Figure:
    rows: list[dict[Any, Any]] = query.axes(lab).to_dict("records")
    mine = pandas.DataFrame([r for r in rows if r["run_id"] == run_id])
    return verdict_figure(mine, query.pairs(lab), query.visits(lab))


def _figures(lab: Path) -> dict[str, Figure]:
    return {"frontier": _frontier(lab), "kv8": _verdicts(lab, KV8.name), "blas": _verdicts(lab, BLAS.name)}


def _texts(figure: Figure) -> list[Text]:
    """Every text that is drawn, of the figure and its axes, tick labels included."""
    found = figure.findobj(Text)
    return [t for t in found if isinstance(t, Text) and t.get_visible() and t.get_text().strip()]


def _labels(axes: Axes) -> list[Annotation]:
    return [
        t for t in axes.texts if isinstance(t, Annotation) and "\n" in t.get_text() and t.get_bbox_patch()
    ]


def test_png_renders_and_svg_has_text_as_text(lab: Path, tmp_path: Path) -> None:
    for name, figure in _figures(lab).items():
        png, svg = write_figure(figure, tmp_path / "pictures", name)
        assert png.read_bytes().startswith(b"\x89PNG")
        tree = ElementTree.fromstring(svg.read_text(encoding="utf-8"))
        words = " ".join("".join(t.itertext()) for t in tree.iter("{http://www.w3.org/2000/svg}text"))
        for needed in {
            "frontier": ["kv=affine:8", "decode, 1x = 17.1 tok/s"],
            "kv8": ["trade-off", "worse"],
        }.get(name, []):
            assert needed in words
    names = sorted(p.name for p in (tmp_path / "pictures").iterdir())
    assert names == ["blas.png", "blas.svg", "frontier.png", "frontier.svg", "kv8.png", "kv8.svg"]


def test_the_same_frame_gives_the_same_bytes(lab: Path, tmp_path: Path) -> None:
    first = write_figure(_frontier(lab), tmp_path / "first", "frontier")
    second = write_figure(_frontier(lab), tmp_path / "second", "frontier")
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]
    assert "<dc:date>" not in first[1].read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["frontier", "kv8", "blas"])
def test_no_text_is_clipped_by_the_picture(lab: Path, name: str) -> None:
    figure = _figures(lab)[name]
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    width, height = canvas.get_width_height()
    for text in _texts(figure):
        box = text.get_window_extent(canvas.get_renderer())
        if box.width > 0 and text.get_text() in {t.get_text() for t in figure.texts} | _inside(figure):
            assert -1 <= box.x0 <= box.x1 <= width + 1, text.get_text()  # a pixel of rounding
            assert -1 <= box.y0 <= box.y1 <= height + 1, text.get_text()


def _inside(figure: Figure) -> set[str]:
    """Texts that must show: everything but ticks outside the limits, which matplotlib keeps and hides."""
    return {t.get_text() for axes in figure.axes for t in (*axes.texts, axes.xaxis.label, axes.yaxis.label)}


def test_labels_of_arms_overlap_neither_each_other_nor_a_point(lab: Path) -> None:
    figure = _frontier(lab)
    renderer = FigureCanvasAgg(figure).get_renderer()
    counts = []
    for axes in figure.axes:
        boxes = [label.get_window_extent(renderer) for label in _labels(axes)]
        marks = [axes.transData.transform(label.xy) for label in _labels(axes)]
        assert not [1 for a, b in combinations(boxes, 2) if a.overlaps(b)]
        assert not [1 for box in boxes for x, y in marks if box.contains(x, y)]
        counts.append(len(boxes))
    assert sorted(counts) == [2, 5]


def test_the_frontier_has_a_panel_per_group_and_says_what_is_missing(lab: Path) -> None:
    figure = _frontier(lab)
    assert sorted(axes.get_xlabel() for axes in figure.axes) == [
        *("decode, 1x = 17.1 tok/s", "prefill, 1x = 8.79 tok/s"),
    ]
    texts = [t.get_text() for t in _texts(figure)]
    assert "kv=turbo:k8v3\nKL not measured" in texts
    assert "kv=bf16\nthe reference" in texts
    assert {axes.get_xscale() for axes in figure.axes} == {"log"}


def test_other_windows_have_a_panel_of_their_own(lab: Path) -> None:
    write_record(from_elsewhere(sample_record(run_id="short"), windows_hash="16x24"), lab)
    heads = [t.get_text() for axes in _frontier(lab).axes for t in axes.texts]
    assert len([t for t in heads if t.startswith("smollm2-135m, 1024+64")]) == 2
    assert [t for t in heads if "reference smollm2 kv=bf16; KL over 16 windows of 512 tokens" in t]


def test_a_point_without_a_place_is_named(lab: Path) -> None:
    frame = frontier_frame(query.frontier_points(lab))
    frame.loc[frame["label"] == "smollm2 kv=affine:8", ["size", "size_low", "size_high"]] = float("nan")
    frame["missing"] = [["size"] if r["size"] != r["size"] else [] for r in frame.to_dict("records")]
    texts = [t.get_text() for t in _texts(frontier_figure(frame))]
    assert "Without a place: smollm2 kv=affine:8 (no size)" in texts


def test_the_forest_has_a_row_per_axis_and_nats_apart(lab: Path) -> None:
    ratios, nats, *_ = _verdicts(lab, KV8.name).axes
    assert ratios.get_xscale() == "log"
    assert nats.get_xscale() == "linear"
    rows = [t.get_text() for t in ratios.get_yticklabels()]
    assert rows == ["KV cache\nto improve by 40%", "decode\nto hold within 3%"]
    assert [t.get_text() for t in nats.get_yticklabels()] == ["KL to the reference\nto hold within 0.01 nats"]
    words = [t.get_text() for t in ratios.texts]
    assert words[0::2] == ["better", "worse"]
    dots = [line for line in ratios.lines if line.get_marker() == "o"]
    assert [len(line.get_xdata()) for line in dots] == [10, 10]  # type: ignore[arg-type]


def test_an_axis_that_was_not_measured_has_no_mark(lab: Path) -> None:
    rows: list[dict[Any, Any]] = query.axes(lab).to_dict("records")
    mine = [{**r, "n": 0, "verdict": "unresolved"} for r in rows if r["run_id"] == KV8.name]
    figure = verdict_figure(pandas.DataFrame(mine), query.pairs(lab).head(0), query.visits(lab).head(0))
    assert "not measured" in [t.get_text() for axes in figure.axes for t in axes.texts]
    assert not [line for axes in figure.axes for line in axes.lines if line.get_marker() == "D"]


@pytest.mark.parametrize("scale", ["ratio", "absolute"])
def test_a_tie_without_a_margin_still_has_a_scale(lab: Path, scale: str) -> None:
    tie = {"margin": 0.0, **dict.fromkeys(("estimate", "low", "high"), 1.0 if scale == "ratio" else 0.0)}
    rows: list[dict[Any, Any]] = query.axes(lab).to_dict("records")
    mine = [{**r, **tie} for r in rows if r["run_id"] == KV8.name and r["scale"] == scale]
    (axes,) = verdict_figure(pandas.DataFrame(mine), query.pairs(lab).head(0), query.visits(lab).head(0)).axes
    low, high = axes.get_xlim()
    assert low < (1.0 if scale == "ratio" else 0.0) < high


def test_frames_that_make_no_picture_are_refused(lab: Path) -> None:
    with pytest.raises(NoRecords, match="labkit run"):
        frontier_figure(pandas.DataFrame(columns=list(COLUMNS)))
    with pytest.raises(NoRecords, match="labkit run"):
        verdict_figure(query.axes(lab).head(0), query.pairs(lab), query.visits(lab))
    with pytest.raises(RecordInvalid, match="one run"):
        verdict_figure(query.axes(lab), query.pairs(lab), query.visits(lab))


def test_the_callers_matplotlib_settings_are_left_alone(lab: Path, tmp_path: Path) -> None:
    with matplotlib.rc_context({"font.size": 31.0}):
        write_figure(_frontier(lab), tmp_path, "frontier")
        assert matplotlib.rcParams["font.size"] == 31.0


def test_plots_load_matplotlib_only_to_draw() -> None:
    code = "import sys, labkit.plots.frontier, labkit.plots.pairs, labkit.plots.files, labkit.cli.frontier\n"
    code += "sys.exit(int(any(m in sys.modules for m in ('matplotlib', 'duckdb', 'mlx', 'pandas'))))"
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=False)
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (digits(279.4), "279"),
        (digits(13.95), "13.9"),
        (digits(0.0021, 2), "0.0021"),
        (digits(3e-9, 2), "3.0e-09"),
        (digits(12345.0), "12,345"),
        (digits(0.0), "0"),
        (amount(561_653_760, "bytes"), "562 MB"),
        (interval(17.0, 16.6, 17.4, "tok/s"), "17.0 [16.6, 17.4] tok/s"),
        (interval(5e8, 5e8, 5e8, "bytes"), "500 MB"),
        (interval(3e-9, 2e-9, 4e-9, "nats"), "below 1e-5 nats"),
        (interval(0.0, 0.0, 0.0, "nats"), "0 nats"),
        (interval(float("nan"), 0.0, 0.0, "nats"), "not measured"),
        (ratio_interval(0.823, 0.811, 0.836), "0.823x [0.811, 0.836]"),
        (ratio_interval(3.5556, 3.5556, 3.5557), "3.56x"),
    ],
)
def test_amounts_read_as_written(text: str, expected: str) -> None:
    assert text == expected
