"""Stop strings: finds the first of them in text that arrives in parts. Knows no tokens."""

from __future__ import annotations

from collections.abc import Sequence

from labkit.core.errors import LabkitError


class StopStrings:
    """Passes text on up to the first stop string; what may be the beginning of one waits until it is decided.

    The stop string that starts first is found; of several that start at one place the first in the given
    order. How the text is cut into parts makes no difference to what is passed on, nor to what is found.
    Raises LabkitError for an empty stop string, which every text would start with.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        if isinstance(stop, str) or not all(stop):
            need = "a sequence of stop strings of at least one character was needed"
            raise LabkitError(need, got=repr(stop), next_step="leave stop out to have none")
        self.found: str | None = None
        self._stop = tuple(stop)
        self._longest = max(map(len, self._stop), default=0)
        self._waiting = ""

    def feed(self, text: str) -> str:
        """The text that may be shown now that `text` has come; "" once a stop string was found."""
        if self.found is not None:
            return ""
        self._waiting += text
        end, rank = self._first()
        undecided = self._undecided(end, rank)
        if undecided is not None:
            return self._release(undecided)
        return self._end(end, rank) if rank < len(self._stop) else self._release(len(self._waiting))

    def finish(self) -> str:
        """What is left when no more text comes; a stop string in it is found now."""
        if self.found is not None:
            return ""
        end, rank = self._first()
        return self._end(end, rank) if rank < len(self._stop) else self._release(len(self._waiting))

    def _first(self) -> tuple[int, int]:
        """Start and rank of the stop string that starts first; the lengths of both where there is none."""
        at = ((self._waiting.find(stop), rank) for rank, stop in enumerate(self._stop))
        return min((hit for hit in at if hit[0] >= 0), default=(len(self._waiting), len(self._stop)))

    def _undecided(self, end: int, rank: int) -> int | None:
        """The first place where more text could complete a stop string that goes before the one found."""
        length = len(self._waiting)
        for start in range(max(0, length - self._longest + 1), min(end + 1, length)):
            stops = self._stop[:rank] if start == end else self._stop
            tail = self._waiting[start:]
            if any(len(stop) > len(tail) and stop.startswith(tail) for stop in stops):
                return start
        return None

    def _release(self, end: int) -> str:
        text, self._waiting = self._waiting[:end], self._waiting[end:]
        return text

    def _end(self, end: int, rank: int) -> str:
        self.found = self._stop[rank]
        text = self._release(end)
        self._waiting = ""
        return text
