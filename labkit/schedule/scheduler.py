"""Scheduler: asks a policy and holds it to its word. Made for the simulator and for batches alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from labkit.schedule.admission import fitting
from labkit.schedule.policy import Decode, Policy, PolicyInvalid, Prefill, Work
from labkit.schedule.queue import Queue


@dataclass(frozen=True, slots=True)
class Scheduler:
    """Every answer of the policy is checked against the queue it was given."""

    policy: Policy

    def admit(self, queue: Queue) -> list[str]:
        """Ids to admit now, in order: at most as many as there are rows and bytes for.

        Raises PolicyInvalid where the policy names a request that does not wait, or one twice.
        """
        wanted: Any = self.policy.admit(queue)
        if not isinstance(wanted, Sequence) or isinstance(wanted, str):
            raise self._wrong("a sequence of ids from admit()", type(wanted).__name__)
        waiting = {r.id for r in queue.waiting}
        strange = [name for name in wanted if name not in waiting]
        if strange or len(set(wanted)) != len(wanted):
            got = f"{strange[0]!r}" if strange else f"one of {len(wanted)} ids twice"
            raise self._wrong("ids of waiting requests from admit(), each once", got)
        return fitting(queue, wanted)

    def next(self, queue: Queue) -> Work:
        """The next unit of work. Raises PolicyInvalid where there is no such work to do."""
        work: Any = self.policy.next(queue)
        prefilling = [r.id for r in queue.prefilling]
        if isinstance(work, Prefill) and work.id in prefilling:
            return work
        if isinstance(work, Decode) and queue.decoding:
            return work
        options = [f"Prefill({name!r})" for name in prefilling[:4]]
        raise self._wrong(
            "work that can be done from next()",
            repr(work),
            [*options, *(["Decode()"] if queue.decoding else [])],
        )

    def _wrong(self, need: str, got: str, options: Sequence[str] = ()) -> PolicyInvalid:
        return PolicyInvalid(f"policy {self.policy.SPEC.name}: {need} was needed", got=got, options=options)
