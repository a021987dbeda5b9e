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
from tests.unit.sample_records import full_record

GOLDEN = Path(__file__).parent / "golden"
ROOT = Path(__file__).parents[2]
# What schema 3 brought.
NEW = ("looks", "floor", "noise", "parity", "prediction")


def golden(schema: int) -> dict[str, Any]:
    return json.loads((GOLDEN / f"record_schema_{schema}.json").read_text())


@pytest.mark.parametrize("schema", sorted(MIGRATIONS))
def test_a_record_of_an_older_schema_becomes_the_golden_one_of_the_next(schema: int) -> None:
    before = golden(schema)
    assert {**MIGRATIONS[schema](before), "schema": schema + 1} == golden(schema + 1)
    assert migrate(before) == golden(SCHEMA)
    assert before == golden(schema), "a migration leaves what it is given as it is"
    assert json.loads(json.dumps(Record.from_json(before).to_json())) == golden(SCHEMA)


def test_a_migration_adds_no_design_over_one_that_is_stated() -> None:
    """A record of schema 2 that says what it was (an early build's) is believed."""
    before = golden(2)
    before["experiment"]["looks"] = 2
    before["axes"][0]["alpha"] = 0.03
    after = migrate(before)
    assert (after["experiment"]["looks"], after["experiment"]["design"]) == (2, "process-pair")
    assert [axis["alpha"] for axis in after["axes"]] == [0.03, 0.05, 0.05]


def test_every_field_of_todays_schema_comes_back_from_a_file_as_it_was() -> None:
    record = full_record()
    text = json.dumps(record.to_json())
    assert Record.from_json(json.loads(text)) == record
    assert [name for name in NEW if not getattr(record, name)] == [], (
        "the record leaves nothing at its default"
    )


@pytest.mark.parametrize("bad", [None, 3, [3], "once"])
@pytest.mark.parametrize("field", ["axes", "experiment"])
def test_a_misshapen_part_of_an_old_record_is_a_damaged_record(field: str, bad: object) -> None:
    """Migrating it must not fail with anything but RecordInvalid, and that only where it must."""
    data = {**golden(2), field: bad}
    if field == "experiment":
        assert Record.from_json(data).experiment == bad, "what is in the table is for its reader to judge"
    else:
        with pytest.raises(RecordInvalid, match="a complete record was needed"):
            Record.from_json(data)


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
        (0, "schema 1, 2, 3 was needed\n  got:     0"),
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


@pytest.mark.parametrize("bad", [None, 3, [3], "once"])
@pytest.mark.parametrize("field", ["resumed", "looks"])
def test_resumptions_and_looks_of_another_shape_are_refused(field: str, bad: object) -> None:
    with pytest.raises(RecordInvalid, match="a complete record was needed"):
        Record.from_json({**golden(SCHEMA), field: bad})


def test_the_records_of_this_checkout_load_whatever_their_schema() -> None:
    paths = record_files(ROOT)
    if not paths:
        pytest.skip("no records lie in this checkout")
    for path in paths:
        assert read_record(path).schema == SCHEMA
