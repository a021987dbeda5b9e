"""Tokenizers made for the text tests, and a reference that decodes everything at each step."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from tokenizers import Tokenizer, decoders, models

from labkit.engine.text import TextStream

BYTE = re.compile(r"<0x..>")


class Wrapped:
    """What a text stream uses of mlx-lm's wrapper, over a `tokenizers` tokenizer; counts decoded tokens."""

    def __init__(self, inner: Tokenizer, clean: Callable[[str], str] | None = None) -> None:
        self.inner, self.clean = inner, clean
        self.clean_up_tokenization_spaces = clean is not None
        self.decoded = 0

    def decode(self, tokens: Sequence[int]) -> str:
        self.decoded += len(tokens)
        text = self.inner.decode(list(tokens), skip_special_tokens=False)
        return self.clean(text) if self.clean else text

    def convert_ids_to_tokens(self, token: int) -> str | None:
        return self.inner.id_to_token(token)


PIECES = ("<unk>", "<s>", "▁", "▁a", "a", "bc", "▁▁", "�", "é", "", "▁the", "stop", "日", "<", "0", "\n")


def spm(*, strip: bool) -> Wrapped:
    """Gemma's decoder, or Llama's with the stripped leading space: 256 byte pieces, then PIECES."""
    names = [f"<0x{byte:02X}>" for byte in range(256)] + list(PIECES)
    inner = Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, [], byte_fallback=True))
    inner.add_special_tokens(["<s>"])
    parts: list[Any] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    inner.decoder = decoders.Sequence([*parts, decoders.Strip(" ", 1, 0)] if strip else parts)
    return Wrapped(inner)


def metaspace() -> Wrapped:
    """A decoder that drops the spaces of the first piece."""
    inner = Tokenizer(models.Unigram([(piece, 0.0) for piece in PIECES]))
    inner.decoder = decoders.Metaspace()
    return Wrapped(inner)


WORDS = (
    "do",
    "n't",
    "n",
    "'",
    "t",
    "##t",
    "##n",
    "s",
    "'s",
    "v",
    "ve",
    "##e",
    ".",
    ",",
    "r",
    "##'",
    "x",
    "!",
)


def wordpiece(clean: Callable[[str], str] | None = None, *, cleanup: bool = True) -> Wrapped:
    inner = Tokenizer(models.WordPiece({word: i for i, word in enumerate(WORDS)}, unk_token="x"))
    inner.decoder = decoders.WordPiece("##", cleanup=cleanup)
    return Wrapped(inner, clean)


SPACED = (" ", "'", "n", "t", ".", ",", "m", "s", "v", "e", "r", "?", " '", "x", "  ", "n't", " n")


def cleaned(clean: Callable[[str], str]) -> Wrapped:
    """Pieces that are joined as they are and then cleaned up, as hard as it gets."""
    inner = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(SPACED)}, unk_token="x"))
    inner.decoder = decoders.Fuse()
    return Wrapped(inner, clean)


def clean_up(text: str) -> str:
    """transformers' `clean_up_tokenization`, which the numerics tests use itself."""
    ends = (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're")
    for end in ends:
        text = text.replace(end, end.strip())
    return text


def cut(text: str, stop: Sequence[str], *, whole: bool) -> tuple[str, str | None]:
    """What may be shown of a text, and the stop string that ends it. whole: whether no more text comes."""
    for start in range(len(text)):
        for candidate in stop:
            if text.startswith(candidate, start):
                return text[:start], candidate
            if not whole and candidate.startswith(text[start:]):
                return text[:start], None
    return text, None


def certain(tokenizer: Any, tokens: Sequence[int]) -> str:
    """What of these tokens' text stays whatever follows, for decoders without a clean-up."""
    shown = [token for token in tokens if tokenizer.decode([token]) or piece(tokenizer, token) is not None]
    while shown and is_byte(tokenizer, shown[-1]):
        shown.pop()
    text = tokenizer.decode(shown)
    kept = text.rstrip("\ufffd")
    return kept + "\ufffd" * max(0, len(text) - len(kept) - 3)


def piece(tokenizer: Any, token: int) -> str | None:
    find = getattr(tokenizer, "convert_ids_to_tokens", None)
    return find(token) if find else "has no pieces"


def is_byte(tokenizer: Any, token: int) -> bool:
    name = piece(tokenizer, token) or ""
    return bool(BYTE.fullmatch(name)) and tokenizer.decode([token]) != name


def check(tokenizer: Any, tokens: Sequence[int], stop: Sequence[str] = (), *, exact: bool = True) -> None:
    """Compare a stream with the reference after every token; exact: it must show all that is certain."""
    stream = TextStream(tokenizer, stop)
    shown, states = "", []
    for count, token in enumerate(tokens, 1):
        shown += stream.push(token)
        assert stream.text == shown
        states.append((shown, stream.stopped))
        if exact:
            assert states[-1] == cut(certain(tokenizer, tokens[:count]), stop, whole=False)
    check_replay(tokenizer, tokens, stop, states)
    shown += stream.finish()
    assert (shown, stream.stopped) == cut(tokenizer.decode(list(tokens)), stop, whole=True)
    assert stream.text == shown and stream.finish() == ""


def check_replay(tokenizer: Any, tokens: Sequence[int], stop: Sequence[str], states: list) -> None:
    """A replayed stream is where the pushed one was, and goes on as that one did."""
    for at in {len(tokens) // 3, len(tokens)}:
        again = TextStream.replay(tokenizer, tokens[:at], stop)
        assert (again.text, again.stopped) == (states[at - 1] if at else ("", None))
        for token, state in zip(tokens[at:], states[at:], strict=True):
            again.push(token)
            assert (again.text, again.stopped) == state
