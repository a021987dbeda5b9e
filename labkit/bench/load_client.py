"""The clients of a load: they send requests, and note when tokens come. One loop, which turns the server.

Times are the client's: an open loop's request counts from the moment it was due, whether or not the server
was in the middle of a unit of work then, so that a slow server cannot hide its queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from labkit.bench.load_requests import Load
from labkit.bench.load_server import Server, Turn
from labkit.bench.visit import Meter
from labkit.schedule.outcome import Timing


@dataclass(frozen=True, slots=True)
class Worked:
    """A unit of work. seconds: from the end of the one before, or from when there was work, to its own end.

    tokens: that came with it. rows: requests that they belong to.
    """

    ended_s: float
    seconds: float
    tokens: int
    rows: int


@dataclass(frozen=True, slots=True)
class Served:
    """What the clients saw. timings: of each request, in the order of arrival. tokens: their ids.

    kv_bytes: the most that the caches of all rows took. memory: readings when the first answer was about to
    end and when all were, the larger of each.
    """

    timings: tuple[Timing, ...]
    tokens: tuple[tuple[int, ...], ...]
    units: tuple[Worked, ...]
    kv_bytes: int
    memory: dict[str, float]


class ClientClock:
    """Seconds since the clients began, without what was spent on reading meters."""

    def __init__(self, clock: Callable[[], float], wait: Callable[[float], None]) -> None:
        """wait: lets seconds pass on that clock."""
        self._clock, self._wait, self._away = clock, wait, clock()

    def now(self) -> float:
        return self._clock() - self._away

    def wait_until(self, at_s: float) -> float:
        """Let time pass up to a moment; gives that moment, or now where it is over."""
        left = at_s - self.now()
        if left > 0:
            self._wait(left)
        return max(at_s, self.now())  # a sleep may end a moment early

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Leave the time of a block out."""
        began = self._clock()
        yield
        self._away += self._clock() - began


@dataclass
class Clients:
    """The clients of one visit on their way."""

    load: Load
    server: Server
    clock: ClientClock
    meter: Meter
    _pending: deque[int] = field(default_factory=deque)
    _open: set[int] = field(default_factory=set)
    _sent_s: dict[int, float] = field(default_factory=dict)
    _token_s: dict[int, list[float]] = field(default_factory=dict)
    _tokens: dict[int, list[int]] = field(default_factory=dict)
    _units: list[Worked] = field(default_factory=list)
    _kv_bytes: int = 0
    _readings: list[dict[str, float]] = field(default_factory=list)

    def run(self) -> Served:
        """Send every request and read every answer to its end."""
        self._pending = deque(range(len(self.load.requests)))
        since = 0.0
        while self._pending or self._open:
            now = self.clock.now()
            if not self._open and self.load.clients is None:
                now = since = self.clock.wait_until(self.load.arrivals[self._pending[0]].at_s)
            self._send(now)
            turn = self.server.turn()
            ended = self.clock.now()
            self._take(turn, ended, ended - since)
            since = ended
        with self.clock.stopped():
            self._readings.append(self.meter())
        return self._served()

    def _send(self, now: float) -> None:
        """Send what is due: in a closed loop as many as there are free clients."""
        clients = self.load.clients
        while self._pending:
            index = self._pending[0]
            due = self.load.arrivals[index].at_s
            if (due > now) if clients is None else (len(self._open) >= clients):
                return
            self._pending.popleft()
            self._sent_s[index] = due if clients is None else now
            self._token_s[index], self._tokens[index] = [], []
            self.server.submit(index, self.load.requests[index])
            self._open.add(index)

    def _take(self, turn: Turn, ended_s: float, seconds: float) -> None:
        came = sum(map(len, turn.tokens.values()))
        self._units.append(Worked(ended_s, seconds, came, len(turn.tokens)))
        for index, tokens in turn.tokens.items():
            self._tokens[index] += tokens
            self._token_s[index] += [ended_s] * len(tokens)
        self._open -= set(turn.ended)
        with self.clock.stopped():
            self._kv_bytes = max(self._kv_bytes, self.server.kv_bytes())
            if not self._readings and any(self._left(index) <= 1 for index in self._open):
                self._readings.append(self.meter())

    def _left(self, index: int) -> int:
        return self.load.requests[index].max_tokens - len(self._tokens[index])

    def _served(self) -> Served:
        order = range(len(self.load.requests))
        of = self.load.arrivals
        timings = (
            Timing(of[i].id, of[i].client, self._sent_s[i], token_s=tuple(self._token_s[i])) for i in order
        )
        readings = self._readings
        memory = {name: max(r[name] for r in readings if name in r) for name in readings[-1]}
        tokens = tuple(tuple(self._tokens[i]) for i in order)
        return Served(tuple(timings), tokens, tuple(self._units), self._kv_bytes, memory)
