"""The answers of `labkit frontier` as JSON data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from labkit.cli.frontier_table import caveats
from labkit.core.records import Estimate
from labkit.frontier.advantage import Advantage
from labkit.frontier.dominance import Standing
from labkit.frontier.growth import CORNER, Moment
from labkit.frontier.marginal import Gain, Upgrade, Within, incomparable
from labkit.frontier.points import Group, Point
from labkit.frontier.tradeoff import TradeOff, trade_offs
from labkit.frontier.versions import Gathered

_GROUP_KEYS = (
    *("machine", "family", "workload", "workload_hash", "reference", "reference_hash"),
    *("windows", "windows_hash", "code_hash", "packages_hash"),
)
_POINT_KEYS = (
    *("label", "arm_hash", "plan_hash", "run_id", "path", "started_at", "experiment", "quiet"),
    *("code_hash", "packages_hash"),
)
_AXIS_KEYS = ("title", "unit", "better", "scale", "margin", "registered")
_MOMENT_KEYS = (
    *("run_id", "path", "started_at", "experiment", "code_hash", "packages_hash", "changed"),
    *("volume", "low", "high", "grew"),
)


def groups_json(standings: Sequence[Standing], gathered: Gathered) -> list[dict[str, Any]]:
    """Each group with its judged points; points name one another by label, which is unique in a group."""
    return [
        _group(group, [s for s in standings if s.point.group == group], gathered)
        for group in dict.fromkeys(s.point.group for s in standings)
    ]


def upgrades_json(steps: Iterable[Upgrade]) -> list[dict[str, Any]]:
    """The steps along each frontier, smallest first."""
    return [{**_identity(step.larger.group), **_upgrade(step)} for step in steps]


def within_json(found: Iterable[Within]) -> list[dict[str, Any]]:
    """What fits the budget in each group, and what more would add."""
    return [
        {
            **_identity(w.group),
            "budget_bytes": w.budget,
            "more_bytes": w.more,
            "best": _labels(w.best),
            "unlocked": _labels(w.unlocked),
            "upgrades": [_upgrade(step) for step in w.upgrades],
            "beyond": None if w.beyond is None else w.beyond.label,
            "incomparable": [_lacking(s) for s in w.incomparable],
        }
        for w in found
    ]


def incomparable_json(standings: Sequence[Standing]) -> list[dict[str, Any]]:
    """What is on no frontier, and so in no step, for lack of an axis."""
    return [{**_identity(s.point.group), **_lacking(s)} for s in incomparable(standings)]


def _lacking(standing: Standing) -> dict[str, Any]:
    return {"label": standing.point.label, "missing": [axis.name for axis in standing.missing]}


def moments_json(found: Sequence[Moment]) -> dict[str, Any]:
    """The hypervolumes of each group over time, and the corner that they are measured from."""
    return {
        "corner": dict(CORNER),
        "groups": [
            {
                **_identity(group),
                "dimensions": list(mine[0].dimensions),
                "moments": [{k: getattr(m, k) for k in _MOMENT_KEYS} for m in mine],
            }
            for group in dict.fromkeys(m.group for m in found)
            for mine in [[m for m in found if m.group == group]]
        ],
    }


def _identity(group: Group) -> dict[str, Any]:
    return {k: getattr(group, k) for k in _GROUP_KEYS}


def _labels(points: Iterable[Point]) -> list[str]:
    return [point.label for point in points]


def _group(group: Group, standings: list[Standing], gathered: Gathered) -> dict[str, Any]:
    return {
        **_identity(group),
        "axes": {a.name: {k: getattr(a, k) for k in _AXIS_KEYS} for a in group.axes},
        "points": [_point(s) for s in standings],
        "trade_offs": [_trade_off(t) for t in trade_offs(standings)],
        "notes": caveats(group, standings, gathered),
    }


def _point(standing: Standing) -> dict[str, Any]:
    point = standing.point
    return {
        **{k: getattr(point, k) for k in _POINT_KEYS},
        "status": standing.status,
        "dominated_by": _labels(standing.dominated_by),
        "missing": [axis.name for axis in standing.missing],
        "values": {name: _ends(estimate) for name, estimate in point.values.items()},
    }


def _trade_off(trade: TradeOff) -> dict[str, Any]:
    return {
        "point": trade.point.label,
        "other": trade.other.label,
        "gains": [_advantage(found) for found in trade.gained()],
        "gives_up": [_advantage(found) for found in trade.given_up()],
    }


def _advantage(found: Advantage) -> dict[str, Any]:
    """An improvement: below 1, or below 0 on an absolute axis, it is a loss. Infinite ends are null."""
    ends = {k: v if abs(v) < float("inf") else None for k, v in _three(found).items()}
    return {"axis": found.axis.name, "scale": found.axis.scale, **ends}


def _upgrade(step: Upgrade) -> dict[str, Any]:
    return {
        "smaller": step.smaller.label,
        "larger": step.larger.label,
        "extra_bytes": _three(step.extra),
        "per_bytes": step.unit_bytes,
        **{gain.axis.name: _gain(gain) for gain in step.gains},
    }


def _gain(gain: Gain) -> dict[str, Any]:
    per = None if gain.per is None else _three(gain.per)
    return {"word": gain.word, "unit": gain.axis.unit, "total": _three(gain.total), "per": per}


def _three(found: Advantage | Estimate) -> dict[str, float]:
    return {"value": found.value, "low": found.low, "high": found.high}


def _ends(estimate: Estimate | None) -> dict[str, Any] | None:
    return None if estimate is None else {**_three(estimate), "n": estimate.n}
