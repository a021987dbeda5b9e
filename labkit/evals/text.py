"""Text: the documents that quality is scored on, their hashes and their two halves. Imports no mlx.

`prose` ships with labkit; any UTF-8 file or folder of a user's own serves as well. Decisions use the
`promote` half only, so that whatever was tuned on the `tune` half meets text it has not seen.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal

from labkit.core.canonical import digest
from labkit.core.errors import TextUnusable
from labkit.model.windows import Windows

Split = Literal["tune", "promote"]
BUNDLED = "prose"
SALT = "labkit-text-1"
SUFFIXES = (".md", ".txt")
BLANK_LINES = re.compile(r"\n\s*\n")


@dataclass(frozen=True, slots=True)
class Document:
    """name: file name, or file name and section number. sha256: of its UTF-8 bytes."""

    name: str
    text: str
    sha256: str
    split: Split


@dataclass(frozen=True, slots=True)
class Text:
    """Documents in a fixed order: by file name, then by place in the file."""

    name: str
    salt: str
    documents: tuple[Document, ...]

    def hash(self) -> str:
        """Identity of content, order and split, for a record's provenance."""
        return digest([self.salt, [[d.name, d.sha256, d.split] for d in self.documents]])

    def of(self, split: Split | None) -> tuple[Document, ...]:
        """The documents of one half, in order; None gives all."""
        return tuple(d for d in self.documents if split is None or d.split == split)

    def windows(
        self,
        encode: Callable[[str], Sequence[int]],
        count: int | None,
        window_tokens: int = 512,
        *,
        split: Split | None = "promote",
        context_tokens: int | None = None,
        bos: int | None = None,
    ) -> Windows:
        """The first `count` windows (None: all) of a half's documents, encoded one by one and concatenated.

        encode: text -> token ids, without special tokens. bos: the id that each window starts with, where
        the model was trained with one. context_tokens: half a window by default. Raises TextUnusable where
        there are fewer windows, saying how many there are.
        """
        documents = self.of(split)
        tokens = [int(token) for document in documents for token in encode(document.text)]
        body = window_tokens - (bos is not None)
        available = len(tokens) // body if body > 0 else 0
        wanted = available if count is None else count
        if not 1 <= wanted <= available:
            raise self._too_few(wanted, available, window_tokens, split)
        first = () if bos is None else (bos,)
        cut = tuple((*first, *tokens[i * body : (i + 1) * body]) for i in range(wanted))
        context = window_tokens // 2 if context_tokens is None else context_tokens
        return Windows(cut, window_tokens, context)

    def _too_few(self, wanted: int, available: int, window_tokens: int, split: Split | None) -> TextUnusable:
        half = "the whole text" if split is None else f"the {split} half"
        return TextUnusable(
            f"{max(wanted, 1)} windows of {window_tokens} tokens were needed from {half} of {self.name!r}",
            got=f"{wanted} asked for, {available} available in {len(self.of(split))} documents",
            next_step="ask for fewer or shorter windows, or give more text",
        )


def load_text(name_or_path: str | Path, *, salt: str = SALT) -> Text:
    """Read `prose`, or a UTF-8 file or folder, and split its documents into tune and promote.

    A folder gives one document per .md or .txt file below it, a file one per section between blank lines.
    Raises TextUnusable for a path that does not exist, is not UTF-8, or holds fewer than two different
    documents.
    """
    path = Path(name_or_path).expanduser()
    bundled = name_or_path == BUNDLED
    found = list(_bundled() if bundled else _own(path))
    name = BUNDLED if bundled else path.resolve().name
    hashes = [hashlib.sha256(text.encode()).hexdigest() for _, text in found]
    tune = _tune_half(hashes, salt, name)
    documents = tuple(
        Document(title, text, sha, "tune" if sha in tune else "promote")
        for (title, text), sha in zip(found, hashes, strict=True)
    )
    return Text(name, salt, documents)


def _tune_half(hashes: Iterable[str], salt: str, name: str) -> frozenset[str]:
    """The smaller half in the order of the salted hashes; equal documents share a hash, so a half."""
    distinct = sorted(set(hashes), key=lambda sha: hashlib.sha256(f"{salt}/{sha}".encode()).hexdigest())
    if len(distinct) < 2:
        raise TextUnusable(
            "text of at least two different documents was needed, one for each half",
            got=f"{len(distinct)} in {name!r}",
            next_step="separate sections by blank lines, or give a folder of .md or .txt files",
        )
    return frozenset(distinct[: len(distinct) // 2])


def _bundled() -> Iterable[tuple[str, str]]:
    folder = resources.files("labkit.evals").joinpath(BUNDLED)
    files = (f for f in folder.iterdir() if f.name.endswith(".md") and f.name != "README.md")
    for file in sorted(files, key=lambda f: f.name):
        yield file.name, _read(file)


def _own(path: Path) -> Iterable[tuple[str, str]]:
    if path.is_dir():
        for file in sorted(f for f in path.rglob("*") if f.is_file() and f.suffix in SUFFIXES):
            if text := _read(file).strip():
                yield file.relative_to(path).as_posix(), text
    elif path.is_file():
        sections = (section.strip() for section in BLANK_LINES.split(_read(path)))
        for number, section in enumerate(filter(None, sections), start=1):
            yield f"{path.name}#{number}", section
    else:
        raise TextUnusable(
            "evaluation text was needed",
            got=str(path),
            options=(BUNDLED, "a UTF-8 file", "a folder of .md or .txt files"),
        )


def _read(file: Traversable) -> str:
    """UTF-8 text without a byte order mark and with Unix line ends."""
    try:
        return file.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise TextUnusable(
            "UTF-8 text was needed",
            got=f"{file.name}: byte {error.start} cannot be decoded",
            next_step="convert the file, e.g. with iconv -t UTF-8",
        ) from error
    except OSError as error:
        raise TextUnusable("a readable file was needed", got=f"{file.name}: {error.strerror}") from error
