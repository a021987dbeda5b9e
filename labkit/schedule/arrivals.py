"""Arrivals: which requests come when. From a list, or from a seed."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from labkit.core.errors import LabkitError

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request to come. max_tokens: what it asks for. new_tokens: after how many it really ends.

    new_tokens None takes max_tokens. No policy sees it: an end-of-text token is not known in advance.
    """

    id: str
    at_s: float
    prompt_tokens: int
    max_tokens: int
    new_tokens: int | None = None
    client: str = ""

    def __post_init__(self) -> None:
        ends = self.max_tokens if self.new_tokens is None else self.new_tokens
        if not math.isfinite(self.at_s) or min(self.at_s, self.prompt_tokens - 1, ends - 1) < 0:
            need = "a time of 0 s or later and at least one prompt and one new token were needed"
            raise LabkitError(need, got=self)
        if ends > self.max_tokens:
            raise LabkitError(f"new_tokens of at most max_tokens was needed for {self.id}", got=ends)

    @property
    def tokens(self) -> int:
        """Tokens that it really generates."""
        return self.max_tokens if self.new_tokens is None else self.new_tokens


def poisson(
    rate_per_s: float,
    count: int,
    *,
    prompt_tokens: int | Range = 256,
    max_tokens: int | Range = 64,
    seed: int = 0,
    clients: int = 1,
) -> tuple[Arrival, ...]:
    """An open loop: `count` requests with exponential gaps of mean 1 / rate_per_s, the same for a seed.

    prompt_tokens, max_tokens: one number, or (lowest, highest) to draw from evenly. clients: take turns.
    """
    if not 0 < rate_per_s < math.inf or count < 0 or clients < 1:
        got = f"rate_per_s={rate_per_s}, count={count}, clients={clients}"
        raise LabkitError("a rate above 0, a count of 0 or more and at least 1 client were needed", got=got)
    draw, now_s, found = random.Random(seed), 0.0, list[Arrival]()
    for index in range(count):
        now_s += draw.expovariate(rate_per_s)
        prompt, new = _drawn(draw, prompt_tokens), _drawn(draw, max_tokens)
        found.append(Arrival(f"r{index}", now_s, prompt, new, client=f"c{index % clients}"))
    return tuple(found)


def closed(
    count: int, *, prompt_tokens: int | Range = 256, max_tokens: int | Range = 64, seed: int = 0
) -> tuple[Arrival, ...]:
    """The requests that the clients of a closed loop share: all there at 0 s, each sent by whoever is free.

    prompt_tokens, max_tokens: as `poisson` takes them.
    """
    if count < 0:
        raise LabkitError("a count of 0 or more was needed", got=f"count={count}")
    draw = random.Random(seed)
    sizes = ((_drawn(draw, prompt_tokens), _drawn(draw, max_tokens)) for _ in range(count))
    return tuple(Arrival(f"r{index}", 0.0, prompt, new) for index, (prompt, new) in enumerate(sizes))


def _drawn(draw: random.Random, tokens: int | Range) -> int:
    if isinstance(tokens, int):
        return tokens
    lowest, highest = tokens
    if lowest > highest:
        raise LabkitError("a range (lowest, highest) of tokens was needed", got=tokens)
    return draw.randint(lowest, highest)
