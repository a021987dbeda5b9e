"""Finished: a sealed run, and how it shows itself. Computes nothing."""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.core.records import Record
from labkit.lab.reading.remarks import remarks

if TYPE_CHECKING:
    import pandas

    from labkit.plots.picture import Picture

COLUMNS = (
    "metric",
    "goal",
    "margin",
    "floor",
    "estimate",
    "low",
    "high",
    "alpha",
    "n",
    "unit",
    "p_holm",
    "verdict",
)


@dataclass(frozen=True, slots=True, repr=False)
class Finished:
    """A sealed run: the record and where it lies. The last line of a cell shows its verdicts."""

    record: Record
    path: Path

    def verdicts(self) -> pandas.DataFrame:
        """One row per axis: change for the better with its interval of 1 - alpha, margin, floor, verdict."""
        import pandas

        frame = pandas.DataFrame([{c: getattr(axis, c) for c in COLUMNS} for axis in self.record.axes])
        return frame.assign(expected=frame["metric"].map(self.record.experiment["expects"]))

    def figure(self) -> Picture:
        """The verdicts with every sample that they rest on, drawn.

        Raise NoRecords where the record lies in no lab, as one does that was kept elsewhere.
        """
        from labkit.plots.pairs import verdict_figure
        from labkit.plots.picture import Picture
        from labkit.store import query

        root, run = self.path.parents[2], self.record.run_id
        frames = (query.axes(root, run), query.pairs(root, run), query.visits(root, run))
        return Picture(verdict_figure(*frames))

    def remarks(self) -> tuple[str, ...]:
        """What there is to know beside the verdicts: looks, floor, noise, parity, predictions."""
        return remarks(self.record)

    def __repr__(self) -> str:
        verdicts = ", ".join(f"{axis.metric} {axis.verdict}" for axis in self.record.axes)
        kind = "" if self.record.kind == "experiment" else "control "
        return f"<Finished {kind}{self.record.experiment['name']}: {self.record.outcome} ({verdicts})>"

    def _repr_html_(self) -> str:
        name, outcome = (html.escape(t) for t in (self.record.experiment["name"], self.record.outcome))
        kind = "" if self.record.kind == "experiment" else " (a control)"
        quiet = "" if self.record.quiet["quiet"] else ", on a machine that was not quiet"
        resumed = f", resumed {len(self.record.resumed)}x" if self.record.resumed else ""
        where = f"<code>{html.escape(str(self.path))}</code>"
        head = f"<p><b>{name}</b>{kind}: {outcome}{quiet}{resumed}<br>{where}</p>"
        told = "".join(f"<li>{html.escape(remark)}</li>" for remark in self.remarks())
        table = self.verdicts().to_html(index=False, float_format="{:.4g}".format)
        return head + table + (f"<ul>{told}</ul>" if told else "")
