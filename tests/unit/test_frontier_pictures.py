"""The frontier's pictures: scales that stay, links to the right record, and odd sets of points."""

from __future__ import annotations

import random
import re
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from labkit.core.errors import NoRecords
from labkit.frontier.dominance import judge
from labkit.frontier.links import linked
from labkit.frontier.points import Point
from labkit.frontier.table import COLUMNS, standing_frame
from labkit.lab.reading.pareto import pareto
from labkit.plots.files import write_figure
from labkit.plots.frontier import NAMED, frontier_figure
from labkit.plots.frontier_3d import frontier_3d_figure
from labkit.plots.growth import growth_figure
from labkit.plots.scales import NATS_TICKS, RUNGS, nats_place, ratio_scale
from labkit.store.write import write_record
from tests.unit.frontier_points import point
from tests.unit.sample_records import sample_record

REFERENCE = point("reference", (19.5, 20.5), 0.0, 560e6)
DRAW = {"flat": frontier_figure, "cube": frontier_3d_figure}
SVG = "{http://www.w3.org/2000/svg}"
HREF = "{http://www.w3.org/1999/xlink}href"


def _frame(points: list[Point]) -> pandas.DataFrame:
    return linked(standing_frame(judge(points)), Path("/lab"), Path("/lab/results/figures"))


def _many(count: int, gaps: bool = False) -> list[Point]:
    draw = random.Random(7)
    found = [REFERENCE]
    for i in range(count - 1):
        speed, kl, size = draw.uniform(8, 48), 10 ** draw.uniform(-3.5, 0.3), draw.uniform(1e8, 7e8)
        found.append(point(f"arm-{i}", speed, None if gaps and i % 7 == 6 else kl, size))
    return found


def _limits(figure: Figure, kind: str) -> list[tuple[float, float]]:
    axes: Any = figure.axes[0]
    flat = [axes.get_xlim(), axes.get_ylim()]
    return flat if kind == "flat" else [*flat, axes.get_zlim()]


@pytest.mark.parametrize("kind", DRAW)
def test_the_scales_stay_when_a_point_is_added_within_the_rungs(kind: str) -> None:
    few = [REFERENCE, point("a", 40.0, 0.01, 300e6)]
    more = [*few, point("b", 26.0, 0.5, 420e6)]
    before, after = (DRAW[kind](_frame(points)) for points in (few, more))
    assert _limits(before, kind) == _limits(after, kind)
    for axis in ("xaxis", "yaxis"):
        one, other = (getattr(figure.axes[0], axis).get_ticklocs() for figure in (before, after))
        assert list(one) == list(other)


def test_the_scale_is_a_ladder_that_intervals_climb_by_one_rung() -> None:
    assert ratio_scale([]) == ratio_scale([1.0]) == ratio_scale([1.09, 0.92])
    for rung, wider in pairwise(RUNGS):
        assert ratio_scale([rung]).high == pytest.approx(rung)
        assert ratio_scale([1 / rung]).low == pytest.approx(1 / rung)
        assert ratio_scale([rung], [1e12, 1e-12]).high == pytest.approx(wider)
    assert ratio_scale([1.0], [1e12]).high == pytest.approx(RUNGS[1])
    assert ratio_scale([3e6]).high == pytest.approx(3e6)
    assert all(1.0 in ratio_scale([r, 1 / r]).ticks for r in RUNGS)


def test_a_kl_stays_within_its_fixed_scale() -> None:
    assert nats_place(0.0) == nats_place(-1.0) == nats_place(NATS_TICKS[0]) == -4
    assert nats_place(99.0) == nats_place(NATS_TICKS[-1]) == 1


def _anchors(svg: Path) -> list[tuple[str, str]]:
    """Each link with the texts in it, in the order in which they are drawn."""
    tree = ElementTree.fromstring(svg.read_text(encoding="utf-8"))
    return [(a.get(HREF, ""), " ".join(a.itertext())) for a in tree.iter(f"{SVG}a")]


@pytest.mark.parametrize("kind", DRAW)
def test_every_point_and_its_name_lead_to_its_own_record(kind: str, tmp_path: Path) -> None:
    points = _many(NAMED - 1)
    _, svg = write_figure(DRAW[kind](_frame(points)), tmp_path, kind)
    found = _anchors(svg)
    for each in points:
        mine = [text for href, text in found if href == f"../machine/{each.run_id}.json"]
        assert any(each.label in text for text in mine), each.label
        assert any(not text.strip() for text in mine), "its mark"
        assert not [t for h, t in found if re.search(rf"\b{each.label}\b[\s:]", t) and each.run_id not in h]


