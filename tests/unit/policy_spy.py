"""A policy that walks everything it can reach from what it is shown, and remembers of which types it is."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from types import ModuleType
from typing import ClassVar

from labkit.schedule.policies import in_order
from labkit.schedule.policy import Decode, PolicySpec, Prefill, Work
from labkit.schedule.queue import Queue


class Spy:
    """Arrival order, decoding first. types: of all that was reached. seen: how many things."""

    SPEC: ClassVar[PolicySpec] = PolicySpec("spy", "looks around")

    def __init__(self) -> None:
        self.types: set[type] = set()
        self.seen = 0

    def admit(self, queue: Queue) -> Sequence[str]:
        self.look(queue)
        return in_order(queue.waiting)

    def next(self, queue: Queue) -> Work:
        self.look(queue)
        return Decode() if queue.decoding else Prefill(queue.prefilling[0].id)

    def look(self, value: object) -> None:
        """Take note of a value and of everything within its reach."""
        known, rest = set[int](), [value]
        while rest:
            one = rest.pop()
            self.seen += 1
            if id(one) in known:
                continue
            known.add(id(one))
            self.types.add(type(one))
            # A class or a module leads to all of Python, for whoever imports it too.
            rest += [found for found in gc.get_referents(one) if not isinstance(found, type | ModuleType)]
