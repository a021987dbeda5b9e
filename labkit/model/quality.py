"""Quality of a candidate against a reference over windows: per-window scores and their summary.

Knows per-position divergences and their statistics, clustered by window; not how they were computed.
Imports no mlx, so that scores from another process can be read and summarized anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy import special

from labkit.core.errors import ScoreInvalid

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class WindowScore:
    """One window, one value per scored position, in order.

    kl_nats: KL(reference || candidate). nll_reference, nll_candidate: nats. top1_agrees: same argmax.
    """

    kl_nats: tuple[float, ...]
    nll_reference: tuple[float, ...]
    nll_candidate: tuple[float, ...]
    top1_agrees: tuple[bool, ...]

    @property
    def positions(self) -> int:
        return len(self.kl_nats)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> WindowScore:
        """Raise ScoreInvalid where a column is missing, unknown or of another length."""
        try:
            score = cls(**{name: tuple(values) for name, values in data.items()})
        except (TypeError, AttributeError) as error:
            raise ScoreInvalid("a window score of four columns was needed", got=error) from error
        lengths = {len(column) for column in score.to_json().values()}
        if len(lengths) != 1:
            raise ScoreInvalid("columns of one length were needed", got=sorted(lengths))
        return score


@dataclass(frozen=True, slots=True)
class Clustered:
    """A mean over positions with its standard error and 95% t interval, clustered by window.

    se, low and high are None for a single window: nothing is known of the spread between windows.
    """

    mean: float
    se: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class QualitySummary:
    """The candidate against the reference, over all scored positions of all windows.

    *_low and *_high bound 95% t intervals clustered by window; they and *_se are None for one window, and
    notes says so. ppl_ratio = exp(mean(nll_candidate - nll_reference)), paired by position; above 1 the
    candidate is worse. The window_* tuples hold one mean per window: the units of a verdict.
    """

    kl_mean_nats: float
    kl_mean_se: float | None
    kl_mean_low: float | None
    kl_mean_high: float | None
    kl_p50_nats: float
    kl_p95_nats: float
    kl_p99_nats: float
    kl_max_nats: float
    top1_agreement: float
    top1_se: float | None
    top1_low: float | None
    top1_high: float | None
    ppl_ratio: float
    ppl_ratio_low: float | None
    ppl_ratio_high: float | None
    ppl_reference: float
    ppl_candidate: float
    positions: int
    windows: int
    window_kl_nats: tuple[float, ...]
    window_log_ppl_ratio: tuple[float, ...]
    window_top1: tuple[float, ...]
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data, as it comes back from a record: lists for tuples."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}


def clustered_mean(windows: Sequence[np.ndarray]) -> Clustered:
    """Mean over all positions, its cluster-robust standard error and 95% t interval (windows - 1 df).

    The sandwich estimator of a mean over G clusters, with the G / (G - 1) correction (Liang and Zeger 1986);
    windows of one length make it the standard error of the mean of window means.
    """
    counts = np.array([len(window) for window in windows])
    mean = float(np.concatenate(windows).mean())
    clusters = len(windows)
    if clusters < 2:
        return Clustered(mean, None, None, None)
    residuals = np.array([window.sum() for window in windows]) - counts * mean
    variance = clusters / (clusters - 1) * float(residuals @ residuals) / float(counts.sum()) ** 2
    se = float(np.sqrt(variance))
    reach = float(special.stdtrit(clusters - 1, 0.5 + CONFIDENCE / 2)) * se
    return Clustered(mean, se, mean - reach, mean + reach)


def summarize(scores: Sequence[WindowScore]) -> QualitySummary:
    """Summarize window scores; raise ScoreInvalid where there is none."""
    if not scores or not all(score.positions for score in scores):
        raise ScoreInvalid(
            "at least one window with scored positions was needed", got=f"{len(scores)} windows"
        )
    reference = _columns([s.nll_reference for s in scores])
    candidate = _columns([s.nll_candidate for s in scores])
    return QualitySummary(
        **_kl_fields(_columns([s.kl_nats for s in scores])),
        **_top1_fields(_columns([s.top1_agrees for s in scores])),
        **_ppl_ratio_fields([c - r for c, r in zip(candidate, reference, strict=True)]),
        ppl_reference=float(np.exp(np.concatenate(reference).mean())),
        ppl_candidate=float(np.exp(np.concatenate(candidate).mean())),
        positions=sum(score.positions for score in scores),
        windows=len(scores),
        notes=("one window: no interval is claimed",) if len(scores) == 1 else (),
    )


def _kl_fields(kl: Sequence[np.ndarray]) -> dict[str, Any]:
    found, every = clustered_mean(kl), np.concatenate(kl)
    p50, p95, p99 = (float(q) for q in np.quantile(every, (0.5, 0.95, 0.99)))
    return {
        "kl_mean_nats": found.mean,
        "kl_mean_se": found.se,
        "kl_mean_low": found.low,
        "kl_mean_high": found.high,
        "kl_p50_nats": p50,
        "kl_p95_nats": p95,
        "kl_p99_nats": p99,
        "kl_max_nats": float(every.max()),
        "window_kl_nats": _means(kl),
    }


def _top1_fields(agrees: Sequence[np.ndarray]) -> dict[str, Any]:
    found = clustered_mean(agrees)
    return {
        "top1_agreement": found.mean,
        "top1_se": found.se,
        "top1_low": found.low,
        "top1_high": None if found.high is None else min(found.high, 1.0),
        "window_top1": _means(agrees),
    }


def _ppl_ratio_fields(change: Sequence[np.ndarray]) -> dict[str, Any]:
    found = clustered_mean(change)
    return {
        "ppl_ratio": float(np.exp(found.mean)),
        "ppl_ratio_low": None if found.low is None else float(np.exp(found.low)),
        "ppl_ratio_high": None if found.high is None else float(np.exp(found.high)),
        "window_log_ppl_ratio": _means(change),
    }


def _columns(windows: Sequence[Sequence[float]]) -> list[np.ndarray]:
    return [np.array(window, dtype=np.float64) for window in windows]


def _means(windows: Sequence[np.ndarray]) -> tuple[float, ...]:
    return tuple(float(window.mean()) for window in windows)
