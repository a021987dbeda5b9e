"""The loop of a batch on made executions: who steps with whom, who waits for what, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from labkit.core.errors import SessionFailed
from labkit.core.step import Step
from labkit.engine.batching.gap import GAP_STEPS, LEAST_STEPS, TIMED, UNTIMED_S, Gap
from labkit.engine.batching.loop import Loop
from labkit.engine.batching.row import Place, Row
from labkit.schedule.policies import DecodeFirst, PrefillFirst
from labkit.schedule.scheduler import Scheduler
from tests.unit.null_session import null_model_without_mlx

MODEL = null_model_without_mlx()
PART_S, DECODE_S, WAIT_S, REST_S = 0.5, 0.25, 0.125, 0.0625


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Run:
    """Reads its prompt in so many parts, and gives tokens alone or in company."""

    def __init__(self, clock: Clock, parts: int = 0) -> None:
        self.clock, self.parts, self.tokens = clock, parts, 0
        self.steps_alone, self.closed, self.why_not = 0, False, None

    def advance(self) -> Step:
        if self.parts:
            self.clock.now += PART_S
            self.parts -= 1
            return Step("prefill", (), None, PART_S, 8, 1, 8 if self.parts else 15)
        self.clock.now += DECODE_S
        self.steps_alone += 1
        return self.token(1)

    def token(self, rows: int) -> Step:
        self.tokens += 1
        return Step("decode", (1,), None, DECODE_S, 8, rows, 16 + self.tokens)

    def why_not_join(self) -> str | None:
        return self.why_not

    def verify(self) -> None: ...

    def close(self) -> None:
        self.closed = True


class Company:
    """Remembers what it is asked. refuses: rows that may not join those that are here; fails: that raise."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.runs = clock, list[Any]()
        self.padding, self.parts, self.waits = list[bool](), list[float | None](), list[int]()
        self.refuses: set[Any] = set()
        self.fails: set[Any] = set()
        self.asked = 0

    def __len__(self) -> int:
        return len(self.runs)

    def __contains__(self, run: object) -> bool:
        return run in self.runs

    def add(self, runs: Sequence[Any]) -> None:
        self.asked += 1
        if self.fails & set(runs):
            raise ZeroDivisionError("on joining")
        if self.refuses & set(runs):
            raise SessionFailed("another position was needed")
        self.runs += runs

    def allow_padding(self, allowed: bool) -> None:
        self.padding.append(allowed)

    def release(self, run: Any) -> None:
        self.runs.remove(run)

    def discard(self, runs: Sequence[Any]) -> None:
        self.runs = [run for run in self.runs if run not in runs]

    def wait(self, runs: Sequence[Any]) -> None:
        self.waits.append(len(runs))
        self.clock.now += WAIT_S if runs else 0

    def advance(self) -> list[tuple[Any, Step]]:
        self.clock.now += REST_S
        return [(run, run.token(len(self.runs))) for run in list(self.runs)]

    def limit_part(self, run: Any, seconds: float | None) -> None:
        self.parts.append(seconds)

    def inspect(self, run: Any) -> None: ...

    def clear(self) -> None:
        self.runs = []


class Bench:
    """A loop with one company, whose rows' steps and errors are kept."""

    def __init__(self, *, policy: Any = DecodeFirst, cap: int = 8, limit: int | None = None) -> None:
        self.clock = Clock()
        self.company, self.told = Company(self.clock), list[tuple[str, Any]]()
        self.rows: dict[str, Any] = {}
        scheduler = Scheduler(policy())
        self.loop = Loop(scheduler, cap, limit, self.clock, lambda row: self.company, self.deliver)

    def deliver(self, row: Row) -> None:
        self.told.append((row.state.id, row.made))
        if isinstance(row.made, BaseException):
            self.loop.forget(row)

    def row(self, name: str, *, parts: int = 0, most: int = 0, later: int = 0) -> Any:
        """A row whose prompt is read after so many parts."""
        request = MODEL.request([1] * (16 if parts else 1), max_tokens=100, stop_tokens=())
        row = Row(Run(self.clock, parts), MODEL.resolve(request), request)
        row.most_bytes, row.later_bytes = most, later or most
        self.rows[name] = row
        self.loop.submit(row, name)
        return row.run

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            assert self.loop.turn()

    def bench_names(self) -> set[str]:
        return {name for name, row in self.rows.items() if row.run in self.company}


