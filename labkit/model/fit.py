"""Fit: what an artifact under a plan is predicted to need and to do on this machine, before it is run.

Joins the pure formulas of memory and speed with rates measured in this process; runs no step of the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from labkit.core.kv_setting import KVSetting
from labkit.core.spec import Profile
from labkit.model.artifact import Artifact
from labkit.model.calibrate import Calibration
from labkit.model.cost import ITEMSIZE
from labkit.model.fit_matrices import Matrix, read_matrices
from labkit.model.fit_memory import Peak, Widths, largest_context, predict_peak, widths
from labkit.model.fit_speed import Rates, StepTime, Work, decode_step, prefill_chunk
from labkit.model.origin import read_config
from labkit.model.stored import stored
from labkit.model.tensors import read_directory

_OTHER_ITEMSIZE = 4


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked of a model. chunk: tokens of a prefill step. rows: requests at a time."""

    prompt_tokens: int
    new_tokens: int
    chunk: int
    rows: int = 1


@dataclass(frozen=True, slots=True)
class Prediction:
    """Memory and speed of a load. decode_tps: over all rows, at the middle of the new tokens.

    prefill_tps: of one row's prompt. step, chunk: the seconds behind the two rates.
    """

    peak: Peak
    decode_tps: float
    prefill_tps: float
    step: StepTime
    chunk: StepTime

    def metrics(self) -> dict[str, float]:
        """By the names of the metrics that a visit measures."""
        return {
            "decode_tps": self.decode_tps,
            "prefill_tps": self.prefill_tps,
            "peak_bytes": self.peak.peak_bytes,
            "kv_bytes": self.peak.kv_bytes,
        }

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Predictor:
    """An artifact under one KV scheme on one device. primitives: of a decode step, by mlx's name."""

    profile: Profile
    weight_bytes: int
    matrices: tuple[tuple[Matrix, int], ...]
    widths: Widths
    setting: KVSetting
    primitives: Mapping[str, int]

    def peak(self, load: Load) -> Peak:
        """The predicted peak of device memory."""
        return predict_peak(
            self.profile,
            self.widths,
            self.setting,
            self.weight_bytes,
            prompt_tokens=load.prompt_tokens,
            new_tokens=load.new_tokens,
            chunk=load.chunk,
            rows=load.rows,
        )

    def largest_context(self, load: Load, budget_bytes: float) -> int:
        """The most tokens, new ones included, whose peak is within a budget and the model's own limit."""

        def fits(tokens: int) -> bool:
            new = min(load.new_tokens, tokens)
            held = replace(load, prompt_tokens=max(1, tokens - new), new_tokens=new)
            return self.peak(held).peak_bytes <= budget_bytes

        return largest_context(fits, self.profile.context_length)

    def calibrate(self, load: Load) -> Rates:
        """Measure the rates that the speed of a load follows from; takes about two seconds on a CPU."""
        bench = Calibration(
            dtype=self.profile.dtype,
            hidden=self.profile.hidden_size,
            heads=self.profile.heads,
            start=self.setting.start,
            chunk=min(load.chunk, max(1, load.prompt_tokens - 1)),
            rows=load.rows,
        )
        return bench.rates(self.matrices, stored(self.profile, self.setting), self._work(load))

    def predict(self, load: Load, rates: Rates) -> Prediction:
        """Memory and speed of a load, from rates that were measured for it."""
        fed = min(load.chunk, max(1, load.prompt_tokens - 1))
        step = decode_step(rates, self._work(load))
        wide = self.widths
        chunk = prefill_chunk(self.profile, rates, wide.layer_bytes(fed), wide.inner_bytes(fed))
        return Prediction(
            peak=self.peak(load),
            decode_tps=load.rows / step.seconds,
            prefill_tps=fed / max(chunk.seconds, 1e-9),
            step=step,
            chunk=chunk,
        )

    def _work(self, load: Load) -> Work:
        return Work(load.prompt_tokens + load.new_tokens // 2, self.profile.vocab_size, self.primitives)


def predictor(
    artifact: Artifact, profile: Profile, setting: KVSetting, device: str, primitives: Mapping[str, int]
) -> Predictor:
    """What predicts an artifact. device: `cpu`, `metal` or `cuda`.

    Raises ModelUnavailable where the artifact's tensors cannot be read.
    """
    matrices = read_matrices(read_directory(artifact.path), read_config(artifact.path), profile)
    item_bytes = ITEMSIZE.get(profile.dtype, _OTHER_ITEMSIZE)
    return Predictor(
        profile=profile,
        weight_bytes=artifact.artifact_bytes,
        matrices=matrices,
        widths=widths(profile, tuple(m for m, _ in matrices), item_bytes, device),
        setting=setting,
        primitives=dict(primitives),
    )
