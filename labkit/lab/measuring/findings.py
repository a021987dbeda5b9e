"""Findings: everything that a run has found so far, whether in this process or in one that is gone."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from labkit.bench.pairs import Role
from labkit.lab.experiment import ExperimentFile
from labkit.lab.measuring.floor import Floor
from labkit.lab.measuring.measured import Measured
from labkit.model.quality import WindowScore

_RUN_ID = re.compile(r"\d{8}T\d{6}Z-(.+)-[0-9a-f]{6}(?:-part\d+)?")


@dataclass
class Findings:
    """file: the experiment as it runs, its arms resolved. pairs: how many good pairs were asked for.

    machine, resumed, looks: as a record has them. journal_id: names the run, over its resumptions too.
    floor: the A/A control that its verdicts rest on, None where there is none. parity: role -> what its
    worker answered.
    """

    file: ExperimentFile
    started: datetime
    pairs: int
    provenance: dict[str, Any]
    machine: dict[str, Any]
    journal_id: str
    measured: Measured = field(default_factory=Measured)
    rooflines: dict[Role, dict[str, Any]] = field(default_factory=dict)
    scores: list[WindowScore] = field(default_factory=list)
    text_hash: str = ""
    windows_hash: str = ""
    notes: list[str] = field(default_factory=list)
    resumed: list[dict[str, Any]] = field(default_factory=list)
    floor: Floor | None = None
    looks: list[dict[str, Any]] = field(default_factory=list)
    parity: dict[Role, dict[str, Any]] = field(default_factory=dict)

    def run_id(self, state: Literal["complete", "partial"]) -> str:
        """The name of the record: one complete one per run, and a partial one each time that it stopped."""
        return self.journal_id if state == "complete" else f"{self.journal_id}-part{len(self.resumed) + 1}"


def name_in(run_id: str) -> str:
    """The experiment's name in the id of a run, which its journal and records are called; else empty."""
    found = _RUN_ID.fullmatch(run_id)
    return found[1] if found else ""


def new_journal_id(name: str, started: datetime) -> str:
    """A name for a run that no other has; names sort by their start."""
    return f"{started:%Y%m%dT%H%M%SZ}-{name}-{secrets.token_hex(3)}"
