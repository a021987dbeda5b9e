"""Workload: what an arm is made to do: how many requests, how long, and when they come. Data only."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import PurePath
from typing import Any

from labkit.core.canonical import digest, stated

CLOSED, POISSON, TRACE = "closed", "poisson", "trace:"


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests of prompt_tokens prompt tokens, each with new_tokens decoded.

    concurrency: clients of a closed loop; each sends a request once its last one is answered. requests: in
    all; None is one a client, and every line of a trace.
    arrivals: `closed`; `poisson`, an open loop of rate_per_s requests a second on average, whether those
    before are answered or not; or `trace:<file>`, a .jsonl or .csv that says when which request comes.
    prompt_tokens_low, new_tokens_low: where stated, each request's length is drawn evenly from it up to
    prompt_tokens or new_tokens. A trace states its own lengths, which are at most those.
    ttft_objective_s, tpot_objective_s: what a request has to meet, all that are stated, to count as goodput.
    trace_sha256: of the trace's bytes, 16 digits, filled in where it is read.
    seed: of lengths and arrivals, which every visit repeats, and with the visit's own seed of token ids.
    """

    prompt_tokens: int
    new_tokens: int
    concurrency: int = 1
    seed: int = 0
    requests: int | None = None
    arrivals: str = CLOSED
    rate_per_s: float | None = None
    prompt_tokens_low: int | None = None
    new_tokens_low: int | None = None
    ttft_objective_s: float | None = None
    tpot_objective_s: float | None = None
    trace_sha256: str = ""

    @property
    def several(self) -> bool:
        """Whether it may be more than one request."""
        return self.concurrency > 1 or self.arrivals != CLOSED or (self.requests or 1) > 1

    @property
    def uniform(self) -> bool:
        """Whether every request has the same lengths, as stated."""
        return self.trace is None and self.prompt_tokens_low is None and self.new_tokens_low is None

    @property
    def steady(self) -> bool:
        """Whether a fixed number of equal requests runs at any time."""
        return self.arrivals == CLOSED and self.uniform

    @property
    def count(self) -> int | None:
        """How many requests there are; None of a trace that has not been read."""
        return self.requests if self.trace is not None else self.requests or self.concurrency

    @property
    def trace(self) -> str | None:
        """The path of its trace."""
        return self.arrivals.removeprefix(TRACE) if self.arrivals.startswith(TRACE) else None

    def identity(self) -> dict[str, Any]:
        return asdict(self)

    def portable(self) -> Workload:
        """As a record holds it: a trace by its name alone, wherever it lies."""
        return self if self.trace is None else replace(self, arrivals=f"{TRACE}{PurePath(self.trace).name}")

    def hash(self) -> str:
        return digest(stated(self.portable()))

    def label(self) -> str:
        """A short human name: lengths, and whatever makes it more than one request."""
        prompt = _range(self.prompt_tokens_low, self.prompt_tokens)
        sizes = f"{prompt}+{_range(self.new_tokens_low, self.new_tokens)}"
        return f"{sizes}{self._arriving()}{self._in_all()}"

    def _arriving(self) -> str:
        if self.trace is not None:
            return f" {PurePath(self.trace).name}"
        if self.arrivals == POISSON:
            return f" at {self.rate_per_s or 0:g}/s"
        return "" if self.concurrency == 1 else f" x{self.concurrency}"

    def _in_all(self) -> str:
        return "" if self.requests in (None, self.concurrency) else f" of {self.requests}"


def _range(low: int | None, high: int) -> str:
    return str(high) if low is None else f"{low}-{high}"
