"""Growth table: the hypervolume of each group over time, as the frame that its picture takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from labkit.frontier.growth import Moment
from labkit.frontier.points import Group

if TYPE_CHECKING:
    import pandas

_OF_GROUP = ("machine", "family", "workload", "reference", "windows")
_OF_MOMENT = (
    *("started_at", "run_id", "experiment", "code_hash", "packages_hash", "changed"),
    *("dimensions", "volume", "low", "high", "grew"),
)
COLUMNS = ("group", *_OF_GROUP, *_OF_MOMENT, "record")


def growth_frame(found: Sequence[Moment]) -> pandas.DataFrame:
    """One row per moment with COLUMNS, oldest first in each group; the reference alone has a volume of 1.

    changed: `code`, `packages` or both, where the record before was measured by others.
    """
    import pandas

    numbers: dict[Group, int] = {}
    for moment in found:
        numbers.setdefault(moment.group, len(numbers))
    rows = [
        {
            "group": numbers[moment.group],
            **{k: getattr(moment.group, k) for k in _OF_GROUP},
            **{k: getattr(moment, k) for k in _OF_MOMENT},
            "record": moment.path,
        }
        for moment in found
    ]
    return pandas.DataFrame(rows, columns=list(COLUMNS))
