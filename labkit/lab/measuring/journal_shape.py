"""Journal shape: which fields the entries of a run's journal have, and of which types, as data."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from labkit.bench.pairs import Role
from labkit.core.journal import Entry
from labkit.core.shape import misfits
from labkit.store.write import is_safe_name

FORMAT = 2
_Data = dict[str, Any]
_Shape = Mapping[str, Any]

# A field whose type is a shape itself is a mapping that has at least those fields.
SHAPES: Mapping[str, _Shape] = {
    "header": {
        "journal_id": str,
        "experiment": _Data,
        "file": str,
        "source_hash": str,
        "pairs": int,
        "started": str,
        "provenance": {"code_hash": str, "python": str, "packages": dict[str, str]},
        "machine": {"slug": str},
        "floor": _Data,
    },
    "opened": {
        "role": Role,
        "answer": {
            "plan": _Data,
            "plan_hash": str,
            "family": str,
            "tokenizer_hash": str,
            "artifact": {
                "name": str,
                "dtype": str,
                "artifact_bytes": float | None,
                "effective_bpw": float | None,
            },
        },
    },
    "standing": {"probes": list[_Data]},
    "note": {"text": str},
    "windows": {"text_hash": str, "windows_hash": str},
    "ceilings": {"role": Role, "card": _Data},
    "parity": {"role": Role, "answer": _Data},
    "look": {"look": {"pairs": int, "alpha": float, "verdicts": dict[str, str], "stopped": bool}},
    "visit": {"visit": _Data},
    "score": {"score": _Data},
    "resumed": {"pairs": int, "gap_s": float, "partial": str},
    "sealed": {"run_id": str},
    "rescued": {"path": str},
}


def check_entry(entry: Entry) -> None:
    """Raise ValueError or KeyError where an entry is none that a run writes."""
    if entry.kind not in SHAPES:
        raise ValueError(f"no entry of a run is called {entry.kind!r}")
    _check(entry.data, SHAPES[entry.kind], entry.kind)
    time_of(entry.data["at"])
    if entry.kind == "header":
        _check_header(entry.data)


def check_fits(value: Any, hint: Any, where: str) -> None:
    """Raise ValueError where data is not of a type."""
    wrong = next(misfits(value, hint, where), None)
    if wrong is not None:
        raise ValueError(wrong)


def time_of(text: str) -> datetime:
    """A moment. Raise ValueError for what is none, or is without its time zone."""
    check_fits(text, str, "a time")
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"a time with its zone is needed, got {text}")
    return moment


def _check(data: Any, shape: _Shape, where: str) -> None:
    check_fits(data, dict, where)
    for name, hint in shape.items():
        if isinstance(hint, Mapping):
            _check(data[name], hint, f"{where}.{name}")
        else:
            check_fits(data[name], hint, f"{where}.{name}")


def _check_header(data: Mapping[str, Any]) -> None:
    if data.get("format") != FORMAT:
        raise ValueError(f"a journal of format {FORMAT} is needed, got {data.get('format')!r}")
    if data["pairs"] < 1:
        raise ValueError(f"header.pairs: at least 1 is needed, got {data['pairs']}")
    for name in (data["journal_id"], data["machine"]["slug"]):
        if not is_safe_name(name):
            raise ValueError(f"a plain file name is needed, got {name!r}")
