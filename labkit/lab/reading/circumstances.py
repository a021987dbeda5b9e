"""Circumstances: under what a record was measured, by name, and what differs between two records.

Knows what ties a result to code, packages, artifact, plan, experiment file and machine; no measurement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from labkit.core.canonical import canonical_json
from labkit.core.records import Record

# What one may set aside by name when comparing, and what no comparison of times may.
VERSIONS = ("code", "package", "artifact", "blas", "plan", "design", "file")
PLACES = ("machine", "workload", "text", "reference")
CONTEXT = ("python", "experiment", "git")
# What a score is taken on and against; nothing else depends on it.
SCORED = ("text", "reference")
# Parts of a plan that are told as the artifact and the BLAS.
_TOLD_APART = ("fingerprint", "backend")
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
    """What differs between two records in what an arm of each was measured under, the weightiest first.

    The plans of different arms differ by what the arms ask for, and another experiment has another file:
    neither is told beside that.
    """
    old, new = dict(_facts(before, role_before)), dict(_facts(after, role_after))
    names = dict.fromkeys((*old, *new))
    found = ((key, old.get(key, ""), new.get(key, "")) for key in names)
    different = [Change(kind, name, _short(a), _short(b)) for (kind, name), a, b in found if a != b]
    implied = set[str]()
    if before.arm(role_before).arm_hash != after.arm(role_after).arm_hash:
        implied.add("plan")
    if before.experiment.get("name") != after.experiment.get("name"):
        implied.add("file")
    told = [change for change in _without_whole_plan(different) if change.kind not in implied]
    return tuple(sorted(told, key=lambda change: (*VERSIONS, *PLACES, *CONTEXT).index(change.kind)))


def _without_whole_plan(found: Sequence[Change]) -> Iterator[Change]:
    """A plan's hash is told only where none of its parts tells what differs."""
    parts = any(c.kind in ("plan", "artifact", "blas") and c.name != "plan" for c in found)
    return (change for change in found if not (parts and change.name == "plan"))


def _facts(record: Record, role: str) -> Iterator[tuple[tuple[str, str], str]]:
    """(kind, name) -> value."""
    source, arm = record.provenance, record.arm(role)
    yield ("code", "code"), _text(source.get("code_hash"))
    for name, version in _table(source.get("packages")).items():
        yield ("package", name), _text(version)
    yield ("python", "python"), _text(source.get("python"))
    yield ("artifact", "artifact"), _text(arm.artifact.get("fingerprint"))
    yield ("blas", "backend"), _text(arm.plan.get("backend") or arm.arm.get("blas"))
    yield ("plan", "plan"), _text(arm.plan_hash)
    for name, value in arm.plan.items():
        if name not in _TOLD_APART:
            yield ("plan", name), _part(value)
    yield ("design", "design"), _text(record.experiment.get("design"))
    yield ("file", "experiment file"), _text(record.experiment.get("source_hash"))
    yield ("machine", "machine"), _text(record.machine.get("slug"))
    yield ("workload", "workload"), _text(record.workload_hash)
    yield ("text", "text"), _text(source.get("windows_hash"))
    yield ("reference", "reference"), _text(arm.reference_hash)
    yield ("experiment", "experiment"), _text(record.experiment.get("name"))
    dirty = " with changes" if source.get("git_dirty") else ""
    yield ("git", "git"), _text(source.get("git_revision"))[:_HASH] + dirty


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _part(value: Any) -> str:
    """A part of a plan; a list of a value per layer as how many there are of each."""
    if not isinstance(value, list | tuple):
        return _text(value) if not isinstance(value, Mapping) else canonical_json(value)
    counts: dict[str, int] = {}
    for item in value:
        counts[str(item)] = counts.get(str(item), 0) + 1
    known = len(counts) < len(value)
    return ", ".join(f"{count} {item}" if known else item for item, count in counts.items())


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _short(value: str) -> str:
    """A hash by its first digits; anything else whole."""
    long = len(value) >= 16 and all(c in "0123456789abcdef" for c in value)
    return value[:_HASH] if long else value
