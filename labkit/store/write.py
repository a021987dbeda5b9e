"""Write: one record becomes one file that never changes. Knows the folder layout, not what a record means."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from labkit.core.errors import RecordInvalid
from labkit.core.records import Record
from labkit.store.durable import write_new

_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


def write_record(record: Record, root: Path | str) -> Path:
    """Write `root/results/<machine slug>/<run_id>.json` whole and durably, or nothing at all.

    Raise RecordInvalid for a taken or unsafe name, NaN, infinities or values JSON cannot hold.
    """
    target = record_path(record, Path(root))
    try:
        write_new(target, record_text(record))
    except FileExistsError as error:
        name = f"{target.parent.name}/{target.name}"
        need = "a run id that has no record yet was needed"
        raise RecordInvalid(need, got=f"{name}, which is never overwritten") from error
    return target


def record_path(record: Record, root: Path) -> Path:
    """Where a record lies below the lab root. Raise RecordInvalid where a name is no plain file name."""
    slug, run_id = record.machine.get("slug"), record.run_id
    for part, name in (("machine slug", slug), ("run id", run_id)):
        if not is_safe_name(name):
            raise RecordInvalid(
                f"a {part} of letters, digits, dots, dashes and underscores was needed", got=name
            )
    return root / "results" / str(slug) / f"{run_id}.json"


def is_safe_name(name: object) -> bool:
    """Whether it can be the name of a record's file or folder, which leads nowhere else."""
    return isinstance(name, str) and _SAFE_NAME.fullmatch(name) is not None


def record_text(record: Record) -> str:
    """Pretty JSON with sorted keys and a last newline. Raise RecordInvalid for what JSON cannot hold.

    A file's name that came in another encoding than the locale's is put right, or shows `?` signs.
    """
    data = record.to_json()
    bad = next(_not_finite(data, ""), None)
    if bad is not None:
        where, value = bad
        raise RecordInvalid("finite numbers were needed in a record", got=f"{value} at {where}")
    try:
        text = json.dumps(data, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise RecordInvalid("a record of plain JSON values was needed", got=str(error)) from error
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _not_finite(data: Any, where: str) -> Iterator[tuple[str, float]]:
    """The path and value of every NaN or infinity, depth first."""
    if isinstance(data, float) and not math.isfinite(data):
        yield where, data
    elif isinstance(data, dict):
        for key, value in data.items():
            yield from _not_finite(value, f"{where}.{key}".lstrip("."))
    elif isinstance(data, (list, tuple)):
        for index, value in enumerate(data):
            yield from _not_finite(value, f"{where}[{index}]")
