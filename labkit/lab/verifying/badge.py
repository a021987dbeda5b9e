"""Badge: whether a model is still `verified` here and now, and what took that away where it is not.

A badge holds for what was measured: any change of labkit's code or version, of mlx, its backend or mlx-lm, of
the artifact or of the machine class loses it, and so does a record that is gone, changed or says otherwise.
Reads only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import labkit
from labkit.core.decision import Evidence
from labkit.core.errors import BackendMissing, LabkitError
from labkit.lab.measuring.provenance import code_hash, machine_class, packages
from labkit.lab.verifying.carried import deciding, uncarried
from labkit.model.artifact import Artifact
from labkit.model.backend import prepare
from labkit.store.badges import Badge, read_badges
from labkit.store.files import is_record
from labkit.store.read import Damaged, check_inside, read_record
from labkit.store.regular import read_bytes

_DIGITS = 12
# What reading a record raises that holds no usable numbers.
_UNUSABLE = (OSError, LabkitError, LookupError, TypeError, ValueError, AttributeError, OverflowError)


@dataclass(frozen=True, slots=True)
class Here:
    """What a badge must agree with. machine: the slug of this machine class. backend: device and BLAS."""

    machine: str
    backend: str
    labkit_version: str
    code_hash: str
    packages: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Standing:
    """A badge as it stands: `verified` where nothing is `lost`, else what was, a phrase each."""

    badge: Badge
    lost: tuple[str, ...]

    @property
    def verified(self) -> bool:
        return not self.lost

    def sentence(self) -> str:
        """The standing in a line."""
        day = self.badge.verified_at[:10]
        if self.lost:
            return f"verified on {day}, lost since then: {'; '.join(self.lost)}"
        bound = f"decode at least {self.badge.lower_bound:.3f}x mlx-lm's"
        still = f"; open: {', '.join(self.badge.open_checks)}" if self.badge.open_checks else ""
        return f"verified on {day}: mlx-lm's bits, {bound}{still}"

    def to_json(self) -> dict[str, Any]:
        return {"verified": self.verified, "lost": list(self.lost), "badge": asdict(self.badge)}


@dataclass(frozen=True, slots=True)
class Standings:
    """The badges of several models. found: (name, fingerprint) -> standing. damaged: files that are none."""

    found: Mapping[tuple[str, str], Standing]
    damaged: tuple[Damaged, ...]

    def of(self, artifact: Artifact) -> Standing | None:
        return self.found.get((artifact.name, artifact.fingerprint))


def here() -> Here:
    """What this process runs on. Imports mlx. Raises BackendMissing without one that works."""
    backend = prepare()
    computes = f"{backend.device}/{backend.blas}" if backend.blas else backend.device
    versions, slug = deciding(packages()), machine_class(backend)["slug"]
    return Here(slug, computes, labkit.__version__, code_hash(), versions)


def badge_of(
    root: Path,
    name: str,
    fingerprint: str,
    now: Here | None,
    badges: Sequence[Badge],
    others: Collection[str] = (),
) -> Standing | None:
    """The badge of a model as it stands, the one that lost least where there are several; None without one.

    now: None where no mlx works. badges: those of the lab. others: fingerprints of other models that are
    here, whose badges are theirs whatever they are called.
    """
    mine = [badge for badge in badges if badge.fingerprint == fingerprint]
    mine += [b for b in badges if b.model == name and b.fingerprint not in {fingerprint, *others}]
    found = [Standing(badge, tuple(_lost(root, badge, fingerprint, now))) for badge in mine]
    newest_first = sorted(found, key=lambda standing: standing.badge.verified_at, reverse=True)
    return min(newest_first, key=lambda standing: len(standing.lost), default=None)


def standings(root: Path, artifacts: Sequence[Artifact]) -> Standings:
    """The badges of models as they stand in a lab. Imports mlx only where the lab has a badge of one."""
    read = read_badges(root)
    names, fingerprints = ({getattr(a, key) for a in artifacts} for key in ("name", "fingerprint"))
    near = [b for b in read.found if b.model in names or b.fingerprint in fingerprints]
    found: dict[tuple[str, str], Standing] = {}
    now = _here_if_any() if near else None
    for artifact in artifacts if near else ():
        which = (artifact.name, artifact.fingerprint)
        standing = badge_of(root, *which, now, near, fingerprints)
        found |= {which: standing} if standing else {}
    return Standings(found, read.damaged)


def _here_if_any() -> Here | None:
    """None where no mlx works: models are listed there too."""
    try:
        return here()
    except BackendMissing:
        return None


def _lost(root: Path, badge: Badge, fingerprint: str, now: Here | None) -> Iterator[str]:
    if now is None:
        yield "no mlx works here that it could be true of (labkit doctor)"
        return
    if badge.fingerprint != fingerprint:
        yield f"the artifact changed ({badge.fingerprint[:_DIGITS]}, now {fingerprint[:_DIGITS]})"
    for field, what in (("machine", "machine class"), ("backend", "backend"), ("labkit_version", "labkit")):
        if getattr(badge, field) != getattr(now, field):
            yield f"another {what} ({getattr(badge, field)}, now {getattr(now, field)})"
    if badge.code_hash != now.code_hash:
        yield f"labkit's code changed ({badge.code_hash}, now {now.code_hash})"
    for package in sorted({*badge.packages, *now.packages}):
        then, today = (versions.get(package, "none") for versions in (badge.packages, now.packages))
        if then != today:
            yield f"{package} changed ({then}, now {today})"
    if not badge.records:
        yield "it names no record"
    for item in badge.records:
        yield from _evidence_lost(root, badge, item)


def _evidence_lost(root: Path, badge: Badge, item: Evidence) -> Iterator[str]:
    """What is wrong with a record that a badge rests on."""
    path = root / item.path
    if not is_record(item.path):
        yield f"{item.path} is no record of this lab"
        return
    try:
        check_inside(path, root)
        if hashlib.sha256(read_bytes(path)).hexdigest() != item.sha256:
            yield f"{item.path} is not what it rested on: its SHA-256 differs"
            return
        found = tuple(uncarried(read_record(path), badge, item))
        yield from (f"{item.path} does not carry it: {why}" for why in found)
    except _UNUSABLE as error:
        reason = getattr(error, "strerror", None) or getattr(error, "need", None) or _said(error)
        yield f"{item.path} cannot be read ({reason})"


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
