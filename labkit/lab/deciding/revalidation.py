"""Revalidation: what became of promoted experiments that were measured again, and how it shows itself."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from labkit.lab.deciding.decided import Decided

State = Literal["holds", "not settled", "reopened", "skipped", "not run"]
# States after which nothing is left to do.
_SETTLED = ("holds", "skipped")


@dataclass(frozen=True, slots=True)
class Revalidated:
    """One promoted experiment. why: reasons, none where it holds. record: the run id of the new record.

    state: `holds`; `not settled` (it stays promoted, and is to be measured again); `reopened` (decided says
    what was done); `skipped` (nothing to measure here, or decided otherwise meanwhile); `not run` (it could
    not be measured).
    """

    name: str
    state: State
    why: tuple[str, ...] = ()
    record: str = ""
    decided: Decided | None = None
    next_step: str = ""

    def lines(self) -> Iterator[tuple[str, str]]:
        """Label -> text, the reasons first."""
        yield from (("why", " ".join(reason.split())) for reason in self.why)
        if self.record:
            yield "record", self.record
        if self.state == "not settled":
            yield "next", f"labkit revalidate {self.name} --pairs N; it stays promoted"
        elif self.next_step:
            yield "next", self.next_step
        yield from (line for line in (self.decided.lines if self.decided else ()) if line[0] != "why")

    def text(self) -> str:
        """A headline and a labelled line each."""
        return "\n".join([f"{self.name}: {self.state}", *(f"{f'{k}:':<11}{v}" for k, v in self.lines())])

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "state": self.state,
            "why": list(self.why),
            "record": self.record,
            "next_step": self.next_step,
        }


@dataclass(frozen=True, slots=True, repr=False)
class Revalidation:
    """The results in the order in which they were measured. ok: whether nothing is left to do."""

    results: tuple[Revalidated, ...]

    @property
    def ok(self) -> bool:
        return all(result.state in _SETTLED for result in self.results)

    def sentence(self) -> str:
        """All results in a line."""
        counts = Counter(result.state for result in self.results)
        parts = [f"{counts[s]} {s}" for s in ("holds", "not settled", "reopened", "skipped", "not run")]
        told = ", ".join(part for part in parts if not part.startswith("0 "))
        return f"Promoted experiments: {told or 'none'}."

    def to_json(self) -> dict[str, Any]:
        return {"ok": self.ok, "results": [result.to_json() for result in self.results]}

    def __repr__(self) -> str:
        return f"<Revalidation {self.sentence()}>"

    def _repr_html_(self) -> str:
        items = "".join(f"<li><pre>{html.escape(result.text())}</pre></li>" for result in self.results)
        return f"<p>{html.escape(self.sentence())}</p><ul>{items}</ul>"
