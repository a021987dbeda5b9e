"""Pairs of visits in seeded ABBA order, on any two runners. Knows no processes and no verdicts."""

from __future__ import annotations

import random
from typing import Literal

Role = Literal["baseline", "candidate"]
ROLES: tuple[Role, Role] = ("baseline", "candidate")


def visit_order(pairs: int, seed: int) -> tuple[tuple[Role, Role], ...]:
    """The order within each pair. Two successive pairs mirror each other (ABBA or BAAB, a seeded coin each).

    A linear drift over four visits cancels in every such quad.
    """
    coin = random.Random(seed)
    order: list[tuple[Role, Role]] = []
    while len(order) < pairs:
        first = ROLES if coin.random() < 0.5 else (ROLES[1], ROLES[0])
        order += [first, (first[1], first[0])]
    return tuple(order[:pairs])
