"""Origin: labkit.json in a model directory: where it came from, and what labkit has computed of it since."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labkit.core.errors import ModelUnavailable

FILE = "labkit.json"


def read_origin(directory: Path) -> dict[str, Any]:
    """The entries of labkit.json: name, family, source, sha256, dtype ...; empty where there is none."""
    try:
        data = json.loads((directory / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def write_origin(directory: Path, entries: Mapping[str, Any]) -> None:
    """Replace labkit.json in one step. Raises OSError where the directory cannot be written."""
    text = json.dumps(entries, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    handle, name = tempfile.mkstemp(dir=directory, prefix=".labkit-")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        temporary.chmod(0o644)
        temporary.replace(directory / FILE)
    finally:
        temporary.unlink(missing_ok=True)


def read_config(directory: Path) -> dict[str, Any]:
    """config.json as a dict; a bare Infinity or NaN is tagged as transformers does, so that it stays JSON.

    Raises ModelUnavailable where it is absent or no JSON object.
    """
    path = directory / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"), parse_constant=_tagged)
    except OSError as error:
        got = directory if directory.is_dir() else f"{directory}: no such directory"
        raise ModelUnavailable("config.json was needed in the model directory", got=got) from error
    except ValueError as error:
        raise ModelUnavailable("config.json with valid JSON was needed", got=error) from error
    if not isinstance(config, dict):
        raise ModelUnavailable("a JSON object was needed in config.json", got=type(config).__name__)
    return config


def name_of(directory: Path) -> str:
    """The name a person knows a directory by: labkit's own, the hub id of a snapshot, or the folder's."""
    stated = read_origin(directory).get("name")
    if stated:
        return str(stated)
    resolved = directory.resolve()
    repository = resolved.parent.parent.name
    if resolved.parent.name == "snapshots" and repository.startswith("models--"):
        return repository.removeprefix("models--").replace("--", "/", 1)
    return resolved.name


def _tagged(constant: str) -> dict[str, str]:
    return {"__float__": constant}
