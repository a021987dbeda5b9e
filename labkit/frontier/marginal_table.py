"""Marginal table: what more bytes buy, as a frame with a row per step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from labkit.core.records import Estimate
from labkit.frontier.marginal import Gain, Upgrade
from labkit.frontier.points import Group

if TYPE_CHECKING:
    import pandas

_ENDS = ("", "_low", "_high")
COLUMNS = (
    *("group", "machine", "family", "workload", "smaller", "larger", "smaller_run_id", "larger_run_id"),
    *(f"extra_bytes{end}" for end in _ENDS),
    "per_bytes",
    *(
        f"{axis}_{part}"
        for axis in ("speed", "quality")
        for part in (
            "word",
            *(f"{kind}{end}" for kind in ("gain", "per") for end in _ENDS),
        )
    ),
)


def marginal_frame(steps: Sequence[Upgrade]) -> pandas.DataFrame:
    """One row per step with COLUMNS.

    gain: tok/s or nats (a KL that falls by so much), negative where something is lost; per: the same for each
    `per_bytes` of the step, NaN where its bytes are not apart from none. word: `better`, `worse`, `same`.
    """
    import pandas

    numbers: dict[Group, int] = {}
    for step in steps:
        numbers.setdefault(step.larger.group, len(numbers))
    return pandas.DataFrame([_row(s, numbers[s.larger.group]) for s in steps], columns=list(COLUMNS))


def _row(step: Upgrade, number: int) -> dict[str, Any]:
    group = step.larger.group
    row: dict[str, Any] = {
        "group": number,
        **{k: getattr(group, k) for k in ("machine", "family", "workload")},
        "smaller": step.smaller.label,
        "larger": step.larger.label,
        "smaller_run_id": step.smaller.run_id,
        "larger_run_id": step.larger.run_id,
        **_ends("extra_bytes", step.extra),
        "per_bytes": step.unit_bytes,
    }
    for gain in step.gains:
        row |= _gain(gain)
    return row


def _gain(gain: Gain) -> dict[str, Any]:
    name = gain.axis.name
    return {
        f"{name}_word": gain.word,
        **_ends(f"{name}_gain", gain.total),
        **_ends(f"{name}_per", gain.per),
    }


def _ends(name: str, estimate: Estimate | None) -> dict[str, float]:
    ends = (float("nan"),) * 3 if estimate is None else (estimate.value, estimate.low, estimate.high)
    return {f"{name}{end}": value for end, value in zip(_ENDS, ends, strict=True)}
