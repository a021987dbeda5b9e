"""Crashes: visits of a record that failed, which are dropped from its pairs. Decides nothing.

Where the visits that fail are the slow ones, what is left is too fast: the estimate is biased.
"""

from __future__ import annotations

from collections.abc import Iterator

from labkit.bench.pairs import ROLES
from labkit.core.records import Record

# Of an arm's visits; beyond it what is dropped may be what the verdict hangs on.
MOST_FAILED = 0.1
# So many more failures than the other arm has are no accident of the machine, which both run on.
CLEARLY_MORE = 2
DROPPED = "they are dropped from the pairs, which biases the estimate where slow visits are those that fail"


def crashes(record: Record) -> Iterator[str]:
    """Each arm of which more than a tenth of its visits failed, or clearly more than of the other."""
    failed = _failed(record)
    for role in ROLES:
        more = failed[role] - min(failed.values()) >= CLEARLY_MORE
        if more or failed[role] > MOST_FAILED * _visits(record, role):
            yield _phrase(record, role)


def failures(record: Record) -> Iterator[str]:
    """Each arm of which a visit failed."""
    return (_phrase(record, role) for role, failed in _failed(record).items() if failed)


def _failed(record: Record) -> dict[str, int]:
    return {role: sum(v.role == role and v.status == "failed" for v in record.visits) for role in ROLES}


def _visits(record: Record, role: str) -> int:
    return sum(v.role == role and v.status != "warmup" for v in record.visits)


def _phrase(record: Record, role: str) -> str:
    return f"{_failed(record)[role]} of {_visits(record, role)} visits of the {role} failed"
