"""Joint: autoregressive runs that decode in one forward, a token each. Knows no sessions and no scheduling.

The forward after this one is queued before the tokens of this one are read, as for a run alone. A run that
ends by length leaves before the next forward; what a sampler, processor or cache raises ends one run.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

import mlx.core as mx

from labkit.core.step import Step
from labkit.engine.chunk import new_costs
from labkit.engine.forward import Forward
from labkit.engine.method import Clock
from labkit.kv.base import Scheme
from labkit.kv.layout import GPU_PADDING_LIMIT, NO_PADDING, PADDING_LIMIT
from labkit.kv.together import Together
from labkit.model.positions import why_even

# mlx-lm returns freed buffers to the system every 512 steps of a batch.
CLEAR_EVERY = 512


@dataclass(frozen=True, slots=True)
class Share:
    """What a step of several rows says of one: its beginning, the row's bytes, and the rows."""

    started: float
    kv_bytes: int
    rows: int


class Lending(Protocol):
    """A run that can lend its caches and have its forwards queued by others meanwhile."""

    def lend(self) -> tuple[list[Any], Scheme]:
        """Give the caches away, until `take_back`."""
        ...

    def take_back(self, caches: list[Any]) -> None: ...

    def limit_part(self, seconds: float | None, learnt: deque[float]) -> None:
        """How long a part of its prompt may take, None for no limit; learnt: see `Pace`."""
        ...

    def look_at(self, names: Sequence[str]) -> None:
        """What its lent caches are, as `kv.base.describe` says it."""
        ...

    @property
    def flight(self) -> Forward | None:
        """The forward whose token is committed next; None before the first."""
        ...

    @property
    def next_token(self) -> mx.array:
        """The token `(1,)` that its next forward feeds."""
        ...

    @property
    def goes_on(self) -> bool:
        """Whether a forward comes after the one in flight."""
        ...

    @property
    def draws_plainly(self) -> bool:
        """Whether its tokens are the argmax of the logits as they are, and nothing more is kept of them."""
        ...

    @property
    def gives_logprobs(self) -> bool:
        """Whether its steps hold log-probabilities, which another thread may read."""
        ...

    def feed(self) -> None:
        """Count `next_token` as fed."""
        ...

    def draw(self, logits: mx.array) -> Forward:
        """Draw from the logits `(1, vocab)` of the last forward. Raises what a sampler raises."""
        ...

    def begin(self, upcoming: Forward) -> None:
        """Take the first forward as the one in flight."""
        ...

    def commit(self, token: int, upcoming: Forward | None, share: Share) -> Step:
        """Commit the token of the forward in flight; `upcoming` is in flight then."""
        ...

    def fail(self, error: BaseException) -> None:
        """Let the next step raise this."""
        ...


