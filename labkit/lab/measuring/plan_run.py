"""Plan a run: a short pilot, then how many pairs each axis needs and how long the run takes."""

from __future__ import annotations

import html
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.bench.lease import device_lease, lease_path
from labkit.bench.statistics import MIN_UNITS
from labkit.core.errors import ExperimentInvalid
from labkit.core.events import Sink
from labkit.core.metrics import METRICS
from labkit.evals.text import load_text
from labkit.lab.deciding.recipes import resolve_arms
from labkit.lab.experiment import Experiment, ExperimentFile
from labkit.lab.measuring.axis_plan import AxisPlan, expected_pairs, plan_axis
from labkit.lab.measuring.controls import least_pairs
from labkit.lab.measuring.floor import Floor, find_floor, wants_floor
from labkit.lab.measuring.measured import Measured
from labkit.lab.measuring.pilot import Clock, Costs, Pilot
from labkit.lab.measuring.provenance import machine_class, provenance
from labkit.lab.measuring.run import as_file, fetch_models, utc_now
from labkit.lab.notebook import default_sink
from labkit.model.backend import prepare
from labkit.model.null import is_null
from labkit.plots.amounts import digits
from labkit.store.lab_folder import find_lab

if TYPE_CHECKING:
    import pandas

PILOT_LEAST = 3
COLUMNS = ("metric", "goal", "margin", "sd", "effect", "claim", "pairs", "expected", "minutes")


@dataclass(frozen=True, slots=True, repr=False)
class PlannedRun:
    """What a pilot says of a run. The last line of a cell shows it.

    design, looks, asked: what the file states; asked: its pairs. pilot_pairs: good ones of the pilot.

    expected: the mean number of pairs up to the look that decides every axis, where there are several looks
    and the effects are as the pilot saw them; None where no number of pairs decides any.
    """

    experiment: str
    file: str
    design: str
    looks: int
    asked: int
    pilot_pairs: int
    costs: Costs
    axes: tuple[AxisPlan, ...]
    expected: float | None = None

    @property
    def pairs(self) -> int | None:
        """What the most demanding axis takes; None where no number settles any."""
        return max((axis.pairs for axis in self.axes if axis.pairs is not None), default=None)

    def minutes(self, pairs: float) -> float:
        """Of a whole run of so many pairs, from its start to its record."""
        return self.costs.total_s(pairs) / 60

    def sentence(self) -> str:
        """How many pairs to run, and for how long."""
        if self.pairs is None:
            why = "No number of pairs settles these margins at the effects seen: see why, axis by axis."
            as_stated = f"The {self.asked} pairs that the file states take"
            return f"{why} {as_stated} {_about(self.minutes(self.asked))}."
        rest = "" if all(axis.pairs for axis in self.axes) else " (the axes marked - stay unresolved)"
        return (
            f"labkit run {self.file} --pairs {self.pairs}: {_about(self.minutes(self.pairs))} "
            f"in all{rest}{self._with_looks()}"
        )

    def _with_looks(self) -> str:
        if self.looks == 1 or self.expected is None:
            return ""
        took = _about(self.minutes(self.expected))
        return (
            f"; with {self.looks} looks about {self.expected:.0f} pairs and {took} "
            "where the effects are as seen"
        )

    def breakdown(self) -> str:
        """What the parts of the run take, in a line."""
        costs, pairs = self.costs, self.pairs or self.asked
        parts = [
            ("an A/A control", costs.control_s),
            ("start-up, ceilings and parity", costs.open_s),
            ("warm-up", costs.warmup_s),
            (f"{pairs} pairs at {digits(costs.pair_s, 2)} s", pairs * costs.pair_s),
            ("scoring", costs.score_s),
        ]
        return ", ".join(f"{name} {_minutes(seconds / 60)}" for name, seconds in parts if seconds)

    def frame(self) -> pandas.DataFrame:
        """One row per axis: margin, SD of a pair, effect seen, pairs, mean pairs up to its look, minutes."""
        import pandas

        return pandas.DataFrame([{c: getattr(axis, c) for c in COLUMNS} for axis in self.axes])

    def __repr__(self) -> str:
        return f"<PlannedRun {self.experiment}: {self.sentence()}>"

    def _repr_html_(self) -> str:
        lines = (self.sentence(), self.breakdown(), *(f"{axis.title}: {axis.reason}" for axis in self.axes))
        told = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
        head = f"<p><b>{html.escape(self.experiment)}</b>, a pilot of {self.pilot_pairs} pairs</p>"
        return head + self.frame().to_html(index=False, float_format="{:.4g}".format) + f"<ul>{told}</ul>"

    def to_json(self) -> dict[str, Any]:
        """Every field, with the minutes of the whole run; None where no number of pairs settles any axis."""
        total = None if self.pairs is None else self.minutes(self.pairs)
        expected = None if self.expected is None else self.minutes(self.expected)
        return {**asdict(self), "pairs": self.pairs, "minutes": total, "expected_minutes": expected}


