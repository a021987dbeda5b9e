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

        Raises PolicyInvalid where the policy raises, names a request that does not wait, or one twice.
        """
        # Taken before the policy is asked, which must not answer by changing the question.
        waiting, rows = {r.id: r.reserved_bytes for r in queue.waiting}, queue.cap - len(queue.running)
        free = queue.free_bytes
        wanted: Any = self._asked("admit", queue)
        if not isinstance(wanted, Sequence) or isinstance(wanted, str):
            raise self._wrong("a sequence of ids from admit()", type(wanted).__name__)
        strange = [name for name in wanted if not isinstance(name, str) or name not in waiting]
        if strange or len(set(wanted)) != len(wanted):
            got = f"{strange[0]!r}" if strange else f"one of {len(wanted)} ids twice"
            raise self._wrong("ids of waiting requests from admit(), each once", got)
        return fitting(wanted, waiting, rows=rows, free_bytes=free)

    def next(self, queue: Queue) -> Work:
        """The next unit of work. Raises PolicyInvalid where the policy raises or there is no such work."""
        prefilling, decodes = [r.id for r in queue.prefilling], bool(queue.decoding)
        work: Any = self._asked("next", queue)
        if isinstance(work, Prefill) and work.id in prefilling:
            return work
        if isinstance(work, Decode) and decodes:
            return work
        options = [f"Prefill({name!r})" for name in prefilling[:4]]
        options += ["Decode()"] if decodes else []
        raise self._wrong("work that can be done from next()", repr(work), options)

    def _asked(self, question: str, queue: Queue) -> Any:
        try:
            return getattr(self.policy, question)(queue)
        except Exception as error:
            raise self._wrong(f"an answer from {question}()", f"{type(error).__name__}: {error}") from error

    def _wrong(self, need: str, got: str, options: Sequence[str] = ()) -> PolicyInvalid:
        return PolicyInvalid(f"policy {self.policy.SPEC.name}: {need} was needed", got=got, options=options)