def test_a_lone_row_steps_alone_and_two_step_together() -> None:
    bench = Bench()
    first = bench.row("a")
    bench.turn(2)
    assert (first.steps_alone, bench.bench_names(), bench.company.asked) == (2, set(), 0)
    bench.row("b")
    bench.turn(2)
    assert (first.steps_alone, bench.bench_names()) == (2, {"a", "b"})
    assert [made.rows for _, made in bench.told] == [1, 1, 2, 2, 2, 2]
    # The other is cancelled: who is left goes on by itself.
    bench.loop.forget(bench.rows["b"])
    assert bench.rows["b"].run.closed
    bench.turn()
    assert (first.steps_alone, bench.bench_names()) == (3, set())


def test_a_row_that_says_why_it_cannot_join_steps_alone_beside_the_others() -> None:
    bench = Bench()
    taps = bench.row("taps")
    taps.why_not = "it records taps"
    for name in "ab":
        bench.row(name)
    bench.turn(3)
    assert (taps.steps_alone, bench.bench_names()) == (3, {"a", "b"})
    # What each has queued is waited for, so that a failure of it is not another's.
    assert bench.company.waits == [3] * 3


def test_a_row_that_is_refused_tries_again_when_others_come_or_go() -> None:
    bench = Bench()
    for name in "abc":
        bench.row(name)
    odd = bench.rows["c"].run
    bench.company.refuses = {odd}
    bench.turn()
    asked = bench.company.asked
    bench.turn(5)
    assert (bench.company.asked, odd.steps_alone, bench.bench_names()) == (asked, 6, {"a", "b"})
    bench.company.refuses = set()
    bench.turn()
    assert odd.steps_alone == 7
    bench.row("d")
    bench.turn()
    assert (odd.steps_alone, bench.bench_names()) == (7, {"a", "b", "c", "d"})


def test_a_row_that_fails_when_it_joins_ends_alone_and_is_not_stepped() -> None:
    bench = Bench()
    for name in "abc":
        bench.row(name)
    broken = bench.rows["b"].run
    bench.company.fails = {broken}
    bench.turn()
    assert broken.closed
    assert broken.tokens == broken.steps_alone == 0
    assert [type(made) for name, made in bench.told if name == "b"] == [ZeroDivisionError]
    assert sorted(name for name, made in bench.told if isinstance(made, Step)) == ["a", "c"]


def test_a_row_that_is_held_back_leaves_the_others_and_comes_again() -> None:
    bench = Bench()
    for name in "abc":
        bench.row(name)
    bench.turn()
    bench.loop.park(bench.rows["b"])
    assert (bench.rows["b"].place, bench.bench_names()) == (Place.PARKED, {"a", "c"})
    bench.turn()
    assert bench.rows["b"].run.tokens == 1
    bench.loop.unpark(bench.rows["b"])
    bench.turn()
    assert (bench.rows["b"].run.tokens, bench.bench_names()) == (2, {"a", "b", "c"})


def test_a_prompt_is_read_in_parts_that_are_short_only_while_others_decode() -> None:
    bench = Bench(policy=PrefillFirst)
    bench.row("read", parts=2)
    bench.turn()
    # Nobody decodes: no limit and nothing to wait for.
    assert (bench.company.parts, bench.company.waits) == ([None], [])
    bench.turn(3)
    bench.row("comes", parts=1)
    bench.turn()
    step = DECODE_S
    assert bench.company.parts == [None, None, pytest.approx(GAP_STEPS * step - step)]
    assert bench.company.waits == [1]


