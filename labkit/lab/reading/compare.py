"""Compare: two records, metric by metric for each arm, with every reason not to.

Knows estimates, margins and what differs between the records; not how a comparison is printed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from labkit.bench.pairs import ROLES, Role
from labkit.core.errors import RecordInvalid
from labkit.core.metrics import METRICS, Metric
from labkit.core.records import ArmResult, Estimate, Record
from labkit.frontier.axis import Registered, margin_of
from labkit.lab.reading.circumstances import PLACES, SCORED, VERSIONS, Change, changes
from labkit.lab.reading.lookup import look_up
from labkit.lab.reading.repeats import Spread, run_spreads
from labkit.lab.reading.unpaired import Difference, classified, difference
from labkit.store.lab_folder import find_lab
from labkit.store.read import Stored

if TYPE_CHECKING:
    import pandas

Status = Literal["improved", "worse", "equivalent", "unresolved", "failed", "missing", "version-mismatch"]
# What a metric of each source depends on besides its arm.
_BARS: Mapping[str, tuple[str, ...]] = {
    "visit": tuple(kind for kind in (*VERSIONS, *PLACES) if kind not in SCORED),
    "score": tuple(kind for kind in (*VERSIONS, *PLACES) if kind != "design"),
    "artifact": (),
}


@dataclass(frozen=True, slots=True)
class Compared:
    """One metric of one arm in two records.

    before, after: its estimates, None where a record has none. change: how much the second is better, as a
    ratio, or for an absolute metric as a difference that is positive where it is better; None where it was
    not compared. registered: whether the margin is the first record's own, which it has of its candidate
    alone and which a goal makes no wider than the default. why: where there is no verdict.
    """

    metric: str
    role: Role
    status: Status
    margin: float
    registered: bool
    before: Estimate | None
    after: Estimate | None
    change: Difference | None
    why: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """Two records, compared. differs: what differs between them, by role.

    spreads: metric -> what repeated runs of one arm differ by, where that was measured.
    """

    before: Stored
    after: Stored
    across_versions: bool
    rows: tuple[Compared, ...]
    differs: Mapping[str, tuple[Change, ...]]
    spreads: Mapping[str, Spread]
    notes: tuple[str, ...]

    def frame(self) -> pandas.DataFrame:
        """One row per metric of an arm; change, low and high are ratios above 1, or differences above 0,
        where the second record is better, NaN where it was not compared."""
        import pandas

        return pandas.DataFrame([_flat(row) for row in self.rows])

    def __repr__(self) -> str:
        counts = {status: sum(row.status == status for row in self.rows) for status in get_args(Status)}
        found = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
        return f"<Comparison of {self.after.record.run_id} with {self.before.record.run_id}: {found}>"

    def _repr_html_(self) -> str:
        return self.frame().to_html(index=False, float_format="{:.4g}".format)

    def to_json(self) -> dict[str, Any]:
        """Its rows and reasons; the records by their ids."""
        return {
            "before": self.before.record.run_id,
            "after": self.after.record.run_id,
            "across_versions": self.across_versions,
            "rows": [asdict(row) for row in self.rows],
            "differs": {role: [asdict(c) for c in found] for role, found in self.differs.items()},
            "spreads": {metric: asdict(spread) for metric, spread in self.spreads.items()},
            "notes": list(self.notes),
        }


def compare(
    first: str, second: str, root: Path | str | None = None, *, across_versions: bool = False
) -> Comparison:
    """The second record against the first, each by its run id, the start or end of one, or its experiment.

    root: the lab; None takes the nearest folder upwards with experiments/.
    across_versions: compare although code, packages, artifact, BLAS, plan, design or experiment file differ.
    What was measured on another machine, workload or text is not compared in any case. Raises what `look_up`
    raises.
    """
    root = find_lab() if root is None else Path(root)
    before, after = (_with_both_arms(look_up(root, text)) for text in (first, second))
    return compared(before, after, run_spreads(root, (before.record, after.record)), across_versions)


def _with_both_arms(stored: Stored) -> Stored:
    roles = {arm.role for arm in stored.record.arms}
    if roles != {*ROLES}:
        raise RecordInvalid(
            f"a record with one baseline and one candidate was needed in {stored.path}",
            got=", ".join(sorted(roles)) or "no arms",
        )
    return stored


def compared(
    before: Stored, after: Stored, spreads: Mapping[str, Spread], across_versions: bool = False
) -> Comparison:
    """The same of two records at hand."""
    a, b = before.record, after.record
    differs = {role: changes(a, b, role, role) for role in ROLES}
    rows = tuple(
        _row(_Side(a, role), _Side(b, role), METRICS[name], differs[role], spreads.get(name), across_versions)
        for role in reversed(ROLES)
        for name in _names(a, b, role)
    )
    return Comparison(before, after, across_versions, rows, differs, spreads, tuple(_notes(a, b)))


@dataclass(frozen=True, slots=True)
class _Side:
    record: Record
    role: Role

    @property
    def arm(self) -> ArmResult:
        return self.record.arm(self.role)

    def failed(self, metric: Metric) -> bool:
        """Whether the metric has no value because the visits of the arm failed."""
        states = [v.status for v in self.record.visits if v.role == self.role and v.status != "warmup"]
        all_failed = "failed" in states and "ok" not in states
        lost = metric.source == "visit" and metric.name not in self.arm.metrics
        return lost and (all_failed or self.record.outcome == "failed")


def _names(a: Record, b: Record, role: Role) -> list[str]:
    """The metrics that either record has for an arm, or claims of it, in the order of the vocabulary."""
    measured = {name for record in (a, b) for name in record.arm(role).metrics}
    claimed = {each.metric for record in (a, b) for each in _registered(record, role)}
    return [name for name in METRICS if name in measured | claimed]


def _registered(record: Record, role: Role) -> list[Registered]:
    """The margins that a record's experiment stated, which are of the candidate against the baseline."""
    goals = ("improves", "holds") if role == "candidate" else ()
    return [
        Registered(metric, goal, margin)
        for goal in goals
        for metric, margin in record.experiment.get(goal, {}).items()
    ]


