"""TextStream: the text of a completion, token by token, cut at a stop string. Knows no sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from labkit.engine.detokenizer import Detokenizer
from labkit.engine.stops import StopStrings


class TextStream:
    """What may be shown of the tokens so far; what was shown never changes.

    The parts joined are `tokenizer.decode` of all tokens, up to the first stop string and without it. Half a
    character waits for its other half, and what may be the beginning of a stop string until it is decided.
    tokenizer: as `Detokenizer` takes it. stop: raises LabkitError for an empty string.
    """

    def __init__(self, tokenizer: Any, stop: Sequence[str] = ()) -> None:
        self._detokenizer = Detokenizer(tokenizer)
        self._stops = StopStrings(stop)
        self._finished = False
        self.text = ""

    @classmethod
    def replay(cls, tokenizer: Any, tokens: Sequence[int], stop: Sequence[str] = ()) -> TextStream:
        """A stream as it is after pushing these tokens, with a few decodes in all."""
        stream = cls(tokenizer, stop)
        stream._emit(stream._stops.feed(stream._detokenizer.push_all(tokens)))
        return stream

    @property
    def stopped(self) -> str | None:
        """The stop string that was found. Of several that start at one place: the first in their order."""
        return self._stops.found

    def push(self, token: int) -> str:
        """The text that became printable with this token; "" where none did or the stream has ended."""
        if self._finished or self.stopped is not None:
            return ""
        return self._emit(self._stops.feed(self._detokenizer.push(token)))

    def finish(self) -> str:
        """What was held back, now that no token follows; a stop string in it is found and cut. Idempotent."""
        if self._finished or self.stopped is not None:
            return ""
        self._finished = True
        rest = self._stops.feed(self._detokenizer.finish())
        return self._emit(rest + self._stops.finish())

    def _emit(self, text: str) -> str:
        self.text += text
        return text
