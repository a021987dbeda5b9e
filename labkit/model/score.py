"""Score: stream a reference and a candidate over windows, never holding more than a block or two of each.

Knows sources of logits, windows and files of reference log-probabilities; not engines or KV schemes, which
a source brings with it. Two arms that cannot share a process (they differ in BLAS library) meet in a file.

Only positions after the context are scored. A quantized KV scheme converts after each forward, as mlx-lm
does, so the first chunk of a window attends unquantized; with the context as that first chunk, every scored
position attends to what the scheme stores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import mlx.core as mx
import numpy as np

from labkit.core.errors import ScoreInvalid
from labkit.core.events import Progress, Sink, silent
from labkit.model.quality import QualitySummary, WindowScore, summarize
from labkit.model.windows import Window, Windows
from labkit.numerics.kl import Divergence, compare_logits, compare_with_logprobs, joined, log_softmax

__all__ = [
    "CachedLogits",
    "LogitsSource",
    "QualitySummary",
    "Window",
    "WindowScore",
    "Windows",
    "score_against",
    "stream_score",
    "summarize",
    "write_reference",
]


class LogitsSource(Protocol):
    """Whoever turns a window into logits."""

    def scored_logits(self, window: Window) -> Iterator[mx.array]:
        """Yield the logits of the scored positions in order, in evaluated blocks `(rows, vocab)`."""
        ...


def _nothing(_: list[Any]) -> None:
    """The hook of a scheme that leaves its caches as they are."""


@dataclass(frozen=True, slots=True)
class CachedLogits:
    """The logits of an mlx-lm model: the context in one forward, then the scored part `block` at a time.

    model: `(1, L)` token ids and `cache=` -> `(1, L, vocab)` logits. make_caches: fresh ones, one per layer.
    after_call: runs on the list of caches after each forward; a KV scheme quantizes them there, in place.
    """

    model: Callable[..., mx.array]
    make_caches: Callable[[], list[Any]]
    after_call: Callable[[list[Any]], None] = _nothing
    block: int = 64

    def scored_logits(self, window: Window) -> Iterator[mx.array]:
        caches = self.make_caches()
        # The logits of the context are never evaluated: the caches do not depend on them.
        self._forward(window.context, caches)
        mx.eval([cache.state for cache in caches])
        for start in range(0, window.scored, self.block):
            logits = self._forward(window.inputs[start : start + self.block], caches)
            mx.eval(logits, [cache.state for cache in caches])
            yield logits

    def _forward(self, tokens: Sequence[int], caches: list[Any]) -> mx.array:
        logits = self.model(mx.array([tokens]), cache=caches)[0]
        self.after_call(caches)
        return logits


def stream_score(
    reference: LogitsSource, candidate: LogitsSource, windows: Windows, sink: Sink = silent
) -> tuple[WindowScore, ...]:
    """Score the candidate against the reference, one WindowScore per window.

    Both sources must yield blocks of the same rows and vocabulary; ScoreInvalid where they do not, or where
    log-probabilities are not finite.
    """
    scores = []
    sink(Progress("score", 0, len(windows)))
    for window in windows:
        scores.append(_window_score(_stream(reference, candidate, window), window))
        sink(Progress("score", len(scores), len(windows), f"{window.scored} positions a window"))
    return tuple(scores)


def _stream(reference: LogitsSource, candidate: LogitsSource, window: Window) -> Iterator[Divergence]:
    targets, start = mx.array(window.targets), 0
    blocks = zip(reference.scored_logits(window), candidate.scored_logits(window), strict=False)
    for expected, got in blocks:
        _check_block(expected.shape, got.shape)
        _check_rows(start + len(got), window.scored, complete=False)
        yield compare_logits(expected, got, targets[start : start + len(got)])
        start += len(got)


def write_reference(source: LogitsSource, window: Window, path: Path) -> None:
    """Write the log-probabilities of a window as a .npy of `(scored, vocab)` f32, one block at a time.

    Some 50 MB for 255 positions of a 49,152-token vocabulary; the caller removes the file. Nothing is left
    where the source fails half way; ScoreInvalid where it yields another number of positions.
    """
    try:
        _write_blocks(source.scored_logits(window), window.scored, path)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _write_blocks(blocks: Iterator[mx.array], rows: int, path: Path) -> None:
    stored: np.memmap | None = None
    start = 0
    for block in blocks:
        if stored is None:
            shape = (rows, block.shape[-1])
            stored = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
        _check_rows(start + len(block), rows, complete=False)
        stored[start : start + len(block)] = np.array(log_softmax(block))
        start += len(block)
    _check_rows(start, rows, complete=True)


def score_against(path: Path, source: LogitsSource, window: Window) -> WindowScore:
    """Score a source against the log-probabilities that `write_reference` stored for the same window.

    Equals `stream_score` of the two sources. ScoreInvalid where the file is missing or of another shape.
    """
    return _window_score(_against(_open_reference(path), source, window), window)


def _open_reference(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r")
    except (OSError, ValueError) as error:
        raise ScoreInvalid(
            "a file of reference log-probabilities was needed",
            got=f"{path.name}: {error.__class__.__name__}",
            next_step="write it with write_reference for the same window",
        ) from error


def _against(stored: np.ndarray, source: LogitsSource, window: Window) -> Iterator[Divergence]:
    _check_rows(stored.shape[0], window.scored, complete=True)
    targets, start = mx.array(window.targets), 0
    for got in source.scored_logits(window):
        _check_rows(start + len(got), window.scored, complete=False)
        expected = mx.array(stored[start : start + len(got)])
        _check_block(expected.shape, got.shape)
        yield compare_with_logprobs(expected, got, targets[start : start + len(got)])
        start += len(got)


def _window_score(parts: Iterator[Divergence], window: Window) -> WindowScore:
    blocks = list(parts)
    _check_rows(sum(block.positions for block in blocks), window.scored, complete=True)
    found = joined(blocks)
    columns = (found.kl_nats, found.nll_reference, found.nll_candidate)
    if not all(np.isfinite(column).all() for column in columns):
        first = min(int(np.argmin(np.isfinite(c))) for c in columns if not np.isfinite(c).all())
        raise ScoreInvalid(
            "finite log-probabilities of both arms were needed",
            got=f"position {window.context_tokens + first} of a window is not finite",
            next_step="look for NaN or infinities in the logits of the candidate's quantized parts",
        )
    return WindowScore(*(tuple(c.tolist()) for c in (*columns, found.top1_agrees)))


def _check_block(expected: Sequence[int], got: Sequence[int]) -> None:
    if tuple(expected) != tuple(got):
        raise ScoreInvalid(
            "blocks of one shape (rows, vocab) from reference and candidate were needed",
            got=f"{tuple(expected)} and {tuple(got)}",
            next_step="give both sources the same block, and models of one vocabulary",
        )


def _check_rows(got: int, needed: int, *, complete: bool) -> None:
    if got > needed or (complete and got != needed):
        raise ScoreInvalid(f"logits of {needed} scored positions were needed", got=got)
