"""Old records as today's: the chain of migrations, and what no migration knows, by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from labkit.core import migrations
from labkit.core.errors import RecordInvalid
from labkit.core.migrations import MIGRATIONS, SCHEMA, migrate
from labkit.core.records import Record
from labkit.store.read import read_record, record_files

GOLDEN = Path(__file__).parent / "golden"
ROOT = Path(__file__).parents[2]


def golden(schema: int) -> dict[str, Any]:
    return json.loads((GOLDEN / f"record_schema_{schema}.json").read_text())


def test_a_record_of_schema_1_becomes_the_golden_one_of_schema_2() -> None:
    before = golden(1)
    assert migrate(before) == golden(2)
    assert before == golden(1), "a migration leaves what it is given as it is"
    assert json.loads(json.dumps(Record.from_json(before).to_json())) == golden(2)


def test_every_schema_before_todays_has_its_migration() -> None:
    assert sorted(MIGRATIONS) == list(range(1, SCHEMA))
    assert golden(SCHEMA)["schema"] == SCHEMA == Record.from_json(golden(1)).schema


def test_migrations_are_a_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = {1: lambda d: {**d, "path": [*d["path"], 1]}, 2: lambda d: {**d, "path": [*d["path"], 2]}}
    monkeypatch.setattr(migrations, "MIGRATIONS", steps)
    monkeypatch.setattr(migrations, "SCHEMA", 3)
    assert migrate({"schema": 1, "path": []}) == {"schema": 3, "path": [1, 2]}
    assert migrate({"schema": 2, "path": []}) == {"schema": 3, "path": [2]}
    assert migrate({"schema": 3, "path": []}) == {"schema": 3, "path": []}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (SCHEMA + 1, rf"(?s)made by a newer labkit.*got:     {SCHEMA + 1}.*update labkit"),
        (0, "schema 1, 2 was needed\n  got:     0"),
        (-1, "got:     -1"),
        ("1", "got:     '1'"),
        (1.0, "got:     1.0"),
        (True, "got:     True"),
        (None, "got:     none"),
    ],
)
def test_a_schema_that_no_labkit_wrote_is_refused_by_name(schema: object, message: str) -> None:
    with pytest.raises(RecordInvalid, match=message):
        Record.from_json({**golden(1), "schema": schema})


def test_a_record_without_a_schema_or_that_is_none_is_refused() -> None:
    data = golden(1)
    del data["schema"]
    with pytest.raises(RecordInvalid, match="got:     none"):
        Record.from_json(data)
    for bad in ([], "record", None):
        with pytest.raises(RecordInvalid, match=f"got:     {type(bad).__name__}"):
            Record.from_json(bad)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("resumed", [None, 3, [3], "once"])
def test_resumptions_of_another_shape_are_refused(resumed: object) -> None:
    with pytest.raises(RecordInvalid, match="a complete record was needed"):
        Record.from_json({**golden(2), "resumed": resumed})


def test_the_records_of_this_checkout_load_whatever_their_schema() -> None:
    paths = record_files(ROOT)
    if not paths:
        pytest.skip("no records lie in this checkout")
    for path in paths:
        assert read_record(path).schema == SCHEMA
