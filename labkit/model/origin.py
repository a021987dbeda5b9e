"""Origin: labkit.json in a model directory: where it came from, and what labkit has computed of it since.

What a model is called and where it came from is believed only of a labkit.json that states labkit's version,
as that of every import and copy does, and never in the hub's cache, where a publisher may have put it.
Elsewhere the file is a cache of the fingerprint and nothing more.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labkit.core.errors import ModelUnavailable
from labkit.model.wording import one_line

FILE = "labkit.json"
# Raised when an import of the same GGUF file comes out differently: then it is made anew.
IMPORTER = 2
# Far above any config in use; its parsed form still takes little memory.
LARGEST = 1 << 24
LONGEST = 1 << 12  # a path of the system
_TYPES: Mapping[str, type] = {
    **dict.fromkeys(("name", "family", "dtype", "sha256", "labkit_version"), str),
    **dict.fromkeys(("source", "fingerprint"), dict),
    "keep_quantized": bool,
    "importer": int,
}
_SOURCE: Mapping[str, type] = {"parts": list, "files": dict}


def read_origin(directory: Path) -> dict[str, Any]:
    """The entries of labkit.json that count: name, family, source, sha256, dtype ...; empty where none does.

    An entry of another type than labkit writes is dropped, and so are texts that are not one short line.
    """
    stated = read_entries(directory)
    found = {key: value for key, value in stated.items() if _fits(value, _TYPES.get(key))}
    if "labkit_version" not in found or hub_id(directory):
        return {key: value for key, value in found.items() if key == "fingerprint"}
    if "source" in found:
        source = found["source"].items()
        found["source"] = {key: value for key, value in source if _fits(value, _SOURCE.get(key, str))}
    return found


def read_entries(directory: Path) -> dict[str, Any]:
    """labkit.json as it stands, whoever wrote it; empty where there is none."""
    try:
        data = json.loads(_text(directory / FILE))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def terms_of(origin: Mapping[str, Any]) -> str:
    """The licence that the source of a model states, in one line; empty where it states none."""
    return one_line(origin.get("source", {}).get("terms") or "")


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
    try:
        config = json.loads(_text(directory / "config.json"), parse_constant=_tagged)
    except OSError as error:
        got = directory if directory.is_dir() else f"{directory}: no such directory"
        raise ModelUnavailable("config.json was needed in the model directory", got=got) from error
    except (ValueError, RecursionError) as error:
        need = "config.json with valid JSON was needed"
        raise ModelUnavailable(need, got=one_line(error), next_step="fetch the model again") from error
    if not isinstance(config, dict):
        raise ModelUnavailable("a JSON object was needed in config.json", got=type(config).__name__)
    return config


def name_of(directory: Path) -> str:
    """The name a person knows a directory by: labkit's own, the hub id of a snapshot, or the folder's."""
    return read_origin(directory).get("name") or hub_id(directory) or directory.resolve().name


def hub_id(directory: Path) -> str | None:
    """The repository of a snapshot in the hub's cache; None of any other directory."""
    resolved = directory.resolve()
    repository = resolved.parent.parent.name
    if resolved.parent.name == "snapshots" and repository.startswith("models--"):
        return repository.removeprefix("models--").replace("--", "/", 1)
    return None


def _fits(value: object, kind: type | None) -> bool:
    """Whether an entry is of the type that labkit writes (True is no number here)."""
    if kind is str:
        return isinstance(value, str) and 0 < len(value) <= LONGEST and value.isprintable()
    return kind is not None and type(value) is kind


def _text(file: Path) -> str:
    """The text of a small regular file. Raises OSError without one, ValueError where it is no text."""
    if not file.is_file():  # a pipe would be waited for
        raise FileNotFoundError(file)
    if file.stat().st_size > LARGEST:
        raise ValueError(f"{file.stat().st_size} bytes")
    return file.read_text(encoding="utf-8")


def _tagged(constant: str) -> dict[str, str]:
    return {"__float__": constant}
