"""Simulate: a policy on a stream of requests without a model, in simulated seconds. Reads no clock.

The same arrivals, costs, policy and budget give the same outcome. It turns on the scheduler and the admission
that a batch engine uses; what a unit of work costs is the caller's to say, from a bench or by assumption.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from labkit.core.errors import LabkitError
from labkit.schedule.admission import Budget
from labkit.schedule.arrivals import Arrival
from labkit.schedule.catalog import find_policy
from labkit.schedule.outcome import Outcome, Timing, Unit
from labkit.schedule.policy import Policy, PolicyInvalid, Prefill
from labkit.schedule.queue import Queue, RequestState, WorkKind
from labkit.schedule.scheduler import Scheduler

CAP = 8
CHUNK = 256


@dataclass(frozen=True, slots=True)
class Costs:
    """prefill_token_s: seconds a prompt token. decode_s: rows -> seconds of a decode step of so many rows."""

    prefill_token_s: float
    decode_s: Callable[[int], float]

    def prefill(self, tokens: int) -> float:
        return _seconds(self.prefill_token_s * tokens, f"a chunk of {tokens} tokens")

    def decode(self, rows: int) -> float:
        return _seconds(self.decode_s(rows), f"a decode step of {rows} rows")


def simulate(
    arrivals: Iterable[Arrival],
    costs: Costs,
    *,
    policy: str | Policy | type[Policy] = "fcfs",
    cap: int = CAP,
    prefill_chunk: int = CHUNK,
    budget: Budget | None = None,
) -> Outcome:
    """Run every request to its end, one unit of work at a time.

    cap: rows at most. prefill_chunk: tokens a unit. budget: None for no limit on KV bytes. A request that
    could never fit is refused at its arrival, with the reason in its timing. Raises PolicyInvalid for an
    answer that does not fit the queue, or a policy that leaves requests waiting for good.
    """
    ordered = sorted(arrivals, key=lambda a: a.at_s)
    if cap < 1 or prefill_chunk < 1 or len({a.id for a in ordered}) < len(ordered):
        got = (
            f"cap={cap}, prefill_chunk={prefill_chunk}, {len({a.id for a in ordered})} ids of {len(ordered)}"
        )
        raise LabkitError("a cap and a chunk of 1 or more and an id for each request were needed", got=got)
    run = _Run(Scheduler(find_policy(policy)), costs, cap, prefill_chunk, budget, deque(ordered))
    run.to_the_end()
    return Outcome(run.scheduler.policy.SPEC.name, tuple(map(run.timing, ordered)), tuple(run.units))


@dataclass(slots=True)
class _Run:
    """The simulated world as it changes. `waiting` and `running` keep the order of arrival and admission."""

    scheduler: Scheduler
    costs: Costs
    cap: int
    chunk: int
    budget: Budget | None
    pending: deque[Arrival]
    now_s: float = 0.0
    last: WorkKind | None = None
    waiting: dict[str, RequestState] = field(default_factory=dict)
    running: dict[str, RequestState] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    admitted_s: dict[str, float] = field(default_factory=dict)
    token_s: dict[str, list[float]] = field(default_factory=dict)
    units: list[Unit] = field(default_factory=list)

    def to_the_end(self) -> None:
        while self.pending or self.waiting or self.running:
            self._arrive()
            self._admit()
            if self.running:
                self._work()
            elif self.pending:
                self.now_s = max(self.now_s, float(self.pending[0].at_s))
            elif self.waiting:
                name, stuck = self.scheduler.policy.SPEC.name, len(self.waiting)
                need = f"policy {name}: requests to admit were needed while none runs and none is to come"
                raise PolicyInvalid(need, got=f"none of {stuck} waiting")

    def timing(self, arrival: Arrival) -> Timing:
        name = arrival.id
        tokens, refused = tuple(self.token_s.get(name, ())), self.refused.get(name, "")
        assert bool(refused) != (len(tokens) == arrival.tokens), f"{name} did not end exactly once"
        return Timing(name, arrival.client, arrival.at_s, self.admitted_s.get(name), tokens, refused)

    def _arrive(self) -> None:
        while self.pending and self.pending[0].at_s <= self.now_s:
            a = self.pending.popleft()
            at = float(a.at_s)
            state = RequestState(a.id, at, a.prompt_tokens, a.max_tokens, served_s=at, client=a.client)
            reason = self.budget.refusal(state) if self.budget else None
            if reason:
                self.refused[a.id] = reason
                continue
            self.ends[a.id] = a.tokens
            self.waiting[a.id] = self.budget.reserve(state) if self.budget else state

    def _admit(self) -> None:
        if not self.waiting or len(self.running) >= self.cap:
            return
        for name in self.scheduler.admit(self._queue()):
            self.running[name] = replace(self.waiting.pop(name), served_s=self.now_s)
            self.admitted_s[name] = self.now_s
        assert len(self.running) <= self.cap
        assert self.budget is None or self.budget.free(self._rows()) >= 0

    def _work(self) -> None:
        queue = self._queue()
        work = self.scheduler.next(queue)
        if isinstance(work, Prefill):
            row = self.running[work.id]
            tokens = min(self.chunk, row.prompt_left)
            changed, seconds = [replace(row, prefilled=row.prefilled + tokens)], self.costs.prefill(tokens)
        else:
            changed = [replace(r, generated=r.generated + 1) for r in queue.decoding]
            seconds = self.costs.decode(len(changed))
        self._pass("prefill" if isinstance(work, Prefill) else "decode", changed, seconds)

    def _pass(self, kind: WorkKind, changed: Sequence[RequestState], seconds: float) -> None:
        start_s, self.now_s, self.last = self.now_s, self.now_s + seconds, kind
        for row in changed:
            held = self.budget.held(row.prefilled + row.generated) if self.budget else 0
            now = replace(row, served_s=self.now_s, kv_bytes=held)
            self.running[row.id] = self.budget.reserve(now) if self.budget else now
            if kind == "decode":
                self.token_s.setdefault(row.id, []).append(self.now_s)
        rows = self._rows()
        reserved, held = sum(r.reserved_bytes for r in rows), sum(r.kv_bytes for r in rows)
        served = tuple(r.id for r in changed)
        self.units.append(Unit(kind, start_s, seconds, served, len(rows), reserved, held))
        for row in rows:
            if row.generated == self.ends[row.id]:
                del self.running[row.id]

    def _queue(self) -> Queue:
        rows = self._rows()
        free = None if self.budget is None else self.budget.free(rows)
        return Queue(self.now_s, tuple(self.waiting.values()), rows, self.cap, free, self.last)

    def _rows(self) -> tuple[RequestState, ...]:
        return tuple(self.running.values())


def _seconds(value: float, what: str) -> float:
    if not 0 <= value < math.inf:
        raise LabkitError(f"seconds of 0 or more were needed for {what}", got=value)
    return float(value)  # numpy's numbers too, which a queue does not hold
