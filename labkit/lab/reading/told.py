"""Told: whether what a record tells beside verdicts has its shape: looks, floor, noise, predictions.

Knows fields and their types; not whether they follow from the samples. Parity and quality are in
`told_output`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from labkit.bench.pairs import ROLES
from labkit.bench.verdict import ALPHA
from labkit.core.metrics import METRICS
from labkit.core.records import Record
from labkit.lab.problems import VERDICTS
from labkit.lab.reading.told_output import output_problems
from labkit.plan.values import is_count, is_number, is_whole, shown

# What a floor says of a metric; see `labkit.lab.measuring.floor`.
_FLOOR_PARTS = ("estimate", "low", "high", "floor")


def told_problems(record: Record) -> Iterator[str]:
    """Every field of these that cannot be read, as `field: what is needed, got what`."""
    yield from _looks(record.looks)
    for name in ("floor", "noise", "parity", "prediction"):
        value = getattr(record, name)
        if not isinstance(value, dict):
            yield f"{name}: a table is needed, got {shown(value)}"
            return
    yield from _floor(record.floor)
    for name in ("noise", "parity"):
        options = METRICS if name == "noise" else ROLES
        yield from _tables(name, getattr(record, name), tuple(options))
    yield from _noise(record.noise)
    yield from _prediction(record.prediction)
    yield from output_problems(record)


def _looks(looks: tuple[dict[str, Any], ...]) -> Iterator[str]:
    before = 0
    for number, look in enumerate(looks):
        pairs, alpha, verdicts = (look.get(name) for name in ("pairs", "alpha", "verdicts"))
        due, stopped = look.get("planned"), look.get("stopped")
        where = f"looks[{number}]"
        if not is_whole(pairs) or pairs <= before:
            yield f"{where}.pairs: more pairs than before ({before}) are needed, got {shown(pairs)}"
            return
        if not is_number(alpha) or not 0 <= float(alpha or 0) <= ALPHA:
            yield f"{where}.alpha: a level from 0 to {ALPHA:g} is needed, got {shown(alpha)}"
        if not _are_verdicts(verdicts):
            yield f"{where}.verdicts: metrics with {', '.join(VERDICTS)} are needed, got {shown(verdicts)}"
        if not is_count(due):
            yield f"{where}.planned: a whole number of at least 1 is needed, got {shown(due)}"
        if not isinstance(stopped, bool) or (stopped and number + 1 < len(looks)):
            yield f"{where}.stopped: true for the last alone is needed, got {shown(stopped)}"
        before = pairs


def _are_verdicts(verdicts: object) -> bool:
    if not isinstance(verdicts, dict) or not verdicts.keys() <= METRICS.keys():
        return False
    return all(isinstance(v, str) and v in VERDICTS for v in verdicts.values())


def _floor(floor: Mapping[str, Any]) -> Iterator[str]:
    if not floor:
        return
    for name in ("run_id", "started_at"):
        if not isinstance(floor.get(name), str):
            yield f"floor.{name}: a text is needed, got {shown(floor.get(name))}"
    if not is_whole(floor.get("pairs")) or floor["pairs"] < 1:
        yield f"floor.pairs: a whole number of at least 1 is needed, got {shown(floor.get('pairs'))}"
    metrics = floor.get("metrics")
    if not isinstance(metrics, dict):
        yield f"floor.metrics: a table is needed, got {shown(metrics)}"
        return
    yield from _tables("floor.metrics", metrics, tuple(METRICS))
    for metric, found in metrics.items():
        bad = [p for p in _FLOOR_PARTS if isinstance(found, dict) and not is_number(found.get(p))]
        if bad:
            got = shown(found.get(bad[0]))
            yield f"floor.metrics.{metric}.{bad[0]}: a finite number is needed, got {got}"
        elif isinstance(found, dict) and found["floor"] < 0:
            yield f"floor.metrics.{metric}.floor: at least 0 is needed, got {found['floor']:g}"
        elif isinstance(found, dict) and not found["low"] <= found["estimate"] <= found["high"]:
            yield f"floor.metrics.{metric}: an estimate between low and high is needed, got {shown(found)}"


def _noise(noise: Mapping[str, Any]) -> Iterator[str]:
    """What is known of the samples of a metric: numbers, where they can be had, and phrases."""
    for metric, found in noise.items():
        for name, value in found.items() if isinstance(found, dict) else ():
            needed = _needed_of_noise(name, value)
            if needed:
                yield f"noise.{metric}.{name}: {needed} is needed, got {shown(value)}"


def _needed_of_noise(name: str, value: object) -> str:
    """What a field should be that it is not; empty where it is."""
    if name == "phrases":
        texts = isinstance(value, list) and all(isinstance(text, str) for text in value)
        return "" if texts else "a list of texts"
    if name == "ratio":
        return "" if isinstance(value, bool) else "true or false"
    return "" if value is None or is_number(value) else "a finite number"


def _prediction(prediction: Mapping[str, Any]) -> Iterator[str]:
    yield from _tables("prediction", prediction, ROLES)
    for role, metrics in prediction.items():
        for metric, value in metrics.items() if isinstance(metrics, dict) else ():
            if not is_number(value):
                yield f"prediction.{role}.{metric}: a finite number is needed, got {shown(value)}"


def _tables(name: str, table: Mapping[str, Any], options: tuple[str, ...]) -> Iterator[str]:
    for key, value in table.items():
        if key not in options:
            yield f"{name}: one of {', '.join(options)} is needed, got {shown(key)}"
        elif not isinstance(value, dict):
            yield f"{name}.{key}: a table is needed, got {shown(value)}"
