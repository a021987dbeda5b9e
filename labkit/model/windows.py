"""Windows: the token windows that quality is scored on. Imports no mlx; knows no text and no tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from labkit.core.canonical import digest
from labkit.core.errors import ScoreInvalid


@dataclass(frozen=True, slots=True)
class Window:
    """tokens: token ids, of which the first context_tokens are read but not scored.

    Position i predicts token i + 1, so positions context_tokens .. len(tokens) - 2 are scored.
    """

    tokens: tuple[int, ...]
    context_tokens: int

    @property
    def context(self) -> tuple[int, ...]:
        return self.tokens[: self.context_tokens]

    @property
    def inputs(self) -> tuple[int, ...]:
        """The tokens at the scored positions, `(scored,)`."""
        return self.tokens[self.context_tokens : -1]

    @property
    def targets(self) -> tuple[int, ...]:
        """The tokens that the scored positions should predict, `(scored,)`."""
        return self.tokens[self.context_tokens + 1 :]

    @property
    def scored(self) -> int:
        return len(self.tokens) - self.context_tokens - 1


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of window_tokens tokens each, of which the first context_tokens are context.

    The second half of a 512-token window is what llama-perplexity scores: 255 positions a window.
    Raises ScoreInvalid for no window, a window of another length, or a split that leaves nothing to score.
    """

    tokens: tuple[tuple[int, ...], ...]
    window_tokens: int
    context_tokens: int

    def __post_init__(self) -> None:
        if not 1 <= self.context_tokens <= self.window_tokens - 2:
            raise ScoreInvalid(
                "context_tokens of at least 1 and at most window_tokens - 2 were needed",
                got=f"{self.context_tokens} of {self.window_tokens}",
            )
        lengths = {len(window) for window in self.tokens}
        if lengths != {self.window_tokens}:
            raise ScoreInvalid(
                f"at least one window, each of {self.window_tokens} tokens, was needed",
                got=f"{len(self.tokens)} windows of lengths {sorted(lengths)}",
            )

    @classmethod
    def cut(
        cls, tokens: tuple[int, ...], window_tokens: int = 512, context_tokens: int | None = None
    ) -> Windows:
        """As many whole windows as `tokens` holds, side by side; context defaults to half a window."""
        context = window_tokens // 2 if context_tokens is None else context_tokens
        starts = range(0, len(tokens) - window_tokens + 1, max(window_tokens, 1))
        return cls(tuple(tuple(tokens[s : s + window_tokens]) for s in starts), window_tokens, context)

    def __len__(self) -> int:
        return len(self.tokens)

    def __iter__(self) -> Iterator[Window]:
        return (Window(tokens, self.context_tokens) for tokens in self.tokens)

    def __getitem__(self, index: int) -> Window:
        return Window(self.tokens[index], self.context_tokens)

    def hash(self) -> str:
        return digest([self.tokens, self.context_tokens])
