"""Verification: what `labkit verify` found of a model, and how that shows itself. Computes nothing."""

from __future__ import annotations

import html
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from labkit.lab.verifying.verify_checks import Check
from labkit.store.badges import Badge


@dataclass(frozen=True, slots=True, repr=False)
class Verification:
    """The checks of one model on one machine class.

    badge: what it earned, None where a check failed or was void; path: where the badge lies. record: of the
    paired comparison, None where parity failed or was void before it. withdrawn: whether an older badge was
    taken back; kept: whether one was left, since a void check speaks neither for it nor against it.
    """

    model: str
    fingerprint: str
    machine: str
    checks: tuple[Check, ...]
    badge: Badge | None = None
    path: Path | None = None
    record: Path | None = None
    withdrawn: bool = False
    kept: bool = False

    @property
    def verified(self) -> bool:
        return self.badge is not None

    def sentence(self) -> str:
        """The result in a line or two."""
        named = {status: self._named(status) for status in ("failed", "void", "open")}
        if self.verified:
            still = f" Open, since it does not exist yet: {named['open']}." if named["open"] else ""
            return f"{self.model} is verified on {self.machine}.{still}"
        because = [f"failed: {named['failed']}"] if named["failed"] else []
        because += [f"no evidence: {named['void']}"] if named["void"] else []
        text = f"{self.model} is not verified on {self.machine}; {'; '.join(because)}."
        text += self._again()
        if self.withdrawn:
            return f"{text} Its older badge is withdrawn."
        return f"{text} Its older badge stays as it was." if self.kept else text

    def to_json(self) -> dict[str, Any]:
        badge = asdict(self.badge) if self.badge else None
        places = {"path": str(self.path or ""), "record": str(self.record or "")}
        return {"verified": self.verified, **asdict(self), "badge": badge, **places}

    def __repr__(self) -> str:
        counts = Counter(check.status for check in self.checks)
        told = ", ".join(f"{count} {status}" for status, count in counts.items())
        return f"<Verification {self.model}: {'verified' if self.verified else 'not verified'} ({told})>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr>{_cell(check.name)}{_cell(check.status)}{_cell(check.found)}</tr>" for check in self.checks
        )
        return f"<p><b>{html.escape(self.sentence())}</b></p><table>{rows}</table>"

    def _again(self) -> str:
        """What to do about checks that were void; parity is so where mlx-lm itself did not run."""
        void = [check for check in self.checks if check.status == "void"]
        where = "" if all(check.is_parity for check in void) else " on a quiet machine (labkit doctor)"
        return f" Verify it again{where}." if void else ""

    def _named(self, status: str) -> str:
        return ", ".join(check.name for check in self.checks if check.status == status)


def _cell(text: str) -> str:
    """Jupyter sets the cells of a table to the right unless they say otherwise."""
    return f'<td style="text-align:left">{html.escape(text)}</td>'
