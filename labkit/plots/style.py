"""Style: the one look of labkit's pictures. Colours, sizes and the reproducible SVG settings, as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

# Okabe and Ito's palette: apart for every common kind of colour blindness.
BLUE = "#0072B2"
GREEN = "#009E73"
VERMILION = "#D55E00"
ORANGE = "#E69F00"
INK = "#1b1f24"
GREY = "#6b7280"
FADED = "#b3b9c2"
BAND = "#e6eef5"

VERDICT_COLOURS: Mapping[str, str] = {
    "better": GREEN,
    "worse": VERMILION,
    "equivalent": BLUE,
    "unresolved": GREY,
}

# 8.5 inches are the 816 px that a README gives a picture, so a point here is a point there.
WIDTH_IN = 8.5
TEXT_PT = 11.0
SMALL_PT = 9.5
TITLE_PT = 13.0

SETTINGS: Mapping[str, Any] = {
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "savefig.dpi": 160,
    "font.size": TEXT_PT,
    "axes.titlesize": TEXT_PT,
    "axes.labelsize": TEXT_PT,
    "xtick.labelsize": SMALL_PT,
    "ytick.labelsize": SMALL_PT,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.edgecolor": FADED,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#eceff2",
    "grid.linewidth": 0.8,
    "axes.unicode_minus": True,
    "svg.fonttype": "none",
    # A `$` in a statement is a dollar.
    "text.parse_math": False,
    "svg.hashsalt": "labkit",
}


@contextmanager
def house_style() -> Iterator[None]:
    """Within it figures are made and saved in labkit's look; afterwards the caller's settings are back."""
    import matplotlib

    settings: dict[Any, Any] = {**matplotlib.rcParamsDefault, **SETTINGS}
    settings.pop("backend", None)
    with matplotlib.rc_context(settings):
        yield
