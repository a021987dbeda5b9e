"""Pairs of visits, the arm that goes first drawn by a coin for each. Knows no processes and no verdicts."""

from __future__ import annotations

import random
from typing import Literal

Role = Literal["baseline", "candidate"]
ROLES: tuple[Role, Role] = ("baseline", "candidate")


def visit_order(pairs: int, seed: str) -> tuple[tuple[Role, Role], ...]:
    """The order within each pair: a seeded coin for each, independent of all others.

    Where the arms differ by a constant ratio, the coins alone make the sign of every pair's deviation from
    it a fair coin, whatever the noise is (drift, autocorrelation, outliers, two modes): the signed-rank test
    is then exact by randomisation (Fisher 1935; Rosenbaum, Observational Studies, 2.4), and its interval
    with it. Alternating orders such as ABBA fix half of the coins, and so leave pairs correlated.
    """
    coin = random.Random(seed)
    return tuple(ROLES if coin.random() < 0.5 else (ROLES[1], ROLES[0]) for _ in range(pairs))