def test_the_time_that_a_step_was_waited_for_is_the_steps() -> None:
    bench = Bench(policy=PrefillFirst)
    bench.row("a")
    bench.turn(TIMED)
    for index in range(TIMED):
        bench.row(f"b{index}", parts=1)
        bench.turn()
        bench.loop.forget(bench.rows[f"b{index}"])
        bench.turn()
    assert bench.company.parts[-1] == pytest.approx(GAP_STEPS * DECODE_S - (DECODE_S + WAIT_S))


def test_rows_may_be_padded_only_where_the_budget_has_room_and_until_a_row_needs_it() -> None:
    bench = Bench(limit=100)
    bench.row("long", most=40, later=40)
    bench.row("short", most=10, later=10)
    bench.turn(2)
    assert bench.company.padding == [True, True]
    # 30 bytes of padding beside 50 reserved; a row of 25 leaves room for 25.
    bench.row("comes", most=25, later=25)
    bench.loop._admit()
    assert bench.company.padding == [True, True, False]
    bench.turn()
    assert not any(bench.company.padding[2:])
    assert bench.loop.queue().free_bytes == 25


def test_what_a_row_reserves_falls_with_its_first_token() -> None:
    bench = Bench(limit=100)
    bench.row("a", parts=1, most=90, later=20)
    bench.row("b", parts=1, most=80, later=20)
    bench.turn()
    assert [row.id for row in bench.loop.queue().running] == ["a"]
    assert bench.loop.queue().free_bytes == 10
    bench.turn()
    assert bench.loop.queue().free_bytes == 80
    bench.turn(2)
    assert [row.id for row in bench.loop.queue().running] == ["a", "b"]


def test_a_snapshot_takes_its_bytes_from_who_waits() -> None:
    bench = Bench(limit=100)
    bench.row("a", most=40)
    bench.turn()
    bench.loop.check_bytes(60, "a snapshot")
    with pytest.raises(SessionFailed, match="61 bytes of the KV budget were needed for a snapshot"):
        bench.loop.check_bytes(61, "a snapshot")
    bench.loop.keep_bytes(bench.rows["a"], 30)
    bench.row("b", most=40)
    bench.turn()
    assert [row.id for row in bench.loop.queue().running] == ["a"]
    bench.loop.keep_bytes(bench.rows["a"], 0)
    bench.turn()
    assert [row.id for row in bench.loop.queue().running] == ["a", "b"]


def test_units_and_ended_requests_are_remembered() -> None:
    bench = Bench()
    bench.row("a", parts=1)
    bench.row("b")
    bench.turn(3)
    bench.loop.forget(bench.rows["a"])
    units = list(bench.loop.units)
    assert [(unit.kind, sorted(unit.ids)) for unit in units] == [
        ("decode", ["b"]),
        ("decode", ["b"]),
        ("decode", ["b"]),
    ]
    assert [unit.seconds for unit in units] == [DECODE_S] * 3
    assert [timing.id for timing in bench.loop.ended] == ["a"]


def test_a_gap_is_below_three_steps_whatever_they_took() -> None:
    gap = Gap()
    assert gap.part_s() == pytest.approx((GAP_STEPS - 1) * UNTIMED_S)
    for seconds in (0.01, 9.0, 0.01):
        gap.note(seconds, after_prefill=False)
    # One disturbed step of three does not count, and a step after a part is taken to cost as much.
    assert gap.part_s() == pytest.approx((GAP_STEPS - 1) * 0.01)
    gap.note(0.002, after_prefill=True)
    assert gap.part_s() == pytest.approx(GAP_STEPS * 0.01 - 0.002)
    for _ in range(TIMED):
        gap.note(0.1, after_prefill=True)
    assert gap.part_s() == pytest.approx(LEAST_STEPS * 0.01)
    assert GAP_STEPS < 3
