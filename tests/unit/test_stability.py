"""Drift and autocorrelation over a run, against scipy, enumeration and noise of known kinds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from labkit.bench.stability import inversion_cdf, kendall_p, lag1_p, stability, total_change
from labkit.bench.statistics import Array, lag1
from labkit.core.canonical import canonical_json
from labkit.core.errors import LabkitError


def noise(seed: int, n: int = 24, sd: float = 0.02) -> Array:
    return np.random.default_rng(seed).normal(0, sd, n)


def rates(log_time: Array, seed: int = 0) -> tuple[list[float], list[float]]:
    """tok/s of two equal arms whose log time is shared, with noise of each visit."""
    first, second = (100 * np.exp(-log_time + noise(seed + k, len(log_time))) for k in (1, 2))
    return first.tolist(), second.tolist()


@pytest.mark.parametrize("n", [3, 4, 6])
def test_inversions_are_those_of_all_orders(n: int) -> None:
    counts = [
        sum(a > b for a, b in itertools.combinations(order, 2)) for order in itertools.permutations(range(n))
    ]
    expected = [np.mean(np.array(counts) <= k) for k in range(n * (n - 1) // 2 + 1)]
    # Sums of a few products of fractions.
    assert inversion_cdf(n) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("n", [3, 8, 17, 60])
@pytest.mark.parametrize("trend", [0.0, 0.003, -0.003])
def test_kendalls_p_is_scipys(n: int, trend: float) -> None:
    x = noise(n, n) + trend * np.arange(n)
    expected = stats.kendalltau(np.arange(n), x, method="exact")[1]
    assert kendall_p(x) == pytest.approx(expected, rel=1e-9)


def test_kendalls_p_with_ties_is_close_to_the_share_of_orders() -> None:
    x: Array = np.round(noise(5, 12, 1.0)) + np.repeat([0.0, 1.0, 2.0], 4)
    source, steps = np.random.default_rng(1), np.triu_indices(12, 1)

    def score(values: Array) -> float:
        return abs(np.sign(values[steps[1]] - values[steps[0]]).sum())

    share = np.mean([score(source.permutation(x)) >= score(x) for _ in range(4000)])
    # SE .5% near 10%; the normal approximation with its correction is good to 1%.
    assert kendall_p(x) == pytest.approx(share, abs=0.025)


def test_the_total_change_is_the_slope_over_the_run_whatever_one_pair_does() -> None:
    line: Array = 0.5 + np.linspace(0.0, 0.1, 11)
    assert total_change(line) == pytest.approx(0.1, rel=1e-12)
    line[3] = 9.0
    assert total_change(line) == pytest.approx(0.1, rel=1e-12)


def test_a_drift_of_both_arms_is_one_of_the_level_alone() -> None:
    found = stability(*rates(np.linspace(0, 0.2, 24)))
    # exp(-.2) - 1 is -18%; the SD of the level is 1.4%, so of its whole change about 1.1%.
    assert found.level_drift == pytest.approx(-0.18, abs=0.035)
    assert found.level_drift_p < 1e-6
    assert found.effect_drift_p > 0.01
    (phrase, *_) = found.phrases("decode")
    assert phrase.startswith("decode drifted by -1")
    assert phrase.endswith("% over the run (p < 0.001)")
    assert not any("between the arms" in text for text in found.phrases("decode"))


def test_an_effect_that_moves_is_told_as_such() -> None:
    baseline, candidate = rates(np.zeros(24))
    moving = (np.array(candidate) * np.exp(np.linspace(0, 0.3, 24))).tolist()
    found = stability(baseline, moving)
    assert found.effect_drift == pytest.approx(np.expm1(0.3), abs=0.1)
    texts = found.phrases("decode")
    assert any(text.startswith("the difference in decode between the arms drifted by +3") for text in texts)


def test_pairs_that_hang_together_are_told() -> None:
    walk = np.zeros(60)
    for visit in range(1, 60):
        walk[visit] = 0.9 * walk[visit - 1] + noise(visit, 1, 0.05)[0]
    found = stability(*rates(walk))
    assert found.level_lag1 > 0.4
    assert found.level_lag1_p < 0.002
    assert any("hangs together from pair to pair (lag-1 +0." in text for text in found.phrases("decode"))


def test_the_p_of_lag_1_is_the_share_of_all_orders() -> None:
    x = np.array([0.1, 0.4, 0.35, 0.9, 1.0, 1.3, 0.8])
    away = [abs(float(lag1(np.array(order))) + 1 / 7) for order in itertools.permutations(x)]
    share = np.mean(np.array(away) >= abs(float(lag1(x)) + 1 / 7) - 1e-12)
    # SE of 4,999 orders at most .7%; three of them.
    assert lag1_p(x) == pytest.approx(share, abs=0.021)
    assert lag1_p(x) == lag1_p(x.copy())


@pytest.mark.parametrize("pairs", [8, 24])
def test_steady_noise_is_called_unsteady_in_one_run_of_a_hundred_at_most(pairs: int) -> None:
    runs = [stability(*rates(np.zeros(pairs), seed=10 * run)) for run in range(150)]
    told = np.mean([bool(run.phrases("decode")) for run in runs])
    # Holm keeps all four to 1%; SE .8%, two of them.
    assert told <= 0.026


def test_values_that_do_not_move_show_nothing() -> None:
    for values in ([], [5.0], [5.0, 6.0], [640.0] * 8):
        found = stability(values, values)
        assert found.phrases("KV cache") == ()
        assert (found.effect_drift, found.effect_drift_p, found.effect_lag1_p) == (0.0, 1.0, 1.0)
        assert canonical_json(found.to_json())


def test_differences_are_told_in_the_unit() -> None:
    seconds = [float(x) for x in 2 + np.arange(12) / 11]
    found = stability(seconds, [2.0 * x for x in seconds], ratio=False)
    assert not found.ratio
    assert found.phrases("compile", "s")[0] == "compile drifted by +1.5 s over the run (p < 0.001)"


def test_where_a_value_is_not_positive_differences_are_taken() -> None:
    assert not stability([0.0, 1.0, 2.0], [1.0, 1.0, 1.0]).ratio


@pytest.mark.parametrize(("a", "b"), [([1.0], [1.0, 2.0]), ([1.0, float("nan")], [1.0, 2.0])])
def test_arms_that_do_not_match_are_refused(a: list[float], b: list[float]) -> None:
    with pytest.raises(LabkitError, match="as many finite values"):
        stability(a, b)
