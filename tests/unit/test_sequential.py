"""Looks and their levels against published boundaries, the exact discrete law and simulated paths."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from labkit.bench.sequential import (
    ONE_LOOK,
    Look,
    look_alpha,
    look_pairs,
    sequential_p,
    stop_probabilities,
)
from labkit.bench.statistics import Array, signed_rank_cdf, signed_rank_critical
from labkit.core.errors import LabkitError

DESIGNS = [(8, 16), (16, 32), (24, 48), (8, 16, 24), (8, 16, 24, 32), (10, 20, 30, 40), (8, 13, 40)]


def boundaries(looks: int) -> list[float]:
    """The z of equally spaced looks of a one-sided level of 2.5%."""
    planned = tuple(range(1, looks + 1))
    return [float(special.ndtri(1 - look_alpha(planned, k) / 2)) for k in range(looks)]


def crossing(planned: tuple[int, ...], cuts: list[int]) -> float:
    """The exact chance that the signed-rank sum of stretches is at most its cut at some look."""
    sizes = np.diff([0, *planned])
    going, stopped = np.ones(1), 0.0
    for size, cut in zip(sizes, cuts, strict=True):
        going = np.convolve(going, np.diff(signed_rank_cdf(int(size)), prepend=0.0))
        stopped += going[: cut + 1].sum()
        going[: cut + 1] = 0.0
    return float(stopped)


@pytest.mark.parametrize(("pairs", "looks", "at"), [(16, 2, (8, 16)), (20, 2, (10, 20)), (17, 2, (9, 17))])
def test_looks_are_equally_spaced_and_the_last_at_the_end(
    pairs: int, looks: int, at: tuple[int, ...]
) -> None:
    assert look_pairs(pairs, looks) == at


@given(st.integers(1, 12), st.integers(0, 60))
def test_every_look_of_several_has_eight_pairs_before_it(looks: int, more: int) -> None:
    planned = look_pairs(8 * looks + more, looks)
    assert len(planned) == looks
    assert planned[-1] == 8 * looks + more
    assert all(b - a >= 8 for a, b in itertools.pairwise((0, *planned)))


@pytest.mark.parametrize(("pairs", "looks"), [(15, 2), (16, 3), (8, 0), (0, 1)])
def test_looks_with_too_few_pairs_before_them_are_refused(pairs: int, looks: int) -> None:
    with pytest.raises(LabkitError, match="at least 8 pairs were needed before each look"):
        look_pairs(pairs, looks)


def test_one_look_at_any_number_of_pairs_has_the_whole_level() -> None:
    assert look_pairs(3, 1) == (3,)
    assert look_alpha((3,), 0) == 0.05
    assert (ONE_LOOK.alpha, ONE_LOOK.spent) == (0.05, 0.05)
    assert sequential_p(0.0123, (8,), 0) == 0.0123


@pytest.mark.parametrize(("planned", "index"), [((), 0), ((8, 8), 0), ((16, 8), 1), ((8,), 1), ((8,), -1)])
def test_looks_that_are_none_are_refused(planned: tuple[int, ...], index: int) -> None:
    for use in (lambda: Look(planned, index), lambda: look_alpha(planned, index)):
        with pytest.raises(LabkitError, match="rising numbers of pairs"):
            use()


@pytest.mark.parametrize(
    ("looks", "published"),
    [
        # Pocock-type spending at one-sided 2.5%, as every program for group-sequential designs gives it.
        (2, [2.1570, 2.2010]),
        (4, [2.3683, 2.3675, 2.3582, 2.3500]),
        (5, [2.4380, 2.4268, 2.4102, 2.3966, 2.3860]),
    ],
)
def test_boundaries_are_the_published_ones(looks: int, published: list[float]) -> None:
    # Given to four digits.
    assert boundaries(looks) == pytest.approx(published, abs=6e-5)


@pytest.mark.parametrize(("looks", "constant"), [(2, 2.178), (3, 2.289), (4, 2.361), (5, 2.413)])
def test_pococks_constant_boundaries_err_with_five_percent(looks: int, constant: float) -> None:
    regions = [(constant, math.inf)] * looks
    # The table (Jennison & Turnbull, 2.1) has three digits, each worth 1e-4; both sides cross 1e-5 as often.
    found = 2 * sum(stop_probabilities(range(1, looks + 1), regions, 0.0))
    assert found == pytest.approx(0.05, abs=1.2e-4)


@pytest.mark.parametrize("planned", DESIGNS)
def test_the_levels_are_spent_as_planned(planned: tuple[int, ...]) -> None:
    z = [special.ndtri(1 - look_alpha(planned, k) / 2) for k in range(len(planned))]
    found = np.cumsum(stop_probabilities(planned, [(float(each), math.inf) for each in z], 0.0)).tolist()
    expected = [Look(planned, k).spent / 2 for k in range(len(planned))]
    # The quadrature is good to ten digits.
    assert found == pytest.approx(expected, rel=1e-9)
    assert expected[-1] == 0.025


@pytest.mark.parametrize("planned", [*DESIGNS, look_pairs(100, 5), look_pairs(64, 8), look_pairs(200, 25)])
def test_the_exact_discrete_test_errs_with_no_more_than_the_level(planned: tuple[int, ...]) -> None:
    """Under any noise, since stretches are ranked apart: no Monte Carlo and no normal approximation here."""
    looks = [Look(planned, k) for k in range(len(planned))]
    cuts = [signed_rank_critical(look.stretches(look.planned[look.index]), look.alpha / 2) for look in looks]
    # Normal boundaries on a discrete law: measured 2.07% to 2.48%.
    assert 0.018 <= crossing(planned, cuts) <= 0.025


def test_stretches_are_what_lies_between_the_looks() -> None:
    planned = (8, 16, 30)
    assert [Look(planned, k).stretches(n) for k, n in enumerate(planned)] == [(8,), (8, 8), (8, 8, 14)]
    # Pairs that failed are missing at the end.
    assert Look(planned, 2).stretches(14) == (8, 6)
    assert Look(planned, 2).stretches(8) == (8,)
    assert ONE_LOOK.stretches(24) == (24,)


@settings(max_examples=40)
@given(st.sampled_from(DESIGNS), st.integers(0, 3), st.lists(st.floats(1e-6, 1.0), min_size=2, max_size=5))
def test_the_p_of_a_look_is_the_level_at_which_it_would_just_have_crossed(
    planned: tuple[int, ...], index: int, ps: list[float]
) -> None:
    index = min(index, len(planned) - 1)
    overall = [sequential_p(p, planned, index) for p in sorted(ps)]
    assert overall == sorted(overall)
    for p, found in zip(sorted(ps), overall, strict=True):
        assert p <= found <= 1.0
        if found < 1.0:
            # Both searches stop at 13 digits.
            assert look_alpha(planned, index, found) == pytest.approx(p, rel=1e-11)


@pytest.mark.parametrize("planned", DESIGNS)
def test_the_p_passes_five_percent_exactly_where_the_level_is_passed(planned: tuple[int, ...]) -> None:
    for index in range(len(planned)):
        level = look_alpha(planned, index)
        assert (
            sequential_p(level * (1 - 1e-9), planned, index)
            < 0.05
            < sequential_p(level * 1.001, planned, index)
        )


def test_obrien_and_fleming_could_not_stop_at_eight_pairs() -> None:
    # Their type of function spends 2 - 2 Phi(z / sqrt(t)) of a one-sided 2.5%; 8 pairs reach 1/256.
    spent = 2 - 2 * special.ndtr(special.ndtri(1 - 0.025 / 2) / math.sqrt(0.5))
    assert spent < 2**-8 < look_alpha((8, 16), 0) / 2


def paths(planned: tuple[int, ...], drift: float, runs: int) -> Array:
    """`(runs, looks)` of z."""
    shares = np.array(planned) / planned[-1]
    scales = np.sqrt(np.diff(shares, prepend=0))
    steps = np.random.default_rng(0).standard_normal((runs, len(planned))) * scales
    return (steps.cumsum(axis=1) + drift * shares) / np.sqrt(shares)


@pytest.mark.parametrize(
    "regions",
    [
        [(2.4, math.inf), (2.3, math.inf), (2.1, math.inf)],
        [(1.9, 2.4), (1.7, 3.0), (1.5, 3.5)],
        [(2.0, 1.0), (1.7, 3.0), (1.5, 3.5)],
    ],
)
@pytest.mark.parametrize("drift", [0.0, 2.5])
def test_stops_are_those_of_simulated_paths(regions: list[tuple[float, float]], drift: float) -> None:
    planned, runs = (8, 20, 32), 200_000
    z = paths(planned, drift, runs).T
    inside = [(each > low) & (each < high) for each, (low, high) in zip(z, regions, strict=True)]
    first = np.where(np.any(inside, axis=0), np.argmax(inside, axis=0), -1)
    simulated = [np.mean(first == k) for k in range(3)]
    # The SE of a share is at most .11%; four of them.
    assert stop_probabilities(planned, regions, drift) == pytest.approx(simulated, abs=0.0045)


@pytest.mark.parametrize(
    ("left_out", "stretches"), [(0, (7, 8)), (7, (7, 8)), (8, (8, 7)), (15, (8, 7)), (None, (8, 8))]
)
def test_a_pair_is_left_out_of_its_own_stretch(left_out: int | None, stretches: tuple[int, ...]) -> None:
    assert Look((8, 16), 1, left_out).stretches(sum(stretches)) == stretches


def test_a_stretch_of_one_pair_is_gone_without_it() -> None:
    assert Look((8, 9, 17), 2, left_out=8).stretches(16) == (8, 8)
    assert ONE_LOOK.stretches(9) == Look((8,), 0, left_out=3).stretches(9) == (9,)
