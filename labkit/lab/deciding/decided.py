"""Decided: a decision that was made, and how it shows itself. Computes nothing."""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path

from labkit.core.decision import Decision


@dataclass(frozen=True, slots=True, repr=False)
class Decided:
    """decision: as the index holds it. file: where the experiment's file lies now, None where it is gone.

    lines: label -> text of what was done and what comes next. The last line of a cell shows them.
    """

    decision: Decision
    file: Path | None
    lines: tuple[tuple[str, str], ...]

    def text(self) -> str:
        """A headline and a labelled line each for what was done and what comes next."""
        rows = (f"{label + ':':<11}{text}" for label, text in self.lines)
        return "\n".join([self._head(), *rows])

    def __repr__(self) -> str:
        return f"<Decided {self._head()}>"

    def _repr_html_(self) -> str:
        rows = (f"<tr>{_cell(label)}{_cell(text)}</tr>" for label, text in self.lines)
        return f"<p><b>{html.escape(self._head())}</b></p><table>{''.join(rows)}</table>"

    def _head(self) -> str:
        return f"{self.decision.name}: {self.decision.kind} on {self.decision.decided_at}"


def as_first_given(first: str, now: str) -> tuple[tuple[str, str], ...]:
    """The line of a decision that was torn and is ended: its own reason stands, and not the one given now."""
    told = f"as first given: {first}" + ("" if now.strip() == first else "; the one given now was not taken")
    return (("why", " ".join(told.split())),)


def _cell(text: str) -> str:
    """Jupyter sets the cells of a table to the right unless they say otherwise."""
    return f'<td style="text-align:left">{html.escape(text)}</td>'