def _row(
    a: _Side, b: _Side, metric: Metric, differs: Sequence[Change], spread: Spread | None, across: bool
) -> Compared:
    margin, registered = margin_of(metric.name, _registered(a.record, a.role))
    ends = (a.arm.metrics.get(metric.name), b.arm.metrics.get(metric.name))
    status, why = _not_compared(a, b, metric, differs, across)
    change = None
    if status is None:
        assert ends[0] is not None and ends[1] is not None
        change = difference(metric, ends[0], ends[1], spread)
        status, why = classified(metric, change, margin)
    return Compared(metric.name, a.role, status, margin, registered, *ends, change, why)


def _not_compared(
    a: _Side, b: _Side, metric: Metric, differs: Sequence[Change], across: bool
) -> tuple[Status | None, str]:
    """Why a metric has no verdict: a failure, no value, or a difference that was not set aside by name."""
    sides = {"first": a, "second": b}
    if failed := [name for name, side in sides.items() if side.failed(metric)]:
        return "failed", f"no visit succeeded in the {' and the '.join(failed)} record"
    if missing := [name for name, side in sides.items() if metric.name not in side.arm.metrics]:
        return "missing", f"not measured in the {' and the '.join(missing)} record"
    barred = PLACES if across else (*VERSIONS, *PLACES)
    kinds = [kind for kind in _BARS[metric.source] if kind in barred]
    if other := [change.text() for change in differs if change.kind in kinds]:
        return "version-mismatch", ", ".join(other)
    return None, ""


def _flat(row: Compared) -> dict[str, Any]:
    nan, change = float("nan"), row.change
    ends = (nan,) * 3 if change is None else (change.value, change.low, change.high)
    return {
        "role": row.role,
        "metric": row.metric,
        "before": nan if row.before is None else row.before.value,
        "after": nan if row.after is None else row.after.value,
        **dict(zip(("change", "low", "high"), ends, strict=True)),
        "margin": row.margin,
        "status": row.status,
        "why": row.why,
    }


def _notes(a: Record, b: Record) -> Iterator[str]:
    for record in (a, b):
        if record.quiet.get("quiet") is not True:
            yield f"{record.run_id} was measured on a busy machine, not quotable"
        if record.state == "partial":
            yield f"{record.run_id} was stopped early"
    for role in ROLES:
        if a.arm(role).arm_hash != b.arm(role).arm_hash:
            yield f"the {role}s are different arms: {a.arm(role).label}, {b.arm(role).label}"
