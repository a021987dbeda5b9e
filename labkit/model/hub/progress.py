"""Progress of the hub client: a bar that draws nothing and reports the bytes that the client counts."""

from __future__ import annotations

from typing import Any

from labkit.core.events import Progress, Sink


def bar_class(sink: Sink, note: str) -> Any:
    """A class in place of tqdm's for one download."""
    from huggingface_hub.utils import tqdm

    base: Any = tqdm

    class Bar(base):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            # The client has a second bar for raw transfers, which may count less than the files hold.
            self._counts = kwargs.get("unit") == "B" and not str(kwargs.get("desc")).startswith("Downloading")
            self._done = float(kwargs.get("initial") or 0)
            super().__init__(*args, **{**kwargs, "disable": True})
            self.total = kwargs.get("total")

        def update(self, n: float | None = 1) -> bool | None:
            self._done += n or 0
            if self._counts and self._done:
                sink(Progress("fetch", self._done, self.total or None, note))
            return None

    return Bar
