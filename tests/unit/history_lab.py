"""A lab whose records are one arm's over many days, at levels that a test states."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from labkit.core.records import Record
from labkit.store.write import write_record
from tests.unit.sample_records import KV8, Shape, from_elsewhere, sample_record

START = datetime(2026, 11, 1, 10, 15, tzinfo=UTC)


def day(number: int) -> str:
    """When the record of a day began."""
    return (START + timedelta(days=number)).strftime("%Y-%m-%dT%H:%M:%SZ")


def at_level(decode_tps: float, number: int, shape: Shape = KV8, **provenance: object) -> Record:
    """The record of a day: both arms decode at this rate and 0.82 of it, give or take 1% between visits."""
    values = {**shape.values, "decode_tps": (decode_tps, 0.82 * decode_tps)}
    started = day(number)
    run_id = f"{started[:10].replace('-', '')}T101500Z-{shape.name}-{number:06x}"
    made = sample_record(replace(shape, values=values), run_id, started, noise=0.01)
    return from_elsewhere(made, **provenance)


def noisy(levels: Sequence[float], sd: float = 0.01, seed: int = 2) -> list[float]:
    """The levels with what runs differ by."""
    source = random.Random(seed)
    return [level * math.exp(source.gauss(0, sd)) for level in levels]


def write_all(root: Path, records: Sequence[Record]) -> Path:
    """A lab of these records."""
    (root / "experiments").mkdir(exist_ok=True)
    for record in records:
        write_record(record, root)
    return root


def stepped_lab(root: Path, before: int = 6, after: int = 6, ratio: float = 0.85) -> Path:
    """One step down, where the code and mlx changed."""
    rates = noisy([17.0] * before + [17.0 * ratio] * after)
    old = {"code_hash": "a1" * 8, "git_revision": "1" * 40, "packages": {"mlx": "0.32.3", "numpy": "2.4.6"}}
    new = {"code_hash": "b2" * 8, "git_revision": "2" * 40, "packages": {"mlx": "0.32.4", "numpy": "2.4.6"}}
    sources = [old] * before + [new] * after
    return write_all(root, [at_level(r, i, **s) for i, (r, s) in enumerate(zip(rates, sources, strict=True))])
