"""Pilot: a few pairs of an experiment, made to see how much they vary and what each part of a run takes.

Knows processes, visits and clocks; not how many pairs a margin needs. Its samples are not used again.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from labkit.bench.pairs import ROLES
from labkit.core.events import Progress, Sink
from labkit.evals.text import Text
from labkit.lab.experiment import Experiment, ScoreText
from labkit.lab.measuring.measure import Bench
from labkit.lab.measuring.measured import Measured
from labkit.lab.measuring.quality import Scoring, check_comparable, score_windows

# The first window of a process is a slow one, so one more is needed to see what the rest will take.
PILOT_WINDOWS = 2
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Costs:
    """What the parts of a run take, by the wall clock. open_s: both arms up to the first visit, with their
    ceilings and parity. warmup_s: a visit of each arm. pair_s: a pair, with whatever was made again in it.
    score_s: all windows of an experiment that claims quality. control_s: the A/A control that comes first
    where none counts yet."""

    open_s: float
    warmup_s: float
    pair_s: float
    score_s: float = 0.0
    control_s: float = 0.0

    def total_s(self, pairs: float) -> float:
        """Of a run of so many pairs."""
        return self.control_s + self.open_s + self.warmup_s + pairs * self.pair_s + self.score_s

    def with_control(self, pairs: int) -> Costs:
        """The same with a control of so many pairs, whose parts are taken to cost what the run's do."""
        return replace(self, control_s=self.open_s + self.warmup_s + pairs * self.pair_s)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Pilot:
    """The visits of a pilot, and its costs once it has run."""

    def __init__(self, experiment: Experiment, sink: Sink, clock: Clock = time.monotonic) -> None:
        self.measured = Measured()
        self._experiment, self._sink, self._clock = experiment, sink, clock
        self._spent: dict[str, float] = {}

    def run(self, pairs: int, text: Text | None, environ: Mapping[str, str]) -> Costs:
        """Do all that a run does, with `pairs` pairs and at most two windows. Raises as a run does."""
        bench = Bench(self._experiment, self.measured, self._sink, environ, clock=self._clock)
        with bench:
            with self._timed("open"):
                self._open(bench)
            with self._timed("visits"):
                bench.run(pairs)
            spec = self._experiment.score
            score_s = self._score(bench, text, spec) if text is not None and spec is not None else 0.0
        warmup_s = self._warmup_s()
        pair_s = (self._spent["visits"] - warmup_s) / max(1, len(self.measured.ok_pairs()))
        return Costs(self._spent["open"], warmup_s, pair_s, score_s)

    def _open(self, bench: Bench) -> None:
        bench.open()
        for done, role in enumerate(ROLES):
            self._sink(Progress("ceilings", done, 2, bench.arm(role).label()))
            bench.ask(role, "roofline")
            bench.ask(role, "parity")
        self._sink(Progress("ceilings", 2, 2))

    def _warmup_s(self) -> float:
        """Up to the first visit of a pair; a worker that died later warms up within a pair."""
        began = self.measured.visits[0].started_s
        return min(v.started_s for v in self.measured.visits if v.status != "warmup") - began

    def _score(self, bench: Bench, text: Text, spec: ScoreText) -> float:
        """What all windows would take, from the first two of them."""
        check_comparable(self.measured.opened, spec)
        with self._timed("text"):
            windows = score_windows(text, spec, bench.client("baseline"), self.measured.opened["baseline"])
        few = replace(windows, tokens=windows.tokens[:PILOT_WINDOWS])
        batch = 1 if self._experiment.design == "process-pair" else len(few)
        with tempfile.TemporaryDirectory(prefix="labkit-pilot-") as scratch:
            scoring = Scoring(bench.client, few, Path(scratch), batch)
            ends = [self._clock(), *(self._clock() for _ in scoring.scores(self._sink))]
        each = [end - start for start, end in pairwise(ends)]
        return self._spent["text"] + each[0] + each[-1] * (len(windows) - 1)

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        began = self._clock()
        yield
        self._spent[part] = self._clock() - began
