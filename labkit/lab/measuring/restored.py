"""Restored: a run of another process as its journal tells it (`run_journal` wrote it)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from labkit.bench.quiet import Probe
from labkit.core.errors import ExperimentInvalid, JournalInvalid, LabkitError, ScoreInvalid
from labkit.core.journal import Entry
from labkit.core.records import VisitResult
from labkit.lab.experiment import Experiment, ExperimentFile
from labkit.lab.measuring.findings import Findings
from labkit.lab.measuring.floor import Floor
from labkit.lab.measuring.journal_shape import check_entry, check_fits, time_of
from labkit.lab.measuring.keep import rescued_record
from labkit.model.quality import WindowScore
from labkit.store.journal import Prefix
from labkit.store.read import one_line

_LISTED = ("prefill_seconds", "decode_seconds", "decode_tokens")
_ODD = (KeyError, TypeError, ValueError, AttributeError, ExperimentInvalid, ScoreInvalid)


@dataclass(frozen=True, slots=True)
class Restored:
    """A run of another process. sealed: the run id of the record that it is in so far, or empty.

    last_at: when it last gave a sign of life. damaged: the first line of its journal that tells nothing of
    it, after which nothing was read; 0 where the journal is whole. rescued: where its complete record lies
    because results/ did not take it, or empty.
    """

    findings: Findings
    sealed: str
    last_at: datetime
    damaged: int = 0
    rescued: str = ""


def restore(entries: Sequence[Entry], name: str) -> Restored:
    """The run that a journal tells of. Raise JournalInvalid where an entry is none of a run.

    name: of the journal, for the message.
    """
    restored, odd = _told(entries)
    if restored is None or odd:
        raise _unreadable(name, odd or "it is empty")
    return restored


def restore_prefix(prefix: Prefix) -> Restored | None:
    """The run as a damaged journal tells it, up to the first line that is damaged or no entry of a run.

    None where that is nothing.
    """
    restored, odd = _told(prefix.entries)
    if restored is not None and not odd:
        return replace(restored, damaged=prefix.line)
    return restored


def _told(entries: Sequence[Entry]) -> tuple[Restored | None, str]:
    """The run as far as it is told, and what is wrong with the entry after that; empty where nothing is."""
    findings: Findings | None = None
    lived: list[datetime] = []
    number, odd = 0, ""
    for number, entry in enumerate(entries, start=1):
        try:
            check_entry(entry)
            findings = _with(findings, entry)
        except _ODD as error:
            odd = f"line {number}: {_said(error)}"
            break
        if entry.kind != "sealed":
            lived.append(time_of(entry.data["at"]))
    if findings is None:
        return None, odd and f"its header is missing or of another labkit; {odd}"
    told = entries[: number - 1] if odd else entries
    return Restored(findings, _sealed(told), lived[-1], number if odd else 0, _rescued(told, findings)), odd


def _with(findings: Findings | None, entry: Entry) -> Findings:
    """The findings with one more entry. Raises one of _ODD, and adds nothing, where it is none."""
    if (findings is None) != (entry.kind == "header"):
        raise ValueError(f"a header first, and one alone, was needed, got {entry.kind!r}")
    if findings is None:
        return _findings(entry.data)
    _APPLY[entry.kind](findings, entry.data)
    return findings


def _sealed(entries: Sequence[Entry]) -> str:
    """The run id that was sealed since the run last went on."""
    last = next(entry for entry in reversed(entries) if entry.kind in ("header", "resumed", "sealed"))
    return last.data["run_id"] if last.kind == "sealed" else ""


def _rescued(entries: Sequence[Entry], findings: Findings) -> str:
    """Where the complete record was written instead, as long as it is there; a full disk left no entry."""
    paths = [entry.data["path"] for entry in entries if entry.kind == "rescued"]
    told = next((path for path in reversed(paths) if Path(path).is_file()), "")
    return told or str(rescued_record(findings.machine["slug"], findings.run_id("complete")) or "")


def _findings(data: Mapping[str, Any]) -> Findings:
    experiment = Experiment.from_identity(data["experiment"])
    return Findings(
        file=ExperimentFile(experiment, Path(data["file"]), data["source_hash"]),
        started=time_of(data["started"]),
        pairs=data["pairs"],
        provenance=data["provenance"],
        machine=data["machine"],
        journal_id=data["journal_id"],
        floor=Floor.from_json(data["floor"]) if data["floor"] else None,
    )


def _opened(findings: Findings, data: Mapping[str, Any]) -> None:
    findings.measured.opened[data["role"]] = data["answer"]


def _standing(findings: Findings, data: Mapping[str, Any]) -> None:
    probes = tuple(Probe(**probe) for probe in data["probes"])
    check_fits(probes, tuple[Probe, ...], "probes")
    findings.measured.standing += probes


def _note(findings: Findings, data: Mapping[str, Any]) -> None:
    findings.notes.append(data["text"])


def _windows(findings: Findings, data: Mapping[str, Any]) -> None:
    findings.text_hash, findings.windows_hash = data["text_hash"], data["windows_hash"]


def _ceilings(findings: Findings, data: Mapping[str, Any]) -> None:
    findings.rooflines[data["role"]] = data["card"]


def _parity(findings: Findings, data: Mapping[str, Any]) -> None:
    findings.parity[data["role"]] = data["answer"]


def _look(findings: Findings, data: Mapping[str, Any]) -> None:
    findings.looks.append(data["look"])


def _visit(findings: Findings, data: Mapping[str, Any]) -> None:
    listed = {key: tuple(data["visit"][key]) for key in _LISTED}
    visit = VisitResult(**{**data["visit"], **listed})
    check_fits(visit, VisitResult, "visit")
    failed = visit.quiet.get("failed", [])
    check_fits(failed, list[str], "visit.quiet.failed")
    check_fits({name: visit.quiet[name] for name in failed}, dict[str, float], "visit.quiet")
    findings.measured.visits.append(visit)


def _score(findings: Findings, data: Mapping[str, Any]) -> None:
    score = WindowScore.from_json(data["score"])
    check_fits(score, WindowScore, "score")
    findings.scores.append(score)


def _resumed(findings: Findings, data: Mapping[str, Any]) -> None:
    findings.resumed.append({key: data[key] for key in ("at", "pairs", "gap_s", "partial")})


def _nothing(findings: Findings, data: Mapping[str, Any]) -> None:
    """That a record was written adds nothing to what was found."""


_APPLY: Mapping[str, Callable[[Findings, Mapping[str, Any]], None]] = {
    "opened": _opened,
    "standing": _standing,
    "note": _note,
    "windows": _windows,
    "ceilings": _ceilings,
    "parity": _parity,
    "look": _look,
    "visit": _visit,
    "score": _score,
    "resumed": _resumed,
    "sealed": _nothing,
    "rescued": _nothing,
}


def _said(error: Exception) -> str:
    if isinstance(error, LabkitError):
        return one_line(error)
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _unreadable(name: str, got: str) -> JournalInvalid:
    need = f"the journal of a run was needed in results/journals/{name}"
    return JournalInvalid(need, got=got, next_step="run the experiment anew; the file is left as it is")
