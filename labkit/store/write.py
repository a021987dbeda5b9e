"""Write: one record becomes one file that never changes. Knows the folder layout, not what a record means."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from labkit.core.errors import RecordInvalid
from labkit.core.records import Record

_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def write_record(record: Record, root: Path | str) -> Path:
    """Write `root/results/<machine slug>/<run_id>.json` whole and durably, or nothing at all.

    The text goes to a hidden temporary name, is fsynced and then linked to its name, which fails where that
    name exists. Raise RecordInvalid for a taken or unsafe name, NaN, infinities or values JSON cannot hold.
    """
    target = record_path(record, Path(root))
    text = record_text(record)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        _write_durably(temporary, text)
        _publish(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(target.parent)
    return target


def record_path(record: Record, root: Path) -> Path:
    """Where a record lies below the lab root. Raise RecordInvalid where a name is no plain file name."""
    slug, run_id = record.machine.get("slug"), record.run_id
    for part, name in (("machine slug", slug), ("run id", run_id)):
        if not isinstance(name, str) or not _SAFE_NAME.fullmatch(name):
            raise RecordInvalid(
                f"a {part} of letters, digits, dots, dashes and underscores was needed", got=name
            )
    return root / "results" / str(slug) / f"{run_id}.json"


def record_text(record: Record) -> str:
    """Pretty JSON with sorted keys and a last newline. Raise RecordInvalid for what JSON cannot hold."""
    data = record.to_json()
    bad = next(_not_finite(data, ""), None)
    if bad is not None:
        where, value = bad
        raise RecordInvalid("finite numbers were needed in a record", got=f"{value} at {where}")
    try:
        return json.dumps(data, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise RecordInvalid("a record of plain JSON values was needed", got=str(error)) from error


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


def _write_durably(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _publish(temporary: Path, target: Path) -> None:
    """Give the finished file its name, never over another file."""
    try:
        os.link(temporary, target)
    except FileExistsError as error:
        raise _taken(target) from error
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        _rename_under_claim(temporary, target)


def _rename_under_claim(temporary: Path, target: Path) -> None:
    """The same without hard links: who creates the claim file may rename, and run ids never come twice."""
    claim = target.with_name(f".{target.name}.claim")
    try:
        claim.open("x").close()
    except FileExistsError as error:
        raise _taken(target) from error
    try:
        if target.exists():
            raise _taken(target)
        temporary.rename(target)
    finally:
        claim.unlink()


def _taken(target: Path) -> RecordInvalid:
    name = f"{target.parent.name}/{target.name}"
    return RecordInvalid(
        "a run id that has no record yet was needed", got=f"{name}, which is never overwritten"
    )


def _sync_folder(folder: Path) -> None:
    """Make the new name itself durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
