"""Measured: the visits of a run so far, what its workers said of their arms, and how quiet it was."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from labkit.bench.pairs import ROLES, Role
from labkit.bench.quiet import Probe
from labkit.core.records import VisitResult

# The reference system's: an arm whose largest sample is more than this times its smallest is unstable.
UNSTABLE_RATIO = 1.15
_RATES = ("decode_tps", "prefill_tps", "aggregate_tps", "aggregate_decode_tps")


@dataclass
class Measured:
    """What has been measured so far; it grows during a run and survives an interruption."""

    visits: list[VisitResult] = field(default_factory=list)
    opened: dict[Role, dict[str, Any]] = field(default_factory=dict)
    standing: tuple[Probe, ...] = ()

    def ok_pairs(self) -> list[int]:
        """Indices of the pairs that have a good visit on both arms."""
        return sorted(self._good("baseline") & self._good("candidate"))

    def values(self, role: Role, metric: str, pairs: list[int]) -> list[float]:
        """One value per pair, in the order of `pairs`; pairs without this metric raise KeyError."""
        by_pair = {v.pair: v.metrics for v in self.visits if v.role == role and v.status == "ok"}
        return [by_pair[pair][metric] for pair in pairs]

    def any(self) -> bool:
        """Whether a visit was made that was not there to warm up."""
        return any(visit.status != "warmup" for visit in self.visits)

    def next_pair(self) -> int:
        """The index of the next pair; a pair of which half was measured is not gone on with."""
        return 1 + max((visit.pair for visit in self.visits), default=-1)

    def failed(self) -> list[VisitResult]:
        return [visit for visit in self.visits if visit.status == "failed"]

    def noisy(self) -> list[VisitResult]:
        """The visits that were made again because a probe found them noisy."""
        return [visit for visit in self.visits if visit.status == "noisy"]

    def _good(self, role: Role) -> set[int]:
        return {v.pair for v in self.visits if v.role == role and v.status == "ok"}


def noisy_visits(measured: Measured) -> Iterator[str]:
    """What was not quiet, as phrases: standing probes first, then visits."""
    for probe in measured.standing:
        if not probe.ok:
            where = f": {probe.shown}" if probe.shown else ""
            beyond = f"{probe.name} {probe.value:.2f} beyond {probe.limit:.2f} before the run"
            yield f"{beyond}{where} ({probe.advice})"
    measuring = [v for v in measured.visits if v.status == "ok"]
    for name in dict.fromkeys(n for v in measuring for n in v.quiet.get("failed", ())):
        values = [v.quiet[name] for v in measuring if name in v.quiet.get("failed", ())]
        yield f"{name} up to {max(values):.2f} in {len(values)} of {len(measuring)} visits"


def made_again(measured: Measured) -> str:
    """How many visits were noisy and made again, as a phrase; empty where none was."""
    again = len(measured.noisy())
    return f"{again} noisy visit{' was' if again == 1 else 's were'} made again" if again else ""


def unstable_rates(measured: Measured) -> Iterator[str]:
    """The rates of an arm that differ too much between its good visits, such as `baseline decode_tps`.

    A label of the samples, whatever made them differ: the machine may have been quiet all the same.
    """
    good = [v for v in measured.visits if v.status == "ok"]
    for role in ROLES:
        for metric in _RATES:
            rates = [v.metrics[metric] for v in good if v.role == role and metric in v.metrics]
            if rates and (min(rates) <= 0 or max(rates) / min(rates) > UNSTABLE_RATIO):
                yield f"{role} {metric}"
