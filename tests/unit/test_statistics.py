"""Signed-rank statistics against enumeration, scipy and their own duality."""

from __future__ import annotations

import itertools
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from labkit.bench import statistics
from labkit.core.errors import LabkitError

# Cells of 1/64: sums and halves are exact in binary, so ties in the tests are real ties.
differences = st.lists(st.integers(-40, 40).map(lambda k: k / 64), min_size=1, max_size=14)


def draw(seed: int, n: int) -> statistics.Array:
    return np.random.default_rng(seed).normal(0.3, 1.0, n)


@pytest.mark.parametrize("n", [1, 2, 5, 10])
def test_null_distribution_is_that_of_all_sign_patterns(n: int) -> None:
    sums = np.array([np.dot(signs, range(1, n + 1)) for signs in itertools.product([0, 1], repeat=n)])
    expected = [np.mean(sums <= t) for t in range(n * (n + 1) // 2 + 1)]
    # Multiples of 2^-n: exact.
    assert statistics.signed_rank_cdf(n).tolist() == expected


def test_the_normal_tail_takes_over_without_a_step() -> None:
    n = statistics.EXACT_UNITS
    exact = statistics.signed_rank_critical((n,), 0.025) / (n * (n + 1))
    approximate = statistics.signed_rank_critical((n + 1,), 0.025) / ((n + 1) * (n + 2))
    # The critical value per n(n+1) moves by 4e-4 a unit here; 1e-3 leaves room for the approximation.
    assert approximate == pytest.approx(exact, abs=1e-3)


@pytest.mark.parametrize(("n", "critical"), [(5, -1), (6, 0), (8, 3), (10, 8), (16, 29), (24, 81), (50, 434)])
def test_critical_values_are_the_tabulated_ones(n: int, critical: int) -> None:
    # Two-sided 5% values of any signed-rank table (Hollander, Wolfe & Chicken, table A.4).
    assert statistics.signed_rank_critical((n,), 0.025) == critical


@pytest.mark.parametrize("n", [8, 13, 30])
@pytest.mark.parametrize("alternative", ["greater", "less"])
def test_p_equals_scipy(n: int, alternative: Literal["greater", "less"]) -> None:
    x = draw(n, n)
    expected = stats.wilcoxon(x - 0.1, alternative=alternative, method="exact")[1]
    # The same exact distribution, added up in another order.
    assert statistics.signed_rank_p(x, 0.1, alternative) == pytest.approx(expected, rel=1e-9)


def test_estimate_is_the_median_of_pairwise_means() -> None:
    # Walsh averages of 1, 2, 9: 1, 1.5, 2, 5, 5.5, 9.
    assert statistics.hodges_lehmann([1.0, 2.0, 9.0]) == 3.5


@given(differences, st.integers(-45, 45).map(lambda k: k / 64))
def test_the_interval_excludes_a_shift_exactly_where_the_test_rejects_it(
    x: list[float], shift: float
) -> None:
    low, high = statistics.walsh_interval(x)
    if len(x) < 6:
        assert (low, high) == (min(x), max(x))
        return
    assert (low > shift) == (statistics.signed_rank_p(x, shift, "greater") <= 0.025)
    assert (high < shift) == (statistics.signed_rank_p(x, shift, "less") <= 0.025)


@given(differences, st.integers(-64, 64).map(lambda k: k / 64))
def test_estimate_and_interval_move_with_the_data_and_mirror(x: list[float], shift: float) -> None:
    moved = np.asarray(x) + shift
    low, high = statistics.walsh_interval(x)
    assert low <= statistics.hodges_lehmann(x) <= high
    assert statistics.walsh_interval(moved) == (low + shift, high + shift)
    assert statistics.walsh_interval(-np.asarray(x)) == (-high, -low)


def test_ties_at_the_shift_count_against_the_claim() -> None:
    x = [0.0] * 8
    assert statistics.signed_rank_p(x, 0.0, "greater") == 1.0
    assert statistics.signed_rank_p(x, 0.0, "less") == 1.0
    # Eight equal differences are beyond any smaller shift with the least p there is, 2^-8.
    assert statistics.signed_rank_p(x, -0.1, "greater") == 2**-8


def test_rows_are_runs() -> None:
    rows = np.stack([draw(seed, 20) for seed in range(5)])
    low, high = statistics.walsh_interval(rows)
    for row, a, b in zip(rows, low, high, strict=True):
        assert statistics.walsh_interval(row) == (a, b)
    assert statistics.signed_rank_p(rows, 0.0, "greater").shape == (5,)
    assert statistics.lag1(rows).shape == (5,)


def test_sign_flip_enumerates_small_samples_and_draws_for_large_ones() -> None:
    assert statistics.sign_flip_p([1.0] * 8) == 2 / 2**8
    assert statistics.sign_flip_p([1.0, -1.0]) == 1.0
    x = draw(3, 16)
    drawn = statistics.sign_flip_p(np.concatenate([x, [0.0]]), seed=1)
    # A zero changes no sum. SE of the drawn p is at most sqrt(.25 / 20000) = .0035; three of them.
    assert drawn == pytest.approx(statistics.sign_flip_p(x), abs=0.011)
    assert statistics.sign_flip_p(draw(3, 20), seed=1) == statistics.sign_flip_p(draw(3, 20), seed=1)
    assert 0 < statistics.sign_flip_p([1.0] * 40) < 1e-3


def test_lag1_by_hand() -> None:
    # Residuals -1.5 -.5 .5 1.5: lagged products .75 - .25 + .75, squares 5.
    assert statistics.lag1([1.0, 2.0, 3.0, 4.0]) == 0.25
    assert statistics.lag1([2.0, 2.0, 2.0]) == 0.0


def test_stretches_are_ranked_apart() -> None:
    x, stretches = draw(7, 15), (8, 7)
    apart = np.concatenate([statistics.walsh_averages(x[:8]), statistics.walsh_averages(x[8:])])
    assert sorted(statistics.walsh_averages(x, stretches)) == sorted(apart)
    assert statistics.hodges_lehmann(x, stretches) == np.median(apart)
    low, high = statistics.walsh_interval(x, 0.95, stretches)
    assert low in apart
    assert low <= statistics.hodges_lehmann(x, stretches) <= high


@pytest.mark.parametrize("stretches", [(3, 2), (2, 4), (1, 1, 3)])
def test_null_distribution_of_stretches_is_that_of_all_sign_patterns(stretches: tuple[int, ...]) -> None:
    ranks = [rank for n in stretches for rank in range(1, n + 1)]
    sums = np.array([np.dot(signs, ranks) for signs in itertools.product([0, 1], repeat=len(ranks))])
    expected = [np.mean(sums <= t) for t in range(sum(ranks) + 1)]
    # Multiples of 2^-n: exact.
    assert statistics.signed_rank_cdf(*stretches).tolist() == expected


@given(st.lists(st.integers(-40, 40).map(lambda k: k / 64), min_size=9, max_size=14), st.integers(1, 8))
def test_the_interval_of_stretches_is_dual_to_their_test(x: list[float], first: int) -> None:
    stretches = (first, len(x) - first)
    # A few stretches of few units do not reach 95%; the range is then no interval of the test.
    if statistics.signed_rank_critical(stretches, 0.025) < 0:
        return
    low, high = statistics.walsh_interval(x, 0.95, stretches)
    for shift in (-0.5, -0.125, 0.0, 0.25):
        assert (low > shift) == (statistics.signed_rank_p(x, shift, "greater", stretches) <= 0.025)
        assert (high < shift) == (statistics.signed_rank_p(x, shift, "less", stretches) <= 0.025)


def test_the_level_is_what_the_steps_of_the_exact_test_leave() -> None:
    # P(T <= 3) of 8 units is 5 of 256 patterns, P(T <= 4) is 7: the largest below 2.5% is 5/256.
    assert statistics.attained_level((8,), 0.025) == 5 / 256
    assert statistics.attained_level((8,), 0.003) == 0.0


def test_mean_interval_and_p_are_students() -> None:
    x = draw(5, 12)
    mean, low, high = statistics.mean_interval(x)
    expected = stats.t.interval(0.95, 11, loc=x.mean(), scale=stats.sem(x))
    assert (low, high) == pytest.approx(expected, rel=1e-9)
    assert mean == x.mean()
    for alternative in ("greater", "less"):
        p = stats.ttest_1samp(x, 0.2, alternative=alternative)[1]
        assert statistics.mean_p(x, 0.2, alternative) == pytest.approx(p, rel=1e-9)
    assert statistics.mean_interval([2.0]) == (2.0, 2.0, 2.0)
    assert statistics.mean_p([2.0], 0.0, "greater") == 1.0


def test_mean_p_without_spread_is_its_limit() -> None:
    assert statistics.mean_p([0.1] * 4, 0.05, "greater") == 0.0
    assert statistics.mean_p([0.1] * 4, 0.05, "less") == 1.0
    assert statistics.mean_p([0.1] * 4, 0.1, "greater") == 1.0


def test_holm_by_hand() -> None:
    adjusted = statistics.holm([0.03, 0.01, 0.04, 0.9])
    # .01 x 4; .03 x 3; .04 x 2 = .08, raised to the .09 before it; .9.
    assert adjusted == pytest.approx((0.09, 0.04, 0.09, 0.9), rel=1e-12)
    assert statistics.holm([]) == ()


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_never_lowers_a_p_and_keeps_the_order(p_values: list[float]) -> None:
    adjusted = statistics.holm(p_values)
    assert all(p <= a <= 1 for p, a in zip(p_values, adjusted, strict=True))
    ranked = [adjusted[i] for i in np.argsort(p_values, kind="stable")]
    assert ranked == sorted(ranked)


def test_one_arm_alone() -> None:
    single = statistics.single_sample_interval([5.0], "tok/s")
    assert (single.value, single.low, single.high, single.n, single.unit) == (5.0, 5.0, 5.0, 1, "tok/s")
    few = statistics.single_sample_interval([4.0, 6.0, 5.0], "tok/s")
    assert (few.value, few.low, few.high, few.n) == (5.0, 4.0, 6.0, 3)
    many = statistics.single_sample_interval(range(1, 9), "s")
    # n = 8: the fourth smallest and largest of 36 Walsh averages, 1, 1.5, 2, 2 | and 8, 7.5, 7, 7.
    assert (many.value, many.low, many.high) == (4.5, 2.0, 7.0)


def test_no_units_are_refused() -> None:
    with pytest.raises(LabkitError, match="at least one unit"):
        statistics.walsh_interval([])
