"""Migrations: records of older schemas as today's. Pure functions from JSON data to JSON data, in a chain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from labkit.core.errors import RecordInvalid

SCHEMA = 3
Data = dict[str, Any]


def migrate(data: Data) -> Data:
    """A record's data in today's schema; `data` itself stays as it is.

    Raise RecordInvalid for a record of a newer labkit, and for a schema that no labkit has written.
    """
    schema = data.get("schema") if isinstance(data, dict) else None
    if not isinstance(schema, int) or isinstance(schema, bool) or schema not in {*MIGRATIONS, SCHEMA}:
        raise _unknown(data, schema)
    for version in range(schema, SCHEMA):
        data = {**MIGRATIONS[version](data), "schema": version + 1}
    return data


def _from_1(data: Data) -> Data:
    """Schema 2 knows the journal that a run was written to as it went, and how often it was resumed."""
    return {**data, "journal_id": "", "resumed": []}


def _from_2(data: Data) -> Data:
    """Schema 3 knows the design, looks, the A/A floor, noise over the run, parity and predictions.

    Until then every run was two processes and one look at the end, and nothing of the rest was measured.
    """
    experiment, axes = data.get("experiment"), data.get("axes")
    if isinstance(experiment, dict):
        data = {**data, "experiment": {"design": "process-pair", "looks": 1, **experiment}}
    if isinstance(axes, list):
        known = [{"alpha": 0.05, "floor": 0.0, **a} if isinstance(a, dict) else a for a in axes]
        data = {**data, "axes": known}
    return {**data, "looks": [], "floor": {}, "noise": {}, "parity": {}, "prediction": {}}


MIGRATIONS: Mapping[int, Callable[[Data], Data]] = {1: _from_1, 2: _from_2}


def _unknown(data: object, schema: object) -> RecordInvalid:
    known = ", ".join(map(str, sorted({*MIGRATIONS, SCHEMA})))
    need = f"a record of schema {known} was needed"
    if not isinstance(data, dict):
        return RecordInvalid(need, got=type(data).__name__)
    if isinstance(schema, int) and schema > SCHEMA:
        step = "update labkit to read it"
        return RecordInvalid(f"{need}; this one was made by a newer labkit", got=schema, next_step=step)
    return RecordInvalid(need, got="none" if schema is None else repr(schema))
