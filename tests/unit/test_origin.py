"""labkit.json: what is believed of it, and of whose."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from labkit.model.artifact import measure
from labkit.model.origin import name_of, read_entries, read_origin, terms_of
from tests.numerics.tiny_directory import write_directory
from tests.unit.command_line import labkit

OWN = {"labkit_version": "1", "name": "own", "family": "kin", "source": {"kind": "gguf", "terms": "T"}}


def write(folder: Path, entries: Any) -> Path:
    directory = write_directory(folder)
    (directory / "labkit.json").write_text(json.dumps(entries))
    return directory


def test_what_labkit_writes_is_believed(tmp_path: Path) -> None:
    directory = write(tmp_path / "m", OWN)
    assert read_origin(directory) == OWN
    assert terms_of(read_origin(directory)) == "T"
    assert (measure(directory).name, measure(directory).family) == ("own", "kin")


@pytest.mark.parametrize("folder", ["m", "models--org--m/snapshots/c0ffee"])
def test_anothers_names_are_not_believed(tmp_path: Path, folder: str) -> None:
    claimed = {**OWN, "name": "smollm2", "family": "smollm2-135m-instruct", "keep_quantized": True}
    if folder == "m":  # not labkit's; that of a snapshot may even say so
        claimed.pop("labkit_version")
    directory = write(tmp_path / folder, {**claimed, "fingerprint": {"value": "0" * 32}})
    assert read_origin(directory) == {"fingerprint": {"value": "0" * 32}}
    artifact = measure(directory)
    assert (artifact.name, artifact.family) == ("m" if folder == "m" else "org/m", "m")
    assert artifact.fingerprint != "0" * 32
    assert name_of(directory) == artifact.name


@pytest.mark.parametrize(
    "odd",
    [
        {"source": "x"},
        {"source": {"terms": ["a"]}},
        {"family": 5},
        {"name": ["a"]},
        {"name": "two\nlines"},
        {"name": ""},
        {"name": "x" * 5000},
        {"importer": True},
        {"fingerprint": []},
        {"keep_quantized": "yes"},
        [],
        5,
    ],
)
def test_entries_of_another_type_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: Any
) -> None:
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "home"))
    entries = {"labkit_version": "1", **odd} if isinstance(odd, dict) else odd
    directory = write(tmp_path / "m", entries)
    kept = read_origin(directory)
    assert {k: v for k, v in kept.items() if k != "source"} == (
        {"labkit_version": "1"} if isinstance(odd, dict) else {}
    )
    assert not kept.get("source")
    for command in ("get", "show"):
        ended = labkit("models", command, directory)
        assert ended.code == 0, ended.err
    assert isinstance(read_entries(directory), dict)
