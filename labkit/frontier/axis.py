"""Axis: a direction of the frontier, with the margins that a difference on it must exceed.

Knows which metric stands for an axis and how margins come from what experiments registered; no points.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from labkit.core.metrics import DEFAULT_MARGINS, METRICS

AxisName = Literal["speed", "quality", "size"]

# Another BLAS's rounding moves log-probabilities by up to 1e-4; the KL of that is no quality.
_KL_RESOLUTION = 1e-5
_PREFILL = frozenset({"prefill_tps", "ttft_s"})
_DECODE = frozenset({"decode_tps", "itl_p50_s", "itl_p95_s", "itl_p99_s"})


@dataclass(frozen=True, slots=True)
class Registered:
    """A margin that an experiment stated before it ran, for a metric that it improves or holds."""

    metric: str
    goal: str
    margin: float


@dataclass(frozen=True, slots=True)
class Axis:
    """One direction of the frontier. parts: the metrics whose sum is the position; better: the good way.

    scale: whether positions are compared by ratio or by difference. resolution: a difference up to this, in
    the axis's unit, is none whatever the margin. margin: what a gain or a loss must exceed; of a ratio m
    means |log ratio| > ln(1 + m), else it is in the unit. registered: whether an experiment has stated it.
    """

    name: AxisName
    title: str
    unit: str
    better: Literal["higher", "lower"]
    parts: tuple[str, ...]
    scale: Literal["ratio", "absolute"]
    resolution: float = 0.0
    margin: float = 0.0
    registered: bool = False


def speed_metric(experiments: Sequence[tuple[Sequence[str], Sequence[str]]]) -> str:
    """The metric of the speed axis, given what each experiment improves and holds.

    `prefill_tps` where every claim about speed is about prefill, else `decode_tps`. What is to be improved
    decides; what is only held counts where no experiment improves a speed.
    """
    improved = {name for improves, _ in experiments for name in improves}
    held = {name for _, holds in experiments for name in holds}
    for named in (improved, held):
        if named & (_PREFILL | _DECODE):
            return "decode_tps" if named & _DECODE else "prefill_tps"
    return "decode_tps"


def axes_for(speed: str, registered: Iterable[Registered] = ()) -> tuple[Axis, Axis, Axis]:
    """The default axes: one speed, KL to the reference, and all bytes held (artifact and KV cache).

    A margin counts where it was registered for the metric that is the whole axis, as `margin_of` takes them.
    Bytes held are a sum, for which nobody registers a margin.
    """
    known = tuple(registered)
    return (
        _axis("speed", METRICS[speed].title, (speed,), known),
        _axis("quality", METRICS["kl_mean_nats"].title, ("kl_mean_nats",), known, _KL_RESOLUTION),
        _axis("size", "bytes held", ("artifact_bytes", "kv_bytes"), known),
    )


def _axis(
    name: AxisName, title: str, parts: tuple[str, ...], known: Iterable[Registered], resolution: float = 0.0
) -> Axis:
    metric = METRICS[parts[0]]
    margin, registered = margin_of(metric.name, known if len(parts) == 1 else ())
    return Axis(name, title, metric.unit, metric.better, parts, metric.scale, resolution, margin, registered)


def margin_of(metric: str, known: Iterable[Registered]) -> tuple[float, bool]:
    """What a difference in a metric must exceed, and whether it was registered: the smallest margin of it.

    A goal alone makes the default no wider: +400% says what a success is, not that four times the speed is no
    difference.
    """
    stated = [r for r in known if r.metric == metric]
    held = [DEFAULT_MARGINS[metric]] if all(r.goal == "improves" for r in stated) else []
    margin = min([r.margin for r in stated] + held)
    return margin, any(r.margin == margin for r in stated)


def margin_text(axis: Axis) -> str:
    """`decode 3%`, `KL to the reference 0.01 nats`, with a star where no experiment has registered it."""
    amount = f"{100 * axis.margin:g}%" if axis.scale == "ratio" else f"{axis.margin:g} {axis.unit}"
    return f"{axis.title} {amount}{'' if axis.registered else '*'}"


def registered_in(row: Mapping[Any, Any]) -> list[Registered]:
    """The margins of one row of `labkit.store.query.frontier_points`; none where it has no verdicts."""
    lists = [row.get(name) for name in ("margin_metrics", "margin_goals", "margins")]
    if any(values is None for values in lists):
        return []
    metrics, goals, margins = (list(values) for values in lists if values is not None)
    return [Registered(str(m), str(g), float(x)) for m, g, x in zip(metrics, goals, margins, strict=True)]
