"""Renewals: `experiments/renewed.toml`. An experiment's file is never edited, since records name its hash."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from labkit.core.canonical import plain
from labkit.core.decision import Renewal
from labkit.store import toml_entries as toml

HEAD = """\
# Experiments that were given longer, each once: `until` counts instead of the `expires` of the file.
# Written by `labkit renew`."""


def renewed_path(root: Path | str) -> Path:
    """Where the renewals of a lab lie."""
    return Path(root) / "experiments" / "renewed.toml"


def read_renewals(root: Path | str) -> tuple[Renewal, ...]:
    """The renewals of a lab in the order of the file; none where there is no file. Raises RecipeInvalid."""
    return toml.read_named(renewed_path(root), "renewal", _renewal)


def add_renewal(root: Path | str, renewal: Renewal) -> None:
    """Append a renewal; everything that stands in the file already stays as it is."""
    toml.add_entry(renewed_path(root), "renewal", plain(renewal), HEAD)


def _renewal(entry: Mapping[str, Any]) -> Renewal:
    toml.check_fields(entry, {field.name for field in fields(Renewal)})
    dates = {name: toml.iso_date(entry, name) for name in ("until", "decided_at")}
    return Renewal(name=toml.words(entry, "name"), why=toml.words(entry, "why"), **dates)
