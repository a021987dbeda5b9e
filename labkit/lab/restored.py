"""Restored: a run of another process as its journal tells it (`run_journal` wrote it)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from labkit.bench.pairs import ROLES
from labkit.bench.quiet import Probe
from labkit.core.arm import Arm, Workload
from labkit.core.errors import JournalInvalid
from labkit.core.hypothesis import Hypothesis
from labkit.core.journal import Entry
from labkit.core.records import VisitResult
from labkit.lab.experiment import Experiment, ExperimentFile, ScoreText
from labkit.lab.findings import Findings
from labkit.lab.run_journal import FORMAT
from labkit.model.quality import WindowScore

_LISTED = ("prefill_seconds", "decode_seconds", "decode_tokens")


@dataclass(frozen=True, slots=True)
class Restored:
    """A run of another process. sealed: the run id of the record that it is in so far, or empty.

    last_at: when it last gave a sign of life.
    """

    findings: Findings
    sealed: str
    last_at: datetime


def restore(entries: Sequence[Entry], name: str) -> Restored:
    """The run that a journal tells of. Raise JournalInvalid where the entries tell of none.

    name: of the journal, for the message.
    """
    if not entries or entries[0].kind != "header" or entries[0].data.get("format") != FORMAT:
        raise _unreadable(name, "its header is missing or of another labkit")
    try:
        findings = _findings(entries[0].data)
        for entry in entries[1:]:
            _APPLY[entry.kind](findings, entry.data)
        last = [entry.data["at"] for entry in entries if entry.kind != "sealed"][-1]
        return Restored(findings, _sealed(entries), datetime.fromisoformat(last))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unreadable(name, f"{type(error).__name__}: {error}") from error


def _sealed(entries: Sequence[Entry]) -> str:
    """The run id that was sealed since the run last went on."""
    last = next(entry for entry in reversed(entries) if entry.kind in ("header", "resumed", "sealed"))
    return last.data["run_id"] if last.kind == "sealed" else ""


def _findings(data: Mapping[str, Any]) -> Findings:
    return Findings(
        file=ExperimentFile(_experiment(data["experiment"]), Path(data["file"]), data["source_hash"]),
        started=datetime.fromisoformat(data["started"]),
        pairs=data["pairs"],
        provenance=data["provenance"],
        machine=data["machine"],
        journal_id=data["journal_id"],
    )


def _experiment(data: Mapping[str, Any]) -> Experiment:
    rest = dict(data)
    statement, improves, holds = (rest.pop(key) for key in ("statement", "improves", "holds"))
    score = rest.pop("score")
    return Experiment(
        hypothesis=Hypothesis(statement, improves, holds),
        workload=Workload(**rest.pop("workload")),
        score=ScoreText(**score) if score else None,
        **{role: Arm.from_identity(rest.pop(role)) for role in ROLES},
        **rest,
    )


def _opened(findings: Findings, data: Mapping[str, Any]) -> None:
    findings.measured.opened[data["role"]] = data["answer"]


def _standing(findings: Findings, data: Mapping[str, Any]) -> None:
    findings.measured.standing += tuple(Probe(**probe) for probe in data["probes"])


def _note(findings: Findings, data: Mapping[str, Any]) -> None:
    findings.notes.append(data["text"])


def _windows(findings: Findings, data: Mapping[str, Any]) -> None:
    findings.text_hash, findings.windows_hash = data["text_hash"], data["windows_hash"]


def _ceilings(findings: Findings, data: Mapping[str, Any]) -> None:
    findings.rooflines[data["role"]] = data["card"]


def _visit(findings: Findings, data: Mapping[str, Any]) -> None:
    visit = data["visit"]
    findings.measured.visits.append(VisitResult(**{**visit, **{key: tuple(visit[key]) for key in _LISTED}}))


def _score(findings: Findings, data: Mapping[str, Any]) -> None:
    findings.scores.append(WindowScore.from_json(data["score"]))


def _resumed(findings: Findings, data: Mapping[str, Any]) -> None:
    findings.resumed.append({key: data[key] for key in ("at", "pairs", "gap_s", "partial")})


def _nothing(findings: Findings, data: Mapping[str, Any]) -> None:
    """A seal adds nothing to what was found."""


_APPLY: Mapping[str, Callable[[Findings, Mapping[str, Any]], None]] = {
    "opened": _opened,
    "standing": _standing,
    "note": _note,
    "windows": _windows,
    "ceilings": _ceilings,
    "visit": _visit,
    "score": _score,
    "resumed": _resumed,
    "sealed": _nothing,
}


def _unreadable(name: str, got: str) -> JournalInvalid:
    need = f"the journal of a run was needed in results/journals/{name}"
    return JournalInvalid(need, got=got, next_step="run the experiment anew; the file is left as it is")
