"""Points of one group by hand, for tests of what is made of them."""

from __future__ import annotations

from labkit.core.records import Estimate
from labkit.frontier.axis import AxisName, axes_for
from labkit.frontier.points import Group, Point

GROUP = Group(
    machine="machine",
    family="family",
    workload="1024+64",
    workload_hash="w",
    reference="reference",
    reference_hash="reference",
    windows="KL over 16 windows of 512 tokens",
    windows_hash="16x512",
    code_hash="code",
    packages_hash="packages",
    axes=axes_for("decode_tps"),
)
Interval = tuple[float, float] | float


def estimate(interval: Interval | None) -> Estimate | None:
    """The middle of an interval, or an exact value."""
    if interval is None:
        return None
    low, high = interval if isinstance(interval, tuple) else (interval, interval)
    return Estimate((low + high) / 2, low, high, 10, "")


def point(
    name: str,
    speed: Interval | None,
    quality: Interval | None,
    size: Interval | None,
    group: Group = GROUP,
    at: str = "2026-11-05T10:15:00Z",
    run_id: str | None = None,
) -> Point:
    """An arm whose label is its hash; `reference` is the reference of GROUP."""
    values: dict[AxisName, Estimate | None] = {
        "speed": estimate(speed),
        "quality": estimate(quality),
        "size": estimate(size),
    }
    run = run_id or f"run-{name}"
    return Point(
        group=group,
        arm_hash=name,
        plan_hash=f"plan-{name}",
        label=name,
        short_label=name,
        run_id=run,
        path=f"results/machine/{run}.json",
        started_at=at,
        experiment="experiment",
        quiet=True,
        code_hash="code",
        packages_hash="packages",
        values=values,
    )
