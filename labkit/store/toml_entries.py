"""Entries: the `[[...]]` tables of a TOML file of decisions, read strictly and edited as a person would.

Knows TOML and the types of values; not what an entry decides.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any, Protocol, TypeVar

from labkit.core.errors import RecipeInvalid
from labkit.store.durable import replace_text
from labkit.store.regular import read_bytes


class Named(Protocol):
    """What bears a name that is its own in a file."""

    @property
    def name(self) -> str: ...


T = TypeVar("T")
N = TypeVar("N", bound=Named)
MEND = "mend the file by hand or take it back from git, then: labkit check"


def read_entries(path: Path, table: str, build: Callable[[Mapping[str, Any]], T]) -> tuple[T, ...]:
    """What `build` makes of every `[[table]]` of a file, in its order; nothing where there is no file.

    Raises RecipeInvalid that names the file, the line or entry, and the reason. `build` raises KeyError for a
    field that is missing and TypeError or ValueError for one that is wrong.
    """
    data = _parsed(path, read_text(path))
    unknown = sorted(set(data) - {table})
    entries = data.get(table, [])
    if unknown or not isinstance(entries, list):
        raise broken(path, f"only [[{table}]] tables are needed, got {', '.join(unknown) or table}")
    return tuple(_built(path, f"{table} {number}", entry, build) for number, entry in enumerate(entries, 1))


def read_named(path: Path, table: str, build: Callable[[Mapping[str, Any]], N]) -> tuple[N, ...]:
    """The same, where no two entries may bear one name: RecipeInvalid too where two do."""
    found = read_entries(path, table, build)
    check_names(path, table, [entry.name for entry in found])
    return found


def add_entry(path: Path, table: str, entry: Mapping[str, Any], head: str) -> None:
    """Append a `[[table]]` and keep every other byte of the file. head: the comment of a new file."""
    import tomlkit

    text = read_text(path) or f"{head}\n"
    end = line_end(text)
    fresh = tomlkit.document()
    array = tomlkit.aot()
    made = tomlkit.item(dict(entry))
    for name, value in entry.items():
        if isinstance(value, list) and len(value) > 1 and isinstance(value[0], str):
            made[name] = tomlkit.item(value).multiline(True)
    array.append(made)
    fresh.append(table, array)
    added = tomlkit.dumps(fresh).strip().replace("\n", end)
    joined = f"{text.rstrip()}{end}{end}{added}{end}"
    before = _parsed(path, text).get(table, [])
    if _entries(joined, table) != [*before, dict(entry)]:
        raise broken(path, f"[[{table}]] tables are needed, where a value such as `{table} = [...]` stands")
    replace_text(path, joined)


def remove_entry(path: Path, table: str, name: str) -> None:
    """Take out the entry of a name; the rest stays to the byte, a comment above the next entry too."""
    import tomlkit

    text = read_text(path)
    rest = [entry for entry in _parsed(path, text).get(table, []) if entry["name"] != name]
    shorter = _without(text, table, name)
    if _entries(shorter, table) != rest:  # an inline array, or a text that looks like a heading
        document = tomlkit.parse(text)
        document[table] = [entry for entry in document.unwrap()[table] if entry["name"] != name]
        shorter = tomlkit.dumps(document)
    replace_text(path, shorter.rstrip() + line_end(text))


def read_text(path: Path) -> str:
    """The text of a file with its own ends of lines, empty where there is no file.

    A byte order mark is no part of it. Raises RecipeInvalid where it is no text or no regular file.
    """
    try:
        return read_bytes(path).decode("utf-8-sig")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise broken(path, getattr(error, "strerror", None) or str(error)) from error


def line_end(text: str) -> str:
    """How the lines of a text end: as its first one does."""
    first, end, _ = text.partition("\n")
    return "\r\n" if end and first.endswith("\r") else "\n"


def broken(path: Path, reason: str) -> RecipeInvalid:
    """The one error of a file of decisions that cannot be understood."""
    need = f"a readable file of decisions was needed: experiments/{path.name}"
    return RecipeInvalid(need, got=reason, next_step=MEND)


def words(entry: Mapping[str, Any], field: str) -> str:
    """A text that is not empty."""
    value = entry[field]
    if not isinstance(value, str) or not value.strip():
        raise TypeError(f"{field}: a text is needed, got {value!r}")
    return value


def iso_date(entry: Mapping[str, Any], field: str) -> str:
    """An ISO date, quoted or as TOML's own kind of date."""
    value = entry[field]
    text = value.isoformat() if type(value) is date else value
    try:
        return date.fromisoformat(text).isoformat()
    except (TypeError, ValueError):
        raise ValueError(f"{field}: a date such as 2027-02-01 is needed, got {value!r}") from None


