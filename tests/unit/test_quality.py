"""The quality summary against plain numpy and scipy."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats

from labkit.core.errors import ScoreInvalid
from labkit.model.quality import WindowScore, clustered_mean, summarize


def random_scores(windows: int, positions: int, seed: int = 0) -> tuple[WindowScore, ...]:
    rng = np.random.default_rng(seed)
    scores = []
    for _ in range(windows):
        reference = rng.exponential(2, positions)
        candidate = reference + rng.normal(0.05, 0.2, positions) + rng.normal(0, 0.1)
        columns = (rng.exponential(0.1, positions), reference, candidate, rng.random(positions) < 0.9)
        scores.append(WindowScore(*(tuple(column.tolist()) for column in columns)))
    return tuple(scores)


def test_summary_against_numpy() -> None:
    scores = random_scores(8, 20)
    summary = summarize(scores)
    kl = np.array([s.kl_nats for s in scores])
    change = np.array([s.nll_candidate for s in scores]) - np.array([s.nll_reference for s in scores])
    assert summary.kl_mean_nats == pytest.approx(kl.mean())
    assert summary.kl_max_nats == kl.max()
    quantiles = (summary.kl_p50_nats, summary.kl_p95_nats, summary.kl_p99_nats)
    assert quantiles == pytest.approx(np.quantile(kl, (0.5, 0.95, 0.99)))
    assert summary.ppl_ratio == pytest.approx(summary.ppl_candidate / summary.ppl_reference)
    assert summary.window_kl_nats == pytest.approx(kl.mean(axis=1))
    assert summary.window_log_ppl_ratio == pytest.approx(change.mean(axis=1))
    assert (summary.windows, summary.positions, summary.notes) == (8, 160, ())


def test_intervals_are_student_t_over_window_means() -> None:
    scores = random_scores(8, 20)
    summary = summarize(scores)
    for means, low, high in (
        (summary.window_kl_nats, summary.kl_mean_low, summary.kl_mean_high),
        (summary.window_top1, summary.top1_low, summary.top1_high),
    ):
        expected = stats.ttest_1samp(means, 0).confidence_interval(0.95)
        assert (low, high) == pytest.approx((expected.low, expected.high))
    expected = stats.ttest_1samp(summary.window_log_ppl_ratio, 0).confidence_interval(0.95)
    bounds = (summary.ppl_ratio_low, summary.ppl_ratio_high)
    assert bounds == pytest.approx((math.exp(expected.low), math.exp(expected.high)))
    assert summary.kl_mean_se == pytest.approx(stats.sem(summary.window_kl_nats))
    assert summary.top1_se == pytest.approx(stats.sem(summary.window_top1))


def test_clustering_widens_what_windows_share() -> None:
    shared = [np.full(50, mean) for mean in (0.0, 1.0, 2.0, 3.0)]
    found = clustered_mean(shared)
    independent = stats.sem(np.concatenate(shared))
    assert found.se == pytest.approx(stats.sem([0, 1, 2, 3]))
    assert found.se > 5 * independent


def test_windows_of_two_lengths_weigh_by_position() -> None:
    found = clustered_mean([np.array([1.0]), np.array([3.0, 3.0, 3.0])])
    # mean 2.5; residual sums -1.5 and 1.5; variance 2 / 1 * (2.25 + 2.25) / 16.
    assert (found.mean, found.se) == (2.5, pytest.approx(0.75))


def test_one_window_claims_no_interval() -> None:
    summary = summarize(random_scores(1, 20))
    unknown = ("kl_mean_se", "kl_mean_low", "kl_mean_high", "top1_se", "ppl_ratio_low", "ppl_ratio_high")
    assert all(getattr(summary, name) is None for name in unknown)
    assert summary.notes == ("one window: no interval is claimed",)


def test_coverage_with_shared_window_effects() -> None:
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(1000):
        windows = [rng.normal(rng.normal(1, 0.2), 0.5, 15) for _ in range(8)]
        found = clustered_mean(windows)
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= 1 <= found.high
    # 95% +- 3 binomial standard errors of 0.7%; ignoring the clusters covers some 70%.
    assert 929 <= hits <= 971


def test_summary_is_json() -> None:
    data = summarize(random_scores(3, 5)).to_json()
    assert json.loads(json.dumps(data, allow_nan=False))["windows"] == 3


def test_window_score_survives_json() -> None:
    score = random_scores(1, 5)[0]
    assert WindowScore.from_json(json.loads(json.dumps(score.to_json()))) == score


def test_bad_scores_are_refused() -> None:
    data = random_scores(1, 5)[0].to_json()
    for bad in ({**data, "more": [1]}, {"kl_nats": [1]}, {**data, "kl_nats": 1.0}, {**data, "kl_nats": [1]}):
        with pytest.raises(ScoreInvalid):
            WindowScore.from_json(bad)
    with pytest.raises(ScoreInvalid, match="0 windows"):
        summarize(())
