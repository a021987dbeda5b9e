"""Policy: the contract of whoever decides which requests run next. Sees a Queue and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from labkit.core.errors import LabkitError
from labkit.schedule.queue import Queue


class PolicyInvalid(LabkitError):
    """A policy that is unknown, or whose answer does not fit what it was shown."""


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """name: how a person asks for it. summary: one line on whom it favours."""

    name: str
    summary: str


@dataclass(frozen=True, slots=True)
class Prefill:
    """A chunk of the prompt of one running request. id: the request's."""

    id: str


@dataclass(frozen=True, slots=True)
class Decode:
    """One token for every running request whose prompt is read."""


Work = Prefill | Decode


class Policy(Protocol):
    """Two answers, each from the queue as it is now. An instance may remember; those of labkit do not."""

    SPEC: ClassVar[PolicySpec]

    def admit(self, queue: Queue) -> Sequence[str]:
        """Ids of waiting requests, the first to be admitted first.

        Admission goes down the list and stops at the first that has no row or no bytes, so that a large
        request is not overtaken for ever. What is left out of the list waits on.
        """
        ...

    def next(self, queue: Queue) -> Work:
        """The next unit of work. Asked only while a request runs."""
        ...
