"""Carried: what a badge copies of its record, and whether the record carries what the badge says. Reads only.

Knows one badge and one record; not whether either is true of today (`badge`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from labkit.core.arm import Arm
from labkit.core.decision import Evidence
from labkit.core.records import Record
from labkit.lab.deciding.recorded import misshapen
from labkit.lab.deciding.sturdiness import contradictions, noises
from labkit.lab.verifying.head_to_head import FLOOR, decode_axis
from labkit.lab.verifying.verify_checks import OPEN, Check, raced_check
from labkit.model.backend import BUILDS
from labkit.store.badges import Badge, ParityFact

# Packages that decide the tokens and the time of a model's steps.
DECIDING = ("mlx", *BUILDS, "mlx-lm", "mkl")
# Field of a badge that its record decides -> what it is called where the two differ.
_COPIED = {
    "model": "name of the model",
    "fingerprint": "model",
    "machine": "machine",
    "backend": "backend",
    "verified_at": "date",
    "labkit_version": "labkit",
    "code_hash": "code",
    "packages": "packages",
    "lower_bound": "bound",
    "pairs": "number of pairs",
}


def deciding(versions: Mapping[str, str]) -> dict[str, str]:
    """The versions that decide what a model generates and how fast, out of all that are known."""
    return {name: version for name, version in sorted(versions.items()) if name in DECIDING}


def copied(record: Record) -> dict[str, Any]:
    """The fields of a badge that its record decides, by name; the record must be a whole race."""
    axis, candidate, provenance = decode_axis(record), record.arm("candidate"), record.provenance
    assert axis is not None, "a whole race has an axis of decode"
    return {
        "model": candidate.artifact.get("name"),
        "fingerprint": candidate.artifact.get("fingerprint"),
        "machine": record.machine.get("slug"),
        "backend": candidate.plan.get("backend"),
        "verified_at": record.ended_at,
        "labkit_version": provenance.get("labkit_version"),
        "code_hash": provenance.get("code_hash"),
        "packages": deciding(provenance.get("packages", {})),
        "lower_bound": axis.low,
        "pairs": axis.n,
    }


def fact_of(check: Check) -> ParityFact:
    """A parity check as a badge keeps it."""
    return ParityFact(check.kv, check.prompt_tokens, check.status, check.found)


def uncarried(record: Record, badge: Badge, item: Evidence) -> Iterator[str]:
    """Why a record does not carry a badge, a phrase each; none where it does.

    Raises LabkitError, LookupError, TypeError, ValueError, AttributeError or OverflowError where the record
    holds no usable numbers.
    """
    wrong = next(misshapen(record), "")
    if wrong:
        yield wrong
        return
    if decode_axis(record) is None:
        yield "it is no whole comparison with mlx-lm"
        return
    if item.run_id != record.run_id:
        yield "another run"
    found = copied(record)
    yield from (f"another {what}" for field, what in _COPIED.items() if getattr(badge, field) != found[field])
    yield from _parity(record, badge)
    yield from _race(record)


def _parity(record: Record, badge: Badge) -> Iterator[str]:
    """Of the checks before the race there is no record: the badge alone says that they passed."""
    raced, default = raced_check(record), Arm("").kv
    if raced.status != "passed":
        yield "its arms differ in their bits"
    elif fact_of(raced) not in badge.parity:
        yield "another parity of the race"
    passed = [fact for fact in badge.parity if fact.kv == default and fact.status == "passed"]
    if len(passed) < 2 or any(fact.status not in ("passed", "skipped") for fact in badge.parity):
        yield "parity checks that all passed are needed"
    if badge.open_checks != tuple(OPEN):
        yield "another list of open checks"


def _race(record: Record) -> Iterator[str]:
    """What the record says of the race against itself, its floor and its machine."""
    yield from contradictions(record)
    axis = decode_axis(record)
    if axis is not None and axis.low < FLOOR:
        yield f"its interval reaches below {FLOOR}"
    noise = noises(record)
    if noise:
        yield f"its machine was not quiet ({'; '.join(noise)})"