def test_in_the_cube_a_mark_leads_to_the_record_of_the_place_it_stands_on(tmp_path: Path) -> None:
    """Whatever is drawn first: the link of each mark, by where the mark is on the paper."""
    points = _many(4)
    figure = frontier_3d_figure(_frame(points))
    figure.set_dpi(72)
    figure.draw_without_rendering()
    cube: Any = figure.axes[0]
    high = figure.get_figheight() * 72
    numbers = [t for t in cube.texts if isinstance(t, Annotation) and t.get_text().isdigit()]
    places = {t.get_url(): cube.transData.transform(t.xy) for t in numbers}
    _, svg = write_figure(figure, tmp_path, "cube")
    tree = ElementTree.fromstring(svg.read_text(encoding="utf-8"))
    checked = set()
    for link in tree.iter(f"{SVG}a"):
        for use in link.iter(f"{SVG}use"):
            x, y = places[link.get(HREF)]
            at = float(use.get("x", "nan")), high - float(use.get("y", "nan"))
            assert at == pytest.approx((x, y), abs=0.5), "half a point of rounding"
            checked.add(link.get(HREF))
    assert checked == set(places)
    assert len(checked) == 4


def test_links_are_relative_to_the_folder_and_quoted() -> None:
    frame = _frame([REFERENCE]).assign(record="results/a machine/r#1.json")
    there = linked(frame, Path("/lab"), Path("/elsewhere/pictures"))
    assert list(there["link"]) == ["../../lab/results/a%20machine/r%231.json"]


ODD: dict[str, list[Point]] = {
    "one": [REFERENCE],
    "no reference": [point("a", 10.0, 0.1, 5e8), point("b", 20.0, 0.2, 6e8)],
    "nothing has a place": [point("a", None, 0.1, 5e8), point("b", 20.0, 0.2, None)],
    "an interval below zero": [REFERENCE, point("wide", (-40.0, 90.0), (-0.1, 0.2), (1e8, 9e9))],
    "ten thousand times": [REFERENCE, point("fast", 2e5, 0.0, 560e6)],
    "all in one place": [REFERENCE, *(point(f"twin-{i}", 20.0, 0.0, 560e6) for i in range(3))],
    "thirty": _many(30, gaps=True),
}


@pytest.mark.parametrize("kind", DRAW)
@pytest.mark.parametrize("name", ODD)
def test_odd_sets_of_points_are_drawn(kind: str, name: str) -> None:
    figure = DRAW[kind](_frame(ODD[name]))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    width, height = canvas.get_width_height()
    for axes in figure.axes:
        named = [t for t in axes.texts if t.get_url()]
        boxes = [t.get_window_extent(canvas.get_renderer()) for t in named]
        assert all(min(b.x0, b.y0) >= -1 and b.x1 <= width + 1 and b.y1 <= height + 1 for b in boxes)
        if kind == "flat" and name != "thirty":
            assert not [1 for a, b in combinations(boxes, 2) if a.overlaps(b)]


def test_shape_and_colour_say_the_same() -> None:
    """Each standing has one shape and one colour, and no two share either."""
    from labkit.plots.marks import MARKS

    assert len({m["marker"] for m in MARKS.values()}) == len({m["color"] for m in MARKS.values()}) == 3


def test_an_end_beyond_the_panel_is_an_arrow() -> None:
    (axes,) = frontier_figure(_frame([REFERENCE, point("wide", (0.1, 42.0), 0.1, 500e6)])).axes
    markers = [str(line.get_marker()) for line in axes.lines]
    assert sorted(m for m in markers if m in "<>^v") == ["<", ">"]


def test_trade_offs_are_named_in_both_pictures() -> None:
    frame = _frame([REFERENCE, point("small", 10.0, 0.0, 280e6)])
    for draw in DRAW.values():
        texts = [t.get_text().replace("\n", " ") for axes in draw(frame).axes for t in axes.texts]
        assert any("trade-off: smaller for slower" in " ".join(text.split()) for text in texts)


def test_the_public_value_shows_tables_and_pictures_with_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_record(sample_record(run_id="kv8"), tmp_path)
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    found = pareto(tmp_path)
    record = f"../results/{sample_record().machine['slug']}/kv8.json"
    assert f'<a href="{record}">kv8</a>' in found._repr_html_()
    assert "2 points, 2 on the frontier; groups: 1" in repr(found)
    for picture in (found.figure(), found.figure_3d(), found.figure_over_time()):
        assert picture._repr_html_().startswith("<svg")
        assert f'xlink:href="{record}"' in picture.svg()
        _, svg = picture.save(tmp_path / "a" / "b", "saved")
        assert {href for href, _ in _anchors(svg)} == {f"../{record}"}, "as seen from where it lies"
        assert f'xlink:href="{record}"' in picture.svg(), "the page's own links stay"
    rows: list[dict[Any, Any]] = found.trade_offs().to_dict("records")
    assert [(r["point"], r["other"]) for r in rows] == [("smollm2 kv=affine:8", "smollm2 kv=bf16")]
    assert rows[0]["gains"] == ["size 1.03x"]
    assert len(found.buys("10MB")) == len(found.over_time()) == 1
    assert [p.short_label for p in found.within("550MB")[0].best] == ["kv=affine:8"]


def test_nothing_to_draw_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoRecords, match="labkit run"):
        pareto(tmp_path)
    for draw in (*DRAW.values(), growth_figure):
        with pytest.raises(NoRecords, match="labkit run"):
            draw(pandas.DataFrame(columns=list(COLUMNS)))
