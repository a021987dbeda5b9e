"""Values of a tokenizer's metadata in a GGUF file, each of its kind or refused by name; knows no meaning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from labkit.core.errors import ModelUnavailable
from labkit.model.gguf.metadata import refused
from labkit.model.wording import one_line

PREFIX = "tokenizer.ggml."
INSTEAD = "use a safetensors version of the model: a directory or a hub id"


def read_array(metadata: Mapping[str, Any], key: str, kind: type) -> Sequence[Any]:
    """An array of one kind below the prefix, empty where there is none. Raises ModelUnavailable otherwise."""
    values = metadata.get(f"{PREFIX}{key}")
    if values is None:
        return ()
    if not isinstance(values, list | tuple) or not all(type(v) is kind for v in values):
        raise refused(f"{PREFIX}{key}", values, (f"an array of {kind.__name__} values",))
    return values


def read_id(metadata: Mapping[str, Any], key: str, tokens: int) -> int | None:
    """A token id below the prefix, None where there is none. Raises ModelUnavailable for what is no id."""
    value = metadata.get(f"{PREFIX}{key}")
    if value is None:
        return None
    if type(value) is not int:
        raise refused(f"{PREFIX}{key}", value, ("a token id",))
    refuse_first({f"the id {value} of {tokens} tokens in {PREFIX}{key}": not 0 <= value < tokens})
    return value


def read_flag(metadata: Mapping[str, Any], key: str, default: bool) -> bool:
    """A truth value below the prefix. Raises ModelUnavailable for another type."""
    value = metadata.get(f"{PREFIX}{key}", default)
    if type(value) is not bool:
        raise refused(f"{PREFIX}{key}", value, ("true", "false"))
    return value


def read_choice(metadata: Mapping[str, Any], key: str, what: str, options: Sequence[str]) -> str:
    """One of some names below the prefix. Raises ModelUnavailable for any other, by name."""
    value = metadata.get(f"{PREFIX}{key}")
    if not isinstance(value, str) or value not in options:
        raise ModelUnavailable(
            f"a {what} that labkit imports from GGUF was needed",
            got=one_line(value or "none stated", 80),
            options=options,
            next_step=INSTEAD,
        )
    return value


def refuse_first(faults: Mapping[str, bool]) -> None:
    """Raise ModelUnavailable with the first fault that is present."""
    for fault, present in faults.items():
        if present:
            raise ModelUnavailable(
                "a consistent vocabulary was needed in the GGUF file",
                got=one_line(fault),
                next_step="download the file again, or name another",
            )
