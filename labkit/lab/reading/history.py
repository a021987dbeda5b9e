"""History: the steps in the results of an arm over time, each with what changed there."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from labkit.core.metrics import METRICS, Metric
from labkit.frontier.alone import alone
from labkit.frontier.steps import ALPHA, MAX_RECORDS, Segment, Step, find_steps
from labkit.lab.reading.circumstances import SCORED, Change, changes
from labkit.lab.reading.series import Result, Series, Wanted, series
from labkit.store.read import read_record

if TYPE_CHECKING:
    import pandas

Direction = Literal["improvement", "regression"]
# Fewer results cannot hold a step: two are needed on each side.
LEAST = 4
LEAST_ALPHA = 0.002
# Half a 95% interval is so many standard errors; of few visits it is more, which is on the safe side.
_REACH = 1.96


@dataclass(frozen=True, slots=True)
class Level:
    """Results first .. last (run ids) about one level, with its 95% interval, in the metric's unit."""

    first: str
    last: str
    results: int
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Turn:
    """A step between two records. before, after: run ids. at: when the first record after it began.

    size, low, high: the new level as a ratio to the old one, for an absolute metric the difference; with its
    95% interval. p_value, p_correlated, weak, test: see `labkit.frontier.steps.Step`. changed: what differs
    between the two records; nothing where it must have been the machine.
    """

    before: str
    after: str
    at: str
    direction: Direction
    size: float
    low: float
    high: float
    p_value: float
    p_correlated: float
    weak: bool
    test: str
    changed: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class History:
    """A series with its levels and steps. spread: SD of a result about its level, as a share of it (for an
    absolute metric in its unit). correlation: lag-1, between neighbouring results. alpha: the chance of any
    false step that this series was granted. alone: the run ids that neither neighbour bears out: in no level.
    notes: what a reader must know before quoting.
    """

    series: Series
    levels: tuple[Level, ...]
    steps: tuple[Turn, ...]
    spread: float
    correlation: float
    alpha: float
    alone: tuple[str, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def history(root: Path, metric: str, wanted: Wanted | None = None) -> tuple[History, ...]:
    """The history of a metric: of each arm, machine class and workload by itself.

    The series of one answer share the chance of 5% of any false step; beyond 25 each is granted 0.2%, since
    simulated p values resolve no less. Raises RecordInvalid for an unknown metric, NoRecords where nothing
    fits.
    """
    found = series(root, metric, wanted or Wanted())
    long = sum(len(each.counted) >= LEAST for each in found)
    return tuple(_history(root, each, max(ALPHA / max(1, long), LEAST_ALPHA)) for each in found)


def history_frame(histories: Sequence[History]) -> pandas.DataFrame:
    """One row per result, for a picture: its value and interval, its level, and the step that begins there.

    series: the number of the history. counted, quiet, alone: bool. level: number of the level in its series,
    -1 for what does not count, with level_value. step, direction: at the first result of a step, in words;
    else empty.
    """
    import pandas

    rows = [row for number, each in enumerate(histories) for row in _frame_rows(number, each)]
    return pandas.DataFrame(rows)


def _history(root: Path, each: Series, alpha: float) -> History:
    metric, newest = METRICS[each.metric], each.counted[-MAX_RECORDS:]
    numbers = [(_plain(metric, result.value), _error(metric, result)) for result in newest]
    apart = alone([value for value, _ in numbers], [error for _, error in numbers])
    kept = [place for place in range(len(newest)) if place not in apart]
    if not kept:
        return History(each, (), (), 0.0, 0.0, alpha, (), tuple(_notes(each, (), outside=False)))
    used, (values, errors) = [newest[i] for i in kept], zip(*(numbers[i] for i in kept), strict=True)
    found = find_steps(values, errors, alpha)
    by_themselves = tuple(newest[place].run_id for place in apart)
    return History(
        series=each,
        levels=tuple(_level(metric, used, segment) for segment in found.segments),
        steps=tuple(_turn(root, metric, used, step) for step in found.steps),
        spread=found.spread,
        correlation=found.correlation,
        alpha=alpha,
        alone=by_themselves,
        notes=tuple(_notes(each, by_themselves, found.outside)),
    )


def _plain(metric: Metric, value: float) -> float:
    return math.log(value) if metric.scale == "ratio" else value


def _shown(metric: Metric, value: float) -> float:
    return math.exp(value) if metric.scale == "ratio" else value


def _error(metric: Metric, result: Result) -> float:
    half = (result.high - result.low) / 2
    return half / _REACH / (result.value if metric.scale == "ratio" else 1.0)


def _level(metric: Metric, counted: Sequence[Result], segment: Segment) -> Level:
    inside = counted[segment.start : segment.stop]
    ends = (_shown(metric, value) for value in (segment.level, segment.low, segment.high))
    return Level(inside[0].run_id, inside[-1].run_id, len(inside), *ends)


def _turn(root: Path, metric: Metric, counted: Sequence[Result], step: Step) -> Turn:
    before, after = counted[step.at - 1], counted[step.at]
    size, low, high = (_shown(metric, value) for value in (step.size, step.low, step.high))
    good = (step.size > 0) == (metric.better == "higher")
    return Turn(
        before=before.run_id,
        after=after.run_id,
        at=after.started_at,
        direction="improvement" if good else "regression",
        size=size,
        low=low,
        high=high,
        p_value=step.p_value,
        p_correlated=step.p_correlated,
        weak=step.weak,
        test=step.test,
        changed=_changed(root, metric, before, after),
    )


def _changed(root: Path, metric: Metric, before: Result, after: Result) -> tuple[Change, ...]:
    old, new = (read_record(root / result.path) for result in (before, after))
    apart = () if metric.source == "score" else SCORED
    return tuple(c for c in changes(old, new, before.role, after.role) if c.kind not in apart)


def _notes(each: Series, by_themselves: Sequence[str], outside: bool) -> Iterator[str]:
    yield from (f"{_records(count)} left out: {why}" for why, count in _left_out(each).items())
    counted = len(each.counted)
    newest = each.counted[-1].run_id if counted else ""
    if counted < LEAST:
        yield f"{_records(counted)}: a step needs at least 2 on each side"
    elif newest in by_themselves or outside:
        yield f"the newest record lies outside: one record, not yet a step: {newest}"
    middle = [run_id for run_id in by_themselves if run_id != newest]
    if middle:
        yield f"{_records(len(middle))} that neither neighbour bears out, in no level: {', '.join(middle)}"
    if counted > MAX_RECORDS:
        yield f"steps are looked for among the newest {MAX_RECORDS} records"


def _records(count: int) -> str:
    return "1 record" if count == 1 else f"{count} records"


def _left_out(each: Series) -> dict[str, int]:
    found: dict[str, int] = {}
    for result in each.results:
        if result.left_out:
            found[result.left_out] = found.get(result.left_out, 0) + 1
    return found


def _frame_rows(number: int, each: History) -> list[dict[str, Any]]:
    copied = ("metric", "machine", "label", "workload")
    steps = {step.after: step for step in each.steps}
    shown, level = {name: getattr(each.series, name) for name in copied}, 0
    rows = []
    counted = {result.run_id for result in each.series.counted[-MAX_RECORDS:]} - {*each.alone}
    for result in each.series.results:
        inside = result.run_id in counted
        level += inside and result.run_id in steps
        step = steps.get(result.run_id) if inside else None
        rows.append(
            {
                "series": number,
                **shown,
                **{k: getattr(result, k) for k in ("run_id", "started_at", "value", "low", "high", "quiet")},
                "counted": inside,
                "alone": result.run_id in each.alone,
                "level": level if inside else -1,
                "level_value": each.levels[level].value if inside else float("nan"),
                "step": step_words(each.series.metric, step) if step else "",
                "direction": step.direction if step else "",
            }
        )
    return rows


def step_words(metric: str, step: Turn) -> str:
    """`0.891x (regression): mlx 0.32.3 -> 0.32.4, code a1b2 -> c3d4`."""
    size = f"{step.size:.3g}x" if METRICS[metric].scale == "ratio" else f"{step.size:+.2g}"
    what = ", ".join(change.text() for change in step.changed if change.kind != "git")
    return f"{size} ({step.direction}): {what or 'nothing that is recorded changed'}"
