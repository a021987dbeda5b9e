"""Circumstances: under what a record was measured, by name, and what differs between two records.

Knows what ties a result to code, packages, artifact and machine; not what was measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from labkit.core.records import Record

# What one may set aside by name when comparing, and what no comparison of times may.
VERSIONS = ("code", "package", "artifact", "blas", "design")
PLACES = ("machine", "workload", "text", "reference")
CONTEXT = ("python", "experiment", "git")
# What a score is taken on and against; nothing else depends on it.
SCORED = ("text", "reference")
_HASH = 10


@dataclass(frozen=True, slots=True)
class Change:
    """What differs. kind: one of VERSIONS or PLACES, or of CONTEXT, which alone explains no number.

    before, after: as a person reads them; empty where a side does not have it.
    """

    kind: str
    name: str
    before: str
    after: str

    def text(self) -> str:
        """`mlx 0.32.3 -> 0.32.4`."""
        return f"{self.name} {self.before or 'none'} -> {self.after or 'none'}"


def changes(before: Record, after: Record, role_before: str, role_after: str) -> tuple[Change, ...]:
    """What differs between two records in what an arm of each was measured under, the weightiest first."""
    old, new = dict(_facts(before, role_before)), dict(_facts(after, role_after))
    names = dict.fromkeys((*old, *new))
    found = ((key, old.get(key, ""), new.get(key, "")) for key in names)
    different = [Change(kind, name, _short(a), _short(b)) for (kind, name), a, b in found if a != b]
    return tuple(sorted(different, key=lambda change: (*VERSIONS, *PLACES, *CONTEXT).index(change.kind)))


def _facts(record: Record, role: str) -> Iterator[tuple[tuple[str, str], str]]:
    """(kind, name) -> value."""
    source, arm = record.provenance, record.arm(role)
    yield ("code", "code"), _text(source.get("code_hash"))
    for name, version in _table(source.get("packages")).items():
        yield ("package", name), _text(version)
    yield ("python", "python"), _text(source.get("python"))
    yield ("artifact", "artifact"), _text(arm.artifact.get("fingerprint"))
    yield ("blas", "backend"), _text(arm.plan.get("backend") or arm.arm.get("blas"))
    yield ("design", "design"), _text(record.experiment.get("design"))
    yield ("machine", "machine"), _text(record.machine.get("slug"))
    yield ("workload", "workload"), _text(record.workload_hash)
    yield ("text", "text"), _text(source.get("windows_hash"))
    yield ("reference", "reference"), _text(arm.reference_hash)
    yield ("experiment", "experiment"), _text(record.experiment.get("name"))
    dirty = " with changes" if source.get("git_dirty") else ""
    yield ("git", "git"), _text(source.get("git_revision"))[:_HASH] + dirty


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _short(value: str) -> str:
    """A hash by its first digits; anything else whole."""
    long = len(value) >= 16 and all(c in "0123456789abcdef" for c in value)
    return value[:_HASH] if long else value