def texts(entry: Mapping[str, Any], field: str) -> tuple[str, ...]:
    """A list of texts; empty where the field is absent."""
    value = entry.get(field, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise TypeError(f"{field}: a list of texts is needed, got {value!r}")
    return tuple(value)


def tables(entry: Mapping[str, Any], field: str) -> list[Mapping[str, Any]]:
    """A list of tables with at least one."""
    value = entry[field]
    if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
        raise TypeError(f"{field}: at least one table is needed, got {value!r}")
    return value


def table_of(entry: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    """A table of its own."""
    value = entry[field]
    if not isinstance(value, dict):
        raise TypeError(f"{field}: a table is needed, got {value!r}")
    return value


def check_fields(entry: Mapping[str, Any], known: set[str]) -> None:
    """Raise ValueError where a field is none of the known ones: a typing error must not be passed over."""
    unknown = sorted(set(entry) - known)
    if unknown:
        raise ValueError(f"{unknown[0]}: no such field; options: {', '.join(sorted(known))}")


def check_names(path: Path, table: str, names: list[str]) -> None:
    """Raise RecipeInvalid where two entries bear one name."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise broken(path, f"more than one {table} named {twice[0]!r}")


def _built(path: Path, where: str, entry: Any, build: Callable[[Mapping[str, Any]], T]) -> T:
    if not isinstance(entry, dict):
        raise broken(path, f"{where}: a table is needed, got {entry!r}")
    named = f"{where} ({entry['name']})" if isinstance(entry.get("name"), str) else where
    try:
        return build(entry)
    except KeyError as error:
        raise broken(path, f"{named}: the field {error.args[0]!r} is missing") from error
    except (TypeError, ValueError) as error:
        raise broken(path, f"{named}: {error}") from error


def _parsed(path: Path, text: str) -> dict[str, Any]:
    """The tables of a text. Raises RecipeInvalid where it is no TOML, or more than Python reads."""
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise broken(path, "arrays or tables within one another, deeper than can be read") from error
    except ValueError as error:
        end = f"at line {len(text.splitlines())}, the end"
        raise broken(path, str(error).replace("at end of document", end)) from error


def _entries(text: str, table: str) -> list[Any] | None:
    """The entries of a text, None where it is no TOML."""
    try:
        return tomllib.loads(text).get(table, [])
    except (ValueError, RecursionError):
        return None


def _without(text: str, table: str, name: str) -> str:
    """The text without the block of an entry; blank lines and comments at its end belong to what follows."""
    lines = text.split("\n")
    heads = [n for n, line in enumerate(lines) if line.strip().startswith(f"[[{table}]]")]
    entries = _entries(text, table) or []
    if len(heads) != len(entries):
        return text
    for start, end, entry in zip(heads, [*heads[1:], len(lines)], entries, strict=True):
        if entry["name"] == name:
            own = [n for n in range(start, end) if lines[n].strip() and lines[n].lstrip()[0] != "#"]
            return "\n".join([*lines[:start], *lines[own[-1] + 1 :]])
    return text
