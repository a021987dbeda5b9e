"""Batch: many record files as Arrow tables, one per table of the index. Opens no database."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

from labkit.core.errors import RecordInvalid
from labkit.core.records import Record
from labkit.store.files import shown
from labkit.store.read import Damaged, check_inside, one_line, read_record
from labkit.store.rows import UNFIT, Row, Rows, raw_rows, record_rows
from labkit.store.schema import RECORD_TABLES, TABLES

if TYPE_CHECKING:
    import pyarrow

BATCH_TABLES = (*RECORD_TABLES, "damaged")
Batch = dict[str, "pyarrow.Table"]

# What needs no look at the single value; anything else is for `record_rows` to judge.
_PLAIN: Mapping[str, frozenset[type]] = {
    "VARCHAR": frozenset({str, NoneType}),
    "BIGINT": frozenset({int, NoneType}),
    "DOUBLE": frozenset({float, int, NoneType}),
    "BOOLEAN": frozenset({bool, NoneType}),
    "VARCHAR[]": frozenset({list, tuple, NoneType}),
}


class _NotPlain(Exception):
    """A column that holds something to look at value by value."""


def read_batch(root: Path, paths: Iterable[str]) -> Batch:
    """The rows of the files at `paths` (below the lab root) by table; the damaged ones as rows of `damaged`.

    A file that has vanished since it was listed counts as damaged, until a refresh finds it gone.
    """
    records: list[tuple[str, Record]] = []
    damaged: list[Row] = []
    start = os.path.join(root, "")  # noqa: PTH118 - joined a hundred thousand times
    for path in paths:
        try:
            check_inside(start + path, root)
            records.append((path, read_record(start + path)))
        except RecordInvalid as error:
            damaged.append(damaged_row(Damaged(path, one_line(error))))
    try:
        tables = _all_at_once(records)
    except (_NotPlain, *UNFIT):
        tables = _one_by_one(records, damaged)
    return {**tables, "damaged": arrow_table("damaged", damaged)}


def damaged_row(bad: Damaged) -> Row:
    """A row of the table `damaged`."""
    return shown(bad.path), shown(bad.reason)


def arrow_table(name: str, rows: Sequence[Row]) -> pyarrow.Table:
    """Rows of a table of the index, in the order of its columns and of their types, as Arrow."""
    import pyarrow

    types = _arrow_types()
    schema = pyarrow.schema([(column, types[kind]) for column, kind in TABLES[name].items()])
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pyarrow.table(
        [pyarrow.array(values, field.type) for values, field in zip(columns, schema, strict=True)],
        schema=schema,
    )


def _all_at_once(records: Sequence[tuple[str, Record]]) -> Batch:
    """The tables with whole columns checked. Raise _NotPlain or one of UNFIT where a value needs a look."""
    rows = _joined(raw_rows(record, path) for path, record in records)
    for name in RECORD_TABLES:
        for values, kind in zip(zip(*rows[name], strict=True), TABLES[name].values(), strict=False):
            _check_plain(values, kind)
    tables = {name: arrow_table(name, rows[name]) for name in RECORD_TABLES}
    for name, table in tables.items():
        _check_finite(name, table)
    return tables


def _one_by_one(records: Sequence[tuple[str, Record]], damaged: list[Row]) -> Batch:
    """The tables of the records that have the right values; the others are added to `damaged`."""
    found: list[Rows] = []
    for path, record in records:
        try:
            found.append(record_rows(record, path))
        except RecordInvalid as error:
            damaged.append(damaged_row(Damaged(path, one_line(error))))
    rows = _joined(found)
    return {name: arrow_table(name, rows[name]) for name in RECORD_TABLES}


def _joined(several: Iterable[Rows]) -> Rows:
    rows: Rows = {name: [] for name in RECORD_TABLES}
    for found in several:
        for name, more in found.items():
            rows[name].extend(more)
    return rows


def _check_plain(values: Sequence[Any], kind: str) -> None:
    listed = kind.endswith("]")
    if not _PLAIN[kind].issuperset(map(type, values)):
        raise _NotPlain
    if listed and not {str}.issuperset(map(type, chain.from_iterable(filter(None, values)))):
        raise _NotPlain


def _check_finite(name: str, table: pyarrow.Table) -> None:
    from pyarrow import compute

    for column in (column for column, kind in TABLES[name].items() if kind == "DOUBLE"):
        finite = compute.call_function("is_finite", [table[column]])
        if compute.call_function("all", [finite]).as_py() is False:
            raise _NotPlain


def _arrow_types() -> Mapping[str, pyarrow.DataType]:
    import pyarrow

    return {
        "VARCHAR": pyarrow.string(),
        "BIGINT": pyarrow.int64(),
        "DOUBLE": pyarrow.float64(),
        "BOOLEAN": pyarrow.bool_(),
        "VARCHAR[]": pyarrow.list_(pyarrow.string()),
    }
