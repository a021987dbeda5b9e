"""Versions: which results may stand in one group, by machine, work, windows, code and packages.

Knows the identities of rows; not their metrics, axes or standing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas

Row = Mapping[str, Any]

_QUESTION = ("machine", "family", "workload_hash", "reference_hash")
_VERSION = ("code_hash", "packages_hash")
_ARM = ("arm_hash", "plan_hash", *_VERSION)


@dataclass(frozen=True, slots=True)
class Gathered:
    """groups: rows that may be compared. hidden: how many groups of older versions were left out.

    hidden_quiet: machine, family, workload_hash and reference_hash of those left out that hold a quiet row.
    """

    groups: tuple[tuple[Row, ...], ...]
    hidden: int = 0
    hidden_quiet: frozenset[tuple[str, ...]] = frozenset()


def gather(frame: pandas.DataFrame, *, across_versions: bool = False, every: bool = False) -> Gathered:
    """The groups of `labkit.store.query.frontier_points`, apart by windows as well.

    Of each machine, family, workload and reference only the code and packages with the newest record are
    kept. across_versions: keep all and put them together, which makes a comparison that code or packages
    may explain. every: keep all the rows of an arm, instead of the one that speaks for it.
    """
    groups: list[tuple[Row, ...]] = []
    hidden: list[tuple[Row, ...]] = []
    for rows in _parts(_rows(frame), _QUESTION):
        versions = [rows] if across_versions else sorted(_parts(rows, _VERSION), key=_newest, reverse=True)
        kept, *older = (_window_groups(version, every) for version in versions)
        groups += kept
        hidden += (group for version in older for group in version)
    quiet = (row for group in hidden for row in group if row["quiet"] is True)
    return Gathered(tuple(groups), len(hidden), frozenset(tuple(row[k] for k in _QUESTION) for row in quiet))


def _rows(frame: pandas.DataFrame) -> list[Row]:
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return [{str(k): v for k, v in row.items()} for row in rows]


def _parts(rows: Iterable[Row], keys: Sequence[str]) -> list[list[Row]]:
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[k] for k in keys), []).append(row)
    return list(found.values())


def _newest(rows: Sequence[Row]) -> tuple[str, str]:
    return max((row["group_newest_at"], row["run_id"]) for row in rows)


def _window_groups(rows: Sequence[Row], every: bool) -> list[tuple[Row, ...]]:
    """One group per set of windows; rows without quality join the newest, or stand alone where none is."""
    scored = _parts((row for row in rows if row["windows_hash"]), ("windows_hash",))
    unscored = [row for row in rows if not row["windows_hash"]]
    newest = max(scored, key=_newest, default=[])
    others = [tuple(group) for group in scored if group is not newest]
    joined = [*newest, *unscored]
    return [tuple(joined) if every else _one_each(joined), *others]


def _one_each(rows: Sequence[Row]) -> tuple[Row, ...]:
    """One row per arm, plan and version: one with quality if there is one, then quiet, then the newest."""
    return tuple(max(same, key=_worth) for same in _parts(rows, _ARM))


def _worth(row: Row) -> tuple[bool, bool, str, str]:
    """The reference's own quality is known, scored or not."""
    known = bool(row["windows_hash"]) or row["arm_hash"] == row["reference_hash"]
    return known, row["quiet"] is True, row["started_at"], row["run_id"]
