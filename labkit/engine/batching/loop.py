"""Loop: which row works next, one unit of work at a time. Knows executions and a scheduler; no sessions.

One thread calls it. A row's own failure ends that row; the others go on.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

from labkit.core.errors import SessionFailed
from labkit.core.step import Step
from labkit.engine.batching.gap import Gap
from labkit.engine.batching.row import Place, Row
from labkit.engine.method import Clock, Companions, Joining, Unfinished
from labkit.schedule.outcome import Timing, Unit
from labkit.schedule.policy import Prefill
from labkit.schedule.queue import Queue, WorkKind
from labkit.schedule.scheduler import Scheduler

# Units of work and ended requests that are remembered.
REMEMBERED = 10_000

# Called with a row once something was made for it.
Deliver = Callable[[Row], None]
# The executions of a row's method that step together, None where its method has no such thing.
CompanionsOf = Callable[[Row], "Companions | None"]


class Loop:
    """The rows of a batch, where each of them is, and the next unit of work.

    limit_bytes: KV budget of all rows together, None for no limit.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        cap: int,
        limit_bytes: int | None,
        clock: Clock,
        companions_of: CompanionsOf,
        deliver: Deliver,
    ) -> None:
        self._scheduler, self._cap, self._limit_bytes = scheduler, cap, limit_bytes
        self._clock, self._companions_of, self._deliver = clock, companions_of, deliver
        self._start_s = clock()
        self._rows: dict[str, Row] = {}
        self._running: list[str] = []
        self._gone: list[Row] = []
        # Rows that could not join, and who decoded then: with others they may.
        self._solo: dict[str, frozenset[str]] = {}
        self._padded: dict[int, tuple[Companions, list[Row]]] = {}
        self._working = False
        self._thread: int | None = None
        self._last: WorkKind | None = None
        self._gap, self._waited_s = Gap(), 0.0
        self.units: deque[Unit] = deque(maxlen=REMEMBERED)
        self.ended: deque[Timing] = deque(maxlen=REMEMBERED)

    @property
    def now_s(self) -> float:
        return self._clock() - self._start_s

    @property
    def waiting(self) -> int:
        """Rows that wait and were never admitted."""
        return sum(1 for r in self._rows.values() if r.place is Place.WAITING and r.admitted_s is None)

    def submit(self, row: Row, name: str, client: str = "") -> None:
        """Queue a row. Its `reserved_bytes` is what it may grow to.

        Raises SessionFailed for a branch that holds bytes already, where the KV budget has none left for it.
        """
        if row.holds_bytes:
            self.check_bytes(row.reserved_bytes, "a branch")
        now = self.now_s
        row.state = replace(row.state, id=name, arrival_s=now, served_s=now, client=client)
        row.home, row.place = self, Place.WAITING
        self._rows[name] = row
        self._fit_padding()

    def check_bytes(self, needed: int, purpose: str) -> None:
        """Raise SessionFailed where the KV budget has not so many bytes that no row has reserved."""
        free = self._unreserved()
        if free is not None and needed > free:
            need = f"{needed} bytes of the KV budget were needed for {purpose}"
            step = "do it when others have ended, or with a larger kv_budget_bytes"
            raise SessionFailed(need, got=f"{free} that no row has reserved", next_step=step)

    def keep_bytes(self, row: Row, kept: int) -> None:
        """Let a row reserve so much beside its caches, for its snapshots."""
        row.kept_bytes = kept
        self._fit_padding()

    def park(self, row: Row) -> None:
        """Hold a row back: it keeps its caches and its bytes, and gives up its place in the batch."""
        if row.place is Place.RUNNING:
            self._bring_home(row)
            self._running.remove(row.state.id)
            row.place = Place.PARKED

    def unpark(self, row: Row) -> None:
        """Let a row that was held back wait for a place again."""
        if row.place is Place.PARKED:
            row.place = Place.WAITING

    def bring_home(self, row: Row) -> None:
        if self._working:
            raise self._at_work()
        self._bring_home(row)

    def inspect(self, row: Row) -> None:
        company = self._company(row)
        if company is not None:
            company.inspect(row.run)

    def forget(self, row: Row) -> None:
        if row not in self._gone:
            self._gone.append(row)
        # What is left of a company is made anew by the thread whose arrays they are.
        if not self._working and self._thread in (None, threading.get_ident()):
            self._sweep()

    def turn(self) -> bool:
        """Admit who fits, and do one unit of work; False where there is none to do."""
        if self._working:
            raise self._at_work()
        self._working, self._thread = True, threading.get_ident()
        try:
            self._sweep()
            self._admit()
            running = len(self._running)
            if not running:
                return False
            work = self._scheduler.next(self.queue())
            started = self._clock()
            kind, served = self._prefill(work) if isinstance(work, Prefill) else self._decode()
            self._note(kind, started, served, running)
            return True
        finally:
            self._working = False
            self._sweep()

    def queue(self) -> Queue:
        """What a policy sees now: numbers and names, none of them the batch's own."""
        rows = self._rows.values()
        # A row that waits again holds its bytes already.
        waiting = tuple(
            row.shown(0 if row.holds_bytes else row.reserved_bytes)
            for row in rows
            if row.place is Place.WAITING
        )
        running = tuple(self._rows[name].shown(self._rows[name].reserved_bytes) for name in self._running)
        return Queue(self.now_s, waiting, running, self._cap, self._unreserved(), self._last)

    def stalled(self) -> bool:
        """Whether rows wait, and none runs or is held back, so that nothing but a new request may help."""
        places = {row.place for row in self._rows.values()}
        return Place.WAITING in places and not places & {Place.RUNNING, Place.PARKED}

    def clear(self) -> None:
        """Free every row."""
        self._gone += self._rows.values()
        if not self._working:
            self._sweep()

    def rows(self) -> Iterator[Row]:
        return iter(tuple(self._rows.values()))

    def _unreserved(self) -> int | None:
        """Bytes of the KV budget that no row has reserved; padding that is in use gives way to rows."""
        if self._limit_bytes is None:
            return None
        return self._limit_bytes - sum(r.reserved_bytes for r in self._rows.values() if r.holds_bytes)

    def _admit(self) -> None:
        if len(self._running) >= self._cap:
            return
        queue = self.queue()
        if not queue.waiting:
            return
        for name in self._scheduler.admit(queue):
            row = self._rows[name]
            row.place, now = Place.RUNNING, self.now_s
            row.admitted_s = now if row.admitted_s is None else row.admitted_s
            row.state = replace(row.state, served_s=now)
            self._running.append(name)
        self._fit_padding()

    def _prefill(self, work: Prefill) -> tuple[WorkKind, list[Row]]:
        row, decoding = self._rows[work.id], self._decoding()
        started = self._clock()
        self._await(decoding)
        self._waited_s += self._clock() - started
        self._limit(row, self._gap.part_s() if decoding else None)
        self._alone(row)
        return "prefill", [row]

    def _decoding(self) -> list[Row]:
        rows = [self._rows[name] for name in self._running]
        return [row for row in rows if not row.state.prompt_left]

    def _await(self, rows: Sequence[Row]) -> None:
        """Let what these rows have queued be computed: what fails later fails whoever computes next."""
        for company, runs in _by_company(rows, self._companions_of):
            company.wait(runs)

    def _limit(self, row: Row, seconds: float | None) -> None:
        company = self._companions_of(row)
        if company is not None:
            company.limit_part(row.run, seconds)

    def _decode(self) -> tuple[WorkKind, list[Row]]:
        rows, started = self._decoding(), self._clock()
        groups = self._grouped(rows)
        if len(rows) > 1 and any(company is None for company, _ in groups):
            self._await(rows)
        for company, members in groups:
            if company is None:
                for row in members:
                    self._alone(row)
            else:
                self._together(company, members)
        took, self._waited_s = self._waited_s + self._clock() - started, 0.0
        self._gap.note(took, after_prefill=self._last == "prefill")
        return "decode", rows

    def _grouped(self, rows: Sequence[Row]) -> list[tuple[Companions | None, list[Row]]]:
        """Rows by the company that they step in; last None with those that step alone, as a lone row does."""
        groups: dict[int, tuple[Companions, list[Row]]] = {}
        alone: list[Row] = []
        names = frozenset(row.state.id for row in rows)
        for row in rows:
            company = self._companions_of(row) if self._solo.get(row.state.id) != names else None
            able = company is not None and cast(Joining, row.run).why_not_join() is None
            if company is None or not able:
                alone.append(row)
            else:
                groups.setdefault(id(company), (company, []))[1].append(row)
        found: list[tuple[Companions | None, list[Row]]] = []
        self._padded = {}
        for company, members in groups.values():
            joined = self._joined(company, members, names) if len(members) > 1 else []
            if len(joined) > 1:
                found.append((company, joined))
            alone += [row for row in members if len(joined) < 2 or row not in joined]
        alone = [row for row in alone if not self._has_ended(row)]
        for row in alone:
            self._bring_home(row)
        return [*found, (None, alone)] if alone else found

    def _allow_padding(self, company: Companions, rows: list[Row]) -> None:
        """Let rows be as long as the longest of them where the KV budget has room for that."""
        free = self._unreserved()
        allowed = free is None or _padding_bytes(rows) <= free
        company.allow_padding(allowed)
        if allowed and free is not None:
            self._padded[id(company)] = (company, rows)

    def _fit_padding(self) -> None:
        """Give up the padding in use for which there is no room any more."""
        for key, (company, rows) in list(self._padded.items()):
            free = self._unreserved()
            held = [row for row in rows if row.run in company]
            if free is not None and len(held) > 1 and _padding_bytes(held) > free:
                company.allow_padding(False)
                del self._padded[key]

    def _joined(self, company: Companions, rows: list[Row], names: frozenset[str]) -> list[Row]:
        """The rows that are in the company now; one that cannot be goes on alone, one that fails is told.

        names: of all rows that decode now.
        """
        self._allow_padding(company, rows)
        new = [row for row in rows if row.run not in company]
        try:
            if new:
                company.add([row.run for row in new])
        except Exception:
            for row in new:
                self._join_one(company, row, names)
        return [row for row in rows if row.run in company]

    def _join_one(self, company: Companions, row: Row, names: frozenset[str]) -> None:
        try:
            company.add([row.run])
        except SessionFailed:
            self._solo[row.state.id] = names
        except Exception as error:
            self._made(row, error)

    def _together(self, company: Companions, rows: Sequence[Row]) -> None:
        by_run = {id(row.run): row for row in rows}
        for run, made in company.advance():
            self._made(by_run[id(run)], made)

    def _alone(self, row: Row) -> None:
        """One unit of a row's own work; a decode step is done to its end."""
        prompt_left = row.state.prompt_left
        try:
            made = row.run.advance()
            while isinstance(made, Unfinished) and not prompt_left:
                made = row.run.advance()
        except BaseException as error:
            self._made(row, error)
            return
        if not isinstance(made, Unfinished):
            self._made(row, made)

    def _made(self, row: Row, made: Step | BaseException | None) -> None:
        """Hand over what was made for a row, unless it has been cancelled meanwhile."""
        if self._has_ended(row):
            return
        if isinstance(made, Step):
            row.count(made, self.now_s)
            row.token_s += [self.now_s] * len(made.tokens)
        row.made = made
        self._deliver(row)

    def _has_ended(self, row: Row) -> bool:
        return row.place is Place.DONE or row in self._gone

    def _note(self, kind: WorkKind, started: float, rows: Sequence[Row], running: int) -> None:
        """Remember a unit. running: rows that had a place when it began; bytes are those of all admitted."""
        self._last = kind
        admitted = [row for row in self._rows.values() if row.admitted_s is not None]
        reserved, held = sum(r.reserved_bytes for r in admitted), sum(r.state.kv_bytes for r in admitted)
        begun, names = started - self._start_s, tuple(row.state.id for row in rows)
        seconds = self._clock() - started
        self.units.append(Unit(kind, begun, seconds, names, running, reserved, held))

    def _bring_home(self, row: Row) -> None:
        company = self._company(row)
        if company is not None:
            company.release(row.run)

    def _at_work(self) -> SessionFailed:
        got = "a call from within one: a tap, a sampler or a processor"
        return SessionFailed("a batch between two units of work was needed", got=got)

    def _company(self, row: Row) -> Companions | None:
        company = self._companions_of(row)
        return company if company is not None and row.run in company else None

    def _sweep(self) -> None:
        """Free the rows that have ended, those of a company at once."""
        gone, self._gone = [row for row in self._gone if row.place is not Place.DONE], []
        for company, runs in _by_company(gone, self._company):
            company.discard(runs)
        for row in gone:
            self._end(row)

    def _end(self, row: Row) -> None:
        self._solo.pop(row.state.id, None)
        if self._rows.get(row.state.id) is row:
            del self._rows[row.state.id]
            if row.state.id in self._running:
                self._running.remove(row.state.id)
            state = row.state
            self.ended.append(
                Timing(state.id, state.client, state.arrival_s, row.admitted_s, tuple(row.token_s))
            )
        row.place = Place.DONE
        row.run.close()


def _by_company(rows: Sequence[Row], company_of: CompanionsOf) -> list[tuple[Companions, list[Any]]]:
    """The executions of these rows by their company; a row without one is left out."""
    found: dict[int, tuple[Companions, list[Any]]] = {}
    for row in rows:
        company = company_of(row)
        if company is not None:
            found.setdefault(id(company), (company, []))[1].append(row.run)
    return list(found.values())


def _padding_bytes(rows: Sequence[Row]) -> int:
    """Bytes that the rows take beyond their own when each is as long as the longest."""
    reserved = [row.reserved_bytes for row in rows]
    return len(reserved) * max(reserved) - sum(reserved)
