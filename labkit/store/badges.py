"""Badges: `results/verified/*.json`, one for each model that passed `labkit verify` on a machine class.

Knows the files and their form; what a badge still says of today is `labkit.lab.verifying.badge`'s.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from labkit.core.decision import Evidence
from labkit.core.errors import RecordInvalid
from labkit.core.shape import misfits
from labkit.store.durable import remove, replace_text
from labkit.store.files import RESULTS, VERIFIED, shown
from labkit.store.read import Damaged, one_line
from labkit.store.regular import read_bytes

SCHEMA = 1
_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+")
_PREFIX = 12


@dataclass(frozen=True, slots=True)
class ParityFact:
    """What was compared with an oracle. found: what was seen, in words.

    status: `passed`, or `skipped` where the model cannot run it. prompt_tokens: 0 where no prompt was.
    """

    kv: str
    prompt_tokens: int
    status: str
    found: str


@dataclass(frozen=True, slots=True)
class Badge:
    """A model that passed `labkit verify`. machine: the slug of the machine class. verified_at: ISO, in UTC.

    packages: the versions of mlx, its backend and mlx-lm. backend: device and BLAS. lower_bound: of decode
    over mlx-lm's, the interval's lower end over `pairs` pairs. open_checks: what nothing checks yet.
    """

    model: str
    fingerprint: str
    machine: str
    backend: str
    verified_at: str
    labkit_version: str
    code_hash: str
    packages: Mapping[str, str]
    lower_bound: float
    pairs: int
    parity: tuple[ParityFact, ...]
    open_checks: tuple[str, ...]
    records: tuple[Evidence, ...]
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class Badges:
    """Every badge of a lab, and every file that should have been one."""

    found: tuple[Badge, ...]
    damaged: tuple[Damaged, ...]


def badge_path(root: Path, model: str, fingerprint: str, machine: str) -> Path:
    """Where the badge of a model and machine class lies; the slash of a hub id becomes `--`."""
    name = _UNSAFE.sub("-", model.replace("/", "--")).strip(".-") or "model"
    return root / RESULTS / VERIFIED / f"{name}-{fingerprint[:_PREFIX]}-{machine}.json"


def write_badge(badge: Badge, root: Path) -> Path:
    """Write a badge durably, in place of an older one of the same model and machine class."""
    path = badge_path(root, badge.model, badge.fingerprint, badge.machine)
    text = json.dumps(asdict(badge), sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    replace_text(path, text + "\n")
    return path


def withdraw_badge(root: Path, model: str, fingerprint: str, machine: str) -> bool:
    """Remove a badge durably, a damaged one too; whether there was one."""
    path = badge_path(root, model, fingerprint, machine)
    was_there = path.is_file() or path.is_symlink()
    remove(path)
    return was_there


def read_badges(root: Path) -> Badges:
    """All badges of a lab, oldest first; what cannot be read is listed and left alone."""
    found: list[Badge] = []
    damaged: list[Damaged] = []
    folder = root / RESULTS / VERIFIED
    paths = sorted(folder.glob("*.json")) if folder.is_dir() else []
    for path in (path for path in paths if not path.name.startswith(".")):
        try:
            found.append(read_badge(path))
        except RecordInvalid as error:
            damaged.append(Damaged(shown(path.relative_to(root).as_posix()), shown(one_line(error))))
    found.sort(key=lambda badge: (badge.verified_at, badge.model))
    return Badges(tuple(found), tuple(damaged))


def read_badge(path: Path) -> Badge:
    """One badge. Raises RecordInvalid where the file is none, or does not lie where it belongs."""
    try:
        data = json.loads(read_bytes(path).decode("utf-8"), parse_constant=_refuse_constant)
        badge = _badge(data)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _unreadable(path, _reason(error)) from error
    wrong = next(misfits(badge, Badge, "badge"), "") or _odd_date(badge.verified_at)
    if wrong:
        raise _unreadable(path, wrong)
    needed = badge_path(Path(), badge.model, badge.fingerprint, badge.machine).name
    if path.name != needed:
        raise RecordInvalid(f"this badge belongs at {RESULTS}/{VERIFIED}/{needed}", got=path.name)
    return badge


def _badge(data: Any) -> Badge:
    """The badge of JSON data; raises what the wrong data makes Python raise."""
    if data["schema"] != SCHEMA:
        raise ValueError(f"schema {data['schema']!r}; this labkit reads {SCHEMA}")
    listed = {
        "parity": tuple(ParityFact(**fact) for fact in data["parity"]),
        "open_checks": tuple(data["open_checks"]),
        "records": tuple(Evidence(**item) for item in data["records"]),
    }
    return Badge(**{**data, **listed})


def _odd_date(verified_at: str) -> str:
    """What is wrong with the time of a verification; empty where it is one, with its date in front."""
    with suppress(ValueError):
        if datetime.fromisoformat(verified_at).date().isoformat() == verified_at[:10]:
            return ""
    return f"badge.verified_at: an ISO date and time is needed, got {verified_at!r}"


def _unreadable(path: Path, reason: str) -> RecordInvalid:
    return RecordInvalid(f"a readable badge was needed in {path.name}", got=reason)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"the number {name}")


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return f"{type(error).__name__}: {error}"