class Joint:
    """The runs that decode together, and their caches as one.

    The runs keep everything but their caches. Between two calls every run is alive by itself once it is
    released.
    """

    def __init__(self, graph: Any, clock: Clock, *, by_name: bool, gpu: bool = False) -> None:
        """by_name: see `Together`. gpu: whether a call of a kernel costs more than what it pads."""
        self._graph, self._clock = graph, clock
        self._runs: list[Lending] = []
        self._limit = self._most_padding = GPU_PADDING_LIMIT if gpu else PADDING_LIMIT
        self._new = partial(Together, by_name=by_name, why_even=why_even(graph))
        self._together = self._new(padding_limit=self._limit)
        self._learnt = new_costs()
        self._steps = 0

    def __len__(self) -> int:
        return len(self._runs)

    def __contains__(self, run: object) -> bool:
        return any(run is own for own in self._runs)

    def add(self, runs: Sequence[Lending]) -> None:
        """Let these runs decode with the others from the next step on, each with filled caches."""
        lent = [run.lend() for run in runs]
        try:
            self._together.add([caches for caches, _ in lent], [scheme for _, scheme in lent])
        except BaseException:
            for run, (caches, _) in zip(runs, lent, strict=True):
                run.take_back(caches)
            raise
        self._runs += runs

    def allow_padding(self, allowed: bool) -> None:
        """Whether rows of different lengths may share an array that is as long as the longest."""
        self._limit = self._most_padding if allowed else NO_PADDING
        self._together.pad_up_to(self._limit)

    def release(self, run: Lending) -> None:
        """Give a run its caches back: it goes on alone, or joins again later."""
        index = self._index(run)
        run.take_back(self._together.take(index))
        self.discard([run])

    def discard(self, runs: Sequence[Lending]) -> None:
        """Let go of runs that have ended, with their caches."""
        gone = {self._index(run) for run in runs}
        self._keep([index for index in range(len(self._runs)) if index not in gone])

    def advance(self) -> list[tuple[Any, Step | Exception]]:
        """One token of every run that has one in flight, and the next forward of every run that goes on.

        A run that has ended by length, or failed, is not here any more afterwards.
        """
        started, runs = self._clock(), list(self._runs)
        flights = [run.flight for run in runs]
        held = zip(runs, self._together.bytes_by_row(), strict=True)
        shares = {id(run): Share(started, kv_bytes, len(runs)) for run, kv_bytes in held}
        for run in runs:
            if not run.goes_on:
                self.inspect(run)
        self._keep([index for index, run in enumerate(runs) if run.goes_on])
        try:
            upcoming = self._dispatch() if self._runs else {}
            tokens = _read(flights)
        except Exception as error:
            # What was computed late and failed is not known by its row, and what it gave must not be read.
            self.clear()
            return [(run, _copied(error)) for run in runs]
        return self._commit(runs, flights, tokens, upcoming, shares)

    def wait(self, runs: Sequence[Lending]) -> None:
        """Return once all that is queued is computed; where that fails, the next step of each of `runs` does.

        MLX raises what failed in the background wherever somebody waits next, and only once.
        """
        flying = [run for run in runs if run.flight is not None]
        if not flying:
            return
        try:
            mx.synchronize()
        except Exception as error:
            for run in flying:
                run.fail(_copied(error))
            if any(run in self for run in flying):
                self.clear()

    def limit_part(self, run: Lending, seconds: float | None) -> None:
        """How long a part of a run's prompt may take; what a part costs, the runs learn from one another."""
        run.limit_part(seconds, self._learnt)

    def inspect(self, run: Lending) -> None:
        """Let a run see of which classes its caches are."""
        run.look_at(self._together.names(self._index(run)))

    def clear(self) -> None:
        """Drop all runs and their caches."""
        self._runs, self._together = [], self._new(padding_limit=self._limit)

    def _commit(
        self,
        runs: Sequence[Lending],
        flights: Sequence[Forward | None],
        tokens: Sequence[int],
        upcoming: dict[int, Forward],
        shares: dict[int, Share],
    ) -> list[tuple[Any, Step | Exception]]:
        found: list[tuple[Any, Step | Exception]] = []
        for run, flight, token in zip(runs, flights, tokens, strict=True):
            coming = upcoming.get(id(run))
            if flight is None:
                if coming is not None:
                    run.begin(coming)
                continue
            try:
                found.append((run, run.commit(token, coming, shares[id(run)])))
            except Exception as error:
                found.append((run, error))
        self._steps += 1
        if self._steps % CLEAR_EVERY == 0:
            mx.clear_cache()
        return found

    def _dispatch(self) -> dict[int, Forward]:
        """Queue one forward over all runs: what each of them has in flight then. Failed runs leave."""
        runs, tokens = list(self._runs), self._inputs()
        for run in runs:
            run.feed()
        try:
            logits = self._graph(tokens, cache=self._together.caches)[:, -1, :]
            self._together.settle()
        except Exception as error:
            for run in runs:
                run.fail(_copied(error))
            self.clear()
            return {}
        drawn, errors = _draw(runs, logits)
        errors.update(self._together.failures())
        for index, error in errors.items():
            runs[index].fail(error)
        self._keep([index for index in range(len(runs)) if index not in errors])
        return {id(run): drawn[i] for i, run in enumerate(runs) if i not in errors}

    def _inputs(self) -> mx.array:
        """The tokens `(rows, 1)` that are fed next: those drawn last as they are, if nobody came or went."""
        flights = [run.flight for run in self._runs]
        drawn = flights[0].drawn if flights[0] is not None else None
        same = all(f is not None and f.drawn is drawn and f.row == i for i, f in enumerate(flights))
        if drawn is not None and same and drawn.size == len(flights):
            return drawn[:, None]
        return mx.concatenate([run.next_token for run in self._runs])[:, None]

    def _keep(self, indices: Sequence[int]) -> None:
        if len(indices) == len(self._runs):
            return
        if not indices:
            self.clear()
            return
        self._together.keep(indices)
        self._runs = [self._runs[index] for index in indices]

    def _index(self, run: Lending) -> int:
        return next(index for index, own in enumerate(self._runs) if own is run)


def _draw(runs: Sequence[Lending], logits: mx.array) -> tuple[list[Any], dict[int, BaseException]]:
    """What every run draws from its row of `(rows, vocab)`, and what was raised, whatever it is, by row."""
    logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    best = mx.argmax(logprobs, axis=-1)
    found: list[Any] = []
    errors: dict[int, BaseException] = {}
    computed = [best, logprobs]
    for i, run in enumerate(runs):
        row, drawn = logits[i : i + 1], None
        try:
            if run.draws_plainly:
                drawn = Forward(row, best[i], logprobs[i : i + 1], drawn=best, row=i)
                computed += [drawn.logprobs] if run.gives_logprobs else []
            else:
                drawn = run.draw(row)
                computed += [drawn.token, drawn.logprobs, *drawn.top]
        except BaseException as error:
            errors[i] = error
        found.append(drawn)
    mx.async_eval(*computed)
    return found, errors


def _read(flights: Sequence[Forward | None]) -> list[int]:
    """The tokens of these forwards on the host, one readback for all that were drawn together."""
    read: dict[int, Any] = {}
    tokens = []
    for flight in flights:
        if flight is None:
            tokens.append(-1)
        elif flight.drawn is None:
            tokens.append(int(cast(int, flight.token.item())))
        else:
            if id(flight.drawn) not in read:
                read[id(flight.drawn)] = flight.drawn.tolist()
            tokens.append(read[id(flight.drawn)][flight.row])
    return tokens


def _copied(error: Exception) -> Exception:
    """The same error for one run alone, since each takes its traceback off and notes it."""
    try:
        made = copy.copy(error)
    except Exception:
        made = RuntimeError(f"{type(error).__name__}: {error}")
    if notes := getattr(error, "__notes__", None):
        made.__notes__ = list(notes)
    made.__cause__ = error.__cause__
    return made.with_traceback(error.__traceback__)
