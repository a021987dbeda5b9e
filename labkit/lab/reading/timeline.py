"""Timeline: the history of a metric as a notebook shows it. Computes nothing."""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.lab.reading import history as past
from labkit.lab.reading.series import Wanted
from labkit.store.lab_folder import find_lab

if TYPE_CHECKING:
    import pandas

COLUMNS = (
    *("label", "workload", "machine", "at", "direction", "size", "low", "high", "p_value", "weak"),
    *("changed", "before", "after"),
)


@dataclass(frozen=True, slots=True, repr=False)
class Timeline:
    """The histories of one metric, one for each arm, machine class and workload. The last line of a cell
    shows their steps."""

    metric: str
    histories: tuple[past.History, ...]

    def frame(self) -> pandas.DataFrame:
        """One row per result, as `history_frame` makes it: for pictures and questions."""
        return past.history_frame(self.histories)

    def steps(self) -> pandas.DataFrame:
        """One row per step: size (a ratio, or a difference), interval, p value and what changed."""
        import pandas

        rows = [_row(each, step) for each in self.histories for step in each.steps]
        return pandas.DataFrame(rows, columns=list(COLUMNS))

    def __repr__(self) -> str:
        steps = sum(len(each.steps) for each in self.histories)
        return f"<Timeline {self.metric}: {len(self.histories)} series, {_counted(steps, 'step')}>"

    def _repr_html_(self) -> str:
        lines = [f"<p><b>{self.metric}</b></p>"]
        for each in self.histories:
            name = f"{each.series.label}, {each.series.workload} tokens on {each.series.machine}"
            notes = "".join(f"<br>{html.escape(note)}" for note in each.notes)
            found = f"{_counted(len(each.series.counted), 'record')}, {_counted(len(each.steps), 'step')}"
            lines.append(f"<p>{html.escape(name)}: {found}{notes}</p>")
        table = self.steps().drop(columns=["before", "after"])
        return "".join(lines) + table.to_html(index=False, float_format="{:.4g}".format)


def history(
    metric: str,
    root: Path | str | None = None,
    *,
    arm: str | None = None,
    experiment: str | None = None,
    workload: str | None = None,
    machine: str | None = None,
    everything: bool = False,
    controls: bool = False,
) -> Timeline:
    """Where the level of a metric changed over the records of a lab, and what changed there.

    root: None takes the nearest folder upwards with experiments/. The rest: see `Wanted`.
    Raises RecordInvalid for an unknown metric, NoRecords where nothing fits.
    """
    root = find_lab() if root is None else Path(root)
    wanted = Wanted(arm, experiment, workload, machine, everything, controls)
    return Timeline(metric, past.history(root, metric, wanted))


def _counted(count: int, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"


def _row(each: past.History, step: past.Turn) -> dict[str, object]:
    series = {name: getattr(each.series, name) for name in ("label", "workload", "machine")}
    copied = ("at", "direction", "size", "low", "high", "p_value", "weak", "before", "after")
    changed = ", ".join(change.text() for change in step.changed)
    return {**series, **{name: getattr(step, name) for name in copied}, "changed": changed}
