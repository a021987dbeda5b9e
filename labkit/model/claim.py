"""Claim: whether a folder of the models home may become a model of a source, or holds another one already.

Two sources may give one name. Where what lies there comes from the same source it is used or made anew, and
where it does not, it is left alone and both are named.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from labkit.core.errors import ModelUnavailable
from labkit.model.fetch import BUNDLED
from labkit.model.gguf.file import parts_of, sha256_of
from labkit.model.origin import read_entries, read_origin, write_origin
from labkit.model.wording import one_line

KEPT = "-q"
# What a source of each kind is known by, whatever its content is today.
_IDENTITY: Mapping[str, tuple[str, ...]] = {
    "wheel": ("package",),
    "gguf": ("path",),
    "hub": ("repository", "file"),
    "directory": ("path",),
}
# What it is known by wherever it lies: names with sizes and times.
_CONTENT: Mapping[str, tuple[str, ...]] = {"gguf": ("file", "parts"), "directory": ("files",)}


def check_reserved(name: str, where: Path) -> None:
    """Raise ModelUnavailable where a user's file or directory would take the name of a bundled model."""
    bundled = name.removesuffix(KEPT)
    if bundled in BUNDLED:
        raise ModelUnavailable(
            f"another name was needed: {bundled} is a model that comes with labkit",
            got=where,
            next_step=f"rename it; for the bundled one, labkit models get {bundled}",
        )


def check_claim(target: Path, source: Mapping[str, Any], file: Path | None = None) -> bool:
    """Whether the target was made of the source as it is today. False where it is to be made (anew).

    file: the GGUF file, whose content is compared where nothing else tells. A source that has moved is noted.
    Raises ModelUnavailable where the target holds what did not come from the source.
    """
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return False
    there = read_origin(target).get("source", {})
    if _same(there, source, _IDENTITY):
        return there == source
    if _same(there, source, _CONTENT) or (file and _same_content(target, file)):
        _note_moved(target, source)
        return True
    raise ModelUnavailable(
        f"another name was needed: {target.name} is there already, from another source",
        got=f"{_told(there)}, and now {_told(source)}",
        next_step=f"rename the new one, or remove {target}",
    )


def _same(there: Mapping[str, Any], source: Mapping[str, Any], known_by: Mapping[str, Any]) -> bool:
    kind = source["kind"]
    keys = known_by.get(kind, ())
    if "repository" in source and kind == "directory":
        keys = ("repository",)
    return bool(keys) and there.get("kind") == kind and all(there.get(k) == source.get(k) for k in keys)


def _same_content(target: Path, file: Path) -> bool:
    """Whether a GGUF file is the one that the target was imported from, under whatever name and time."""
    stated = read_origin(target).get("sha256")
    return stated is not None and stated == sha256_of(*parts_of(file))


def _note_moved(target: Path, source: Mapping[str, Any]) -> None:
    with suppress(OSError):  # a models home may be read-only
        write_origin(target, {**read_entries(target), "source": dict(source)})


def _told(source: Mapping[str, Any]) -> str:
    keys = ("path",) if "path" in source else ("package", "repository", "file")
    parts = [str(source[key]) for key in keys if source.get(key)]
    return one_line(" ".join(parts)) or "a folder that labkit did not make"
