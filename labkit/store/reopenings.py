"""Reopenings: `experiments/reopened.toml`, one `[[reopening]]` each time that a promotion no longer held.

The entries stay as history: of several with one name the last one counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from labkit.core.canonical import plain
from labkit.core.decision import Reopening
from labkit.store import toml_entries as toml

HEAD = """\
# Promoted experiments that were opened again: `until` counts instead of the `expires` of the file.
# Written by `labkit revalidate`; `withdrawn` are the records that the recipe had rested on."""


def reopened_path(root: Path | str) -> Path:
    """Where the reopenings of a lab lie."""
    return Path(root) / "experiments" / "reopened.toml"


def read_reopenings(root: Path | str) -> tuple[Reopening, ...]:
    """The reopenings of a lab in the order of the file; none where there is no file. Raises RecipeInvalid."""
    path = reopened_path(root)
    found = toml.read_entries(path, "reopening", _reopening)
    toml.check_names(path, "reopening", [f"{r.name} of {', '.join(r.withdrawn)}" for r in found])
    return found


def add_reopening(root: Path | str, reopening: Reopening) -> None:
    """Append a reopening; everything that stands in the file already stays as it is."""
    toml.add_entry(reopened_path(root), "reopening", plain(reopening), HEAD)


def _reopening(entry: Mapping[str, Any]) -> Reopening:
    toml.check_fields(entry, {field.name for field in fields(Reopening)})
    return Reopening(
        name=toml.words(entry, "name"),
        why=toml.words(entry, "why"),
        decided_at=toml.iso_date(entry, "decided_at"),
        until=toml.iso_date(entry, "until"),
        evidence=_run_ids(entry, "evidence"),
        withdrawn=_run_ids(entry, "withdrawn"),
    )


def _run_ids(entry: Mapping[str, Any], field: str) -> tuple[str, ...]:
    """At least one, since a reopening rests on what was measured."""
    found = toml.texts({field: entry[field]}, field)
    if not found:
        raise ValueError(f"{field}: at least one run id is needed, got none")
    return found
