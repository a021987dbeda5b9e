"""Detokenizer: text from tokens that come one at a time. Knows a tokenizer; no stop strings, no sessions.

Every push decodes a window of the newest tokens, so a token costs the same at any length of the text. What
a later token could still change waits: the end of a UTF-8 sequence, a run of byte pieces, spaces that may be
cleaned up.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

REPLACEMENT = "\ufffd"
# An incomplete UTF-8 sequence has up to 3 bytes, shown as one replacement character or as one for each byte.
INCOMPLETE = 3
# The window is shortened every STRIDE tokens, to the newest KEEP or a multiple of them.
STRIDE = 32
KEEP = 32
# Four characters resynchronise UTF-8 and outlast a stripped leading space; twice that for good measure.
MARGIN = 8
BYTE_PIECE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
# transformers' clean-up deletes spaces in " ." " ?" " !" " ," " ' " " n't" " 'm" " 's" " 've" " 're", in this
# order. No deletion reaches over one of these: other characters, letters in a row, the first of three spaces.
ANCHOR = re.compile(r"[\s\S]*(?:[^ 'nvr]|(?<=[nvr])[nvr]| (?=  ))")
PENDING = re.compile(r"[nvr]*")


class Detokenizer:
    """The parts that `push` and `finish` give, joined, are `tokenizer.decode` of all tokens.

    tokenizer: mlx-lm's wrapper or whatever has `decode(ids) -> str`; `convert_ids_to_tokens` and
    `clean_up_tokenization_spaces` are respected where it has them.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._decode = tokenizer.decode
        self._piece_of = getattr(tokenizer, "convert_ids_to_tokens", None)
        self._cleans = bool(getattr(tokenizer, "clean_up_tokenization_spaces", False))
        self._window: list[int] = []
        self._text = ""
        self._shown = 0
        self._until_shorter = STRIDE

    def push(self, token: int) -> str:
        """The text that became certain with this token; "" where none did."""
        if self._is_nothing(token):
            return ""
        self._window.append(token)
        if self._is_byte(token):
            return ""
        before, self._text = self._text, self._decode(self._window)
        if self._adds_nothing(before):
            self._window.pop()
            return ""
        part = self._show(self._certain())
        self._shorten()
        return part

    def push_all(self, tokens: Sequence[int]) -> str:
        """As pushing these tokens one by one onto a fresh detokenizer, with a few decodes in all.

        With a clean-up they are pushed one by one: what it had left to be certain is seen only on the way.
        """
        if self._cleans:
            return "".join(map(self.push, tokens))
        self._window = [token for token in tokens if not self._is_nothing(token)]
        end = len(self._window)
        while end and self._is_byte(self._window[end - 1]):
            end -= 1
        run, self._window = self._window[end:], self._window[:end]
        self._text = self._decode(self._window)
        part = self._show(self._certain())
        self._until_shorter = 0
        self._shorten()
        self._window += run
        return part

    def finish(self) -> str:
        """What was held back, as decode shows it when nothing follows."""
        self._text = self._decode(self._window)
        return self._show(len(self._text))

    def _is_nothing(self, token: int) -> bool:
        """Whether decode passes over the token: an id without a piece."""
        if self._piece_of is None or self._piece_of(token) is not None:
            return False
        return self._decode([token]) == ""

    def _is_byte(self, token: int) -> bool:
        """Whether the token is one byte of a run that decode shows as a whole once it has ended."""
        piece = None if self._piece_of is None else self._piece_of(token)
        if piece is None or BYTE_PIECE.fullmatch(piece) is None:
            return False
        return self._decode([token]) != piece

    def _adds_nothing(self, before: str) -> bool:
        """Whether the newest token is a repeated empty one, which would only make the window longer."""
        repeated = len(self._window) > 1 and self._window[-1] == self._window[-2]
        return repeated and self._text == before and not before.endswith(REPLACEMENT)

    def _certain(self) -> int:
        """How many characters of the window's text no later token can change."""
        text = self._text
        end = len(text)
        while end and text[end - 1] == REPLACEMENT and len(text) - end < INCOMPLETE:
            end -= 1
        if not self._cleans:
            return end
        anchor = ANCHOR.match(text, 0, end)
        pending = PENDING.match(text, anchor.end() if anchor else 0, end)
        return pending.end() if pending else end

    def _show(self, end: int) -> str:
        part = self._text[self._shown : end]
        self._shown = max(self._shown, end)
        return part

    def _shorten(self) -> None:
        """Forget old tokens now and then, where the newest alone decode to the same end of the text."""
        self._until_shorter -= 1
        if self._until_shorter > 0:
            return
        self._until_shorter = STRIDE
        needed = self._needed()
        keep = KEEP
        while needed and keep < len(self._window):
            text = self._decode(self._window[-keep:])
            if len(text) >= needed and text.endswith(self._text[-needed:]):
                self._shown -= len(self._text) - len(text)
                self._window, self._text = self._window[-keep:], text
                return
            keep *= 2

    def _needed(self) -> int:
        """How many characters at the end of the text a shorter window must reproduce; 0 where it cannot."""
        start = self._shown - MARGIN
        if start > 0 and self._cleans:
            anchor = ANCHOR.match(self._text, 0, start + 1)
            start = anchor.end() - 1 if anchor else 0
        return len(self._text) - start if start > 0 else 0