def plan_run(
    experiment: Experiment | ExperimentFile | str | Path,
    *,
    root: str | Path | None = None,
    pilot_pairs: int = 4,
    sink: Sink | None = None,
    environ: Mapping[str, str] | None = None,
    lease: Path | None = None,
    clock: Clock = time.monotonic,
) -> PlannedRun:
    """Run `pilot_pairs` pairs of an experiment, or of the one in a file, and plan from them.

    root: the lab whose recipes count; None takes the nearest folder upwards with experiments/. sink: None
    shows bars in a notebook. Writes no record. Raises as a run does before it measures, and ExperimentInvalid
    for a pilot of fewer than 3 pairs or an experiment with no axis that visits measure.
    """
    held, sink = as_file(experiment), sink or default_sink()
    stated, place = held.experiment, Path(root) if root is not None else find_lab()
    _check(stated, pilot_pairs)
    resolved = resolve_arms(stated, place, sink).experiment
    text = load_text(stated.score.name) if stated.score is not None and stated.wants_quality() else None
    pilot = Pilot(resolved, sink, clock)
    with device_lease(f"labkit plan-run {stated.name}", lease or lease_path(), sink=sink):
        fetch_models(resolved, sink)
        costs = pilot.run(pilot_pairs, text, os.environ if environ is None else environ)
    floor = _known_floor(resolved, place, pilot.measured)
    if floor is None and _measures_floor(resolved):
        costs = costs.with_control(least_pairs(resolved))
    return plan(resolved, pilot.measured, costs, "FILE" if held.path == Path() else str(held.path), floor)


def plan(
    experiment: Experiment,
    measured: Measured,
    costs: Costs,
    file: str = "FILE",
    floor: Floor | None = None,
) -> PlannedRun:
    """The pairs each visit axis needs; score and artifact axes need no pairs and are left out.

    floor: the A/A control that the run will rest on, None where none is known yet.
    """
    pairs = measured.ok_pairs()
    axes = tuple(plan_axis(experiment, measured, pairs, metric, floor) for metric in _visit_axes(experiment))
    return PlannedRun(
        experiment=experiment.name,
        file=file,
        design=experiment.design,
        looks=experiment.looks,
        asked=experiment.pairs,
        pilot_pairs=len(pairs),
        costs=costs,
        axes=tuple(replace(axis, minutes=_pair_minutes(axis, costs)) for axis in axes),
        expected=expected_pairs(axes, experiment.looks, len(experiment.hypothesis.tested())),
    )


def _known_floor(experiment: Experiment, place: Path, measured: Measured) -> Floor | None:
    """The A/A control that a run would rest on; None where it would measure one first, or do without."""
    if not wants_floor(experiment, MIN_UNITS):
        return None
    opened, arm = measured.opened["baseline"]["artifact"], experiment.baseline
    if not is_null(arm.model):
        arm = replace(arm, model=opened["name"])
    machine, packages = machine_class(prepare())["slug"], provenance(place)["packages"]
    fingerprint = opened["fingerprint"]
    found = find_floor(place, experiment, arm.hash(), machine, packages, utc_now(), fingerprint)
    return found if found and not found.stale else None


def _measures_floor(experiment: Experiment) -> bool:
    """Whether a run measures an A/A control first where none counts: not of a null model."""
    return wants_floor(experiment, MIN_UNITS) and not is_null(experiment.baseline.model)


def _check(experiment: Experiment, pilot_pairs: int) -> None:
    replace(experiment, pairs=pilot_pairs, looks=1).validate()
    if pilot_pairs < PILOT_LEAST:
        need = f"a pilot of at least {PILOT_LEAST} pairs is needed to see how much pairs vary"
        raise ExperimentInvalid(need, got=pilot_pairs)
    if not _visit_axes(experiment):
        raise ExperimentInvalid(
            "an axis that visits measure is needed: on no other does the number of pairs bear",
            got=", ".join(experiment.hypothesis.margins()),
            options=[name for name, metric in METRICS.items() if metric.source == "visit"],
        )


def _visit_axes(experiment: Experiment) -> list[str]:
    return [m for m in experiment.hypothesis.margins() if METRICS[m].source == "visit"]


def _pair_minutes(axis: AxisPlan, costs: Costs) -> float | None:
    return None if axis.pairs is None else axis.pairs * costs.pair_s / 60


def _minutes(minutes: float) -> str:
    return "under 0.1 minutes" if minutes < 0.1 else f"{digits(minutes, 2)} minutes"


def _about(minutes: float) -> str:
    return _minutes(minutes) if minutes < 0.1 else f"about {_minutes(minutes)}"
