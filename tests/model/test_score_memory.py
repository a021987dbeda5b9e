"""Scoring the bundled model over 16 windows of 512 tokens stays within 1.5 GB above the model."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType

import mlx.core as mx
import psutil
import pytest

from labkit.engine.load import load
from labkit.engine.logits import session_logits
from labkit.evals.text import load_text
from labkit.model.quality import summarize
from labkit.model.score import stream_score

LIMIT_BYTES = 1.5e9
WINDOWS = 16


class PeakMemory:
    """Device and resident bytes above what was held on entry, at most, while the block runs."""

    def __enter__(self) -> PeakMemory:
        mx.clear_cache()
        mx.reset_peak_memory()
        self._process = psutil.Process()
        self._device = mx.get_active_memory()
        self._resident = self._highest = self._process.memory_info().rss
        self._done = threading.Event()
        self._sampler = threading.Thread(target=self._sample)
        self._sampler.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._sampler.join()
        self.device_bytes = mx.get_peak_memory() - self._device
        self.resident_bytes = self._highest - self._resident

    def _sample(self) -> None:
        while not self._done.wait(0.02):
            self._highest = max(self._highest, self._process.memory_info().rss)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_scoring_stays_within_its_memory(smollm2_path: Path) -> None:
    model = load(smollm2_path)
    mx.eval(model.graph.parameters())

    def encode(text: str) -> list[int]:
        return list(model.tokenizer.encode(text, add_special_tokens=False))

    # Neither half holds 16 windows, and memory does not care which half a document is in.
    windows = load_text("prose").windows(encode, WINDOWS, split=None)
    with PeakMemory() as peak:
        scores = stream_score(session_logits(model), session_logits(model, "affine:8"), windows)
    assert peak.device_bytes <= LIMIT_BYTES
    assert peak.resident_bytes <= LIMIT_BYTES
    # It did score: 255 positions a window, with a divergence of 8-bit keys and values that is small, not 0.
    summary = summarize(scores)
    assert summary.positions == WINDOWS * 255
    assert 0 < summary.kl_mean_nats < 0.1
