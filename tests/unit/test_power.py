"""The planned number of pairs: its floors, directions, looks and reasons. Its power is simulated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from labkit.bench.power import chances, plan_from_pilot, plan_pairs
from labkit.bench.sequential import look_pairs
from labkit.core.errors import LabkitError


def test_no_verdict_rests_on_fewer_than_eight_pairs() -> None:
    plan = plan_pairs(0.0, 0.03, 0.10, "better")
    assert plan.pairs == 8
    assert "8 pairs are the least" in plan.reason


@pytest.mark.parametrize(("axes", "pairs"), [(1, 8), (6, 8), (7, 9), (12, 9), (13, 10), (26, 11)])
def test_the_smallest_p_must_pass_holm(axes: int, pairs: int) -> None:
    # 2^(1-n) <= .05 / axes: 8 pairs serve 6 axes, 9 serve 12, 10 serve 25.
    assert plan_pairs(0.0, 0.03, 0.10, "better", axes=axes).pairs == pairs


def test_holm_is_named_as_the_reason() -> None:
    assert "fewer than 9 pairs" in plan_pairs(0.0, 0.03, 0.10, "better", axes=7).reason


def test_more_noise_nearer_margins_and_more_axes_take_more_pairs() -> None:
    def plan(**changed: Any) -> int:
        asked = {"sd_log_ratio": 0.06, "margin": 0.03, "effect": 0.10, "goal": "better"} | changed
        return plan_pairs(**asked).pairs or 0

    assert plan() > 8
    assert plan(sd_log_ratio=0.12) > 3 * plan()
    assert plan(margin=0.06) > plan()
    assert plan(effect=0.20) < plan()
    assert plan(axes=5) > plan()
    assert plan(power=0.5) < plan()


def test_worse_mirrors_better_in_log_ratio() -> None:
    better = plan_pairs(0.06, 0.03, 0.10, "better").pairs
    assert plan_pairs(0.06, 0.03, 1 / 1.10 - 1, "worse").pairs == better


def test_a_tie_is_hardest_to_settle_off_centre() -> None:
    centred, off = (plan_pairs(0.04, 0.03, effect, "equivalent").pairs for effect in (0.0, 0.01))
    assert centred is not None
    assert off is not None
    assert off > centred


def test_large_plans_agree_with_the_normal_formula() -> None:
    sd, distance = 0.20, np.log(1.10 / 1.03)
    z = stats.norm.ppf(0.975) + stats.norm.ppf(0.95)
    expected = (z * sd / distance) ** 2 * np.pi / 3
    # t against z and the steps of the exact level cost at most three pairs at this size.
    assert 0 <= (plan_pairs(sd, 0.03, 0.10, "better").pairs or 0) - expected <= 4


@pytest.mark.parametrize(("goal", "effect"), [("better", 0.10), ("worse", -0.10), ("equivalent", 0.0)])
def test_looks_take_some_more_pairs_at_most_and_fewer_on_average(goal: Any, effect: float) -> None:
    one, two, four = (plan_pairs(0.12, 0.05, effect, goal, looks=looks) for looks in (1, 2, 4))
    assert one.pairs is not None and two.pairs is not None and four.pairs is not None
    assert (one.looks, two.looks, four.looks) == (1, 2, 4)
    assert one.expected == one.pairs < two.pairs <= four.pairs < 1.3 * one.pairs
    assert two.expected is not None and four.expected is not None
    assert max(two.expected, four.expected) < 0.85 * one.pairs
    assert two.power is not None and 0.95 <= two.power < 0.96


def test_every_look_has_eight_pairs_before_it() -> None:
    plan = plan_pairs(0.0, 0.03, 0.10, "better", looks=3)
    # Without noise the first look decides.
    assert (plan.pairs, plan.expected) == (24, 8.0)
    assert "there are 3 looks" in plan.reason


def test_no_claim_is_planned_below_the_least() -> None:
    """Without noise the first look that may make the claim does; with it, what the noise takes stays."""
    plan = plan_pairs(0.0, 0.03, 0.0, "equivalent", least=20)
    assert (plan.pairs, plan.reason) == (20, "with fewer than 20 pairs the A/A floor is above the margin")
    two = plan_pairs(0.0, 0.03, 0.0, "equivalent", looks=2, least=10)
    assert (two.pairs, two.expected) == (16, 16.0)
    assert plan_pairs(0.12, 0.05, 0.0, "equivalent", least=20) == plan_pairs(0.12, 0.05, 0.0, "equivalent")


def test_a_plan_that_one_look_cannot_make_is_found_with_neither() -> None:
    assert plan_pairs(5.0, 0.03, 0.04, "better", looks=2).pairs is None
    assert plan_pairs(0.04, 0.03, 0.03, "better", looks=2).pairs is None


def test_no_smaller_plan_would_do() -> None:
    """Against a search from the least on, which the quick one skips most of."""
    plan = plan_pairs(0.25, 0.03, 0.10, "better", looks=2)
    assert plan.pairs is not None
    found = (n for n in range(16, 1000) if plan_power(n) >= 0.95)
    assert plan.pairs == next(found)


def plan_power(pairs: int) -> float:
    """The power of the plan above with so many pairs, by its own simulation-checked approximation."""
    distance = float(np.log(1.10 / 1.03) / 0.25)
    return sum(chances(look_pairs(pairs, 2), [distance], 0.05))


@pytest.mark.parametrize(
    ("effect", "goal", "where"),
    [
        (0.03, "better", "on the margin"),
        (1 / 1.03 - 1, "worse", "on the margin"),
        (0.03, "equivalent", "on the margin"),
        (0.01, "better", "on the wrong side"),
        (0.10, "worse", "on the wrong side"),
        (0.10, "equivalent", "on the wrong side"),
    ],
)
def test_no_number_of_pairs_settles_an_effect_on_the_margin(effect: float, goal: Any, where: str) -> None:
    plan = plan_pairs(0.04, 0.03, effect, goal)
    assert plan.pairs is None
    assert where in plan.reason


def test_hopeless_noise_is_said_so() -> None:
    plan = plan_pairs(5.0, 0.03, 0.04, "better")
    assert plan.pairs is None
    assert "noise is too large" in plan.reason


def test_the_pilot_bound_covers_the_true_sd_four_times_in_five() -> None:
    pilots = np.random.default_rng(0).normal(0, 0.04, (4000, 5))
    covered = np.mean([plan_from_pilot(pilot) >= 0.04 for pilot in pilots])
    # SE .6%; three of them.
    assert covered == pytest.approx(0.80, abs=0.019)


@pytest.mark.parametrize(("pairs", "factor"), [(4, 1.73), (8, 1.35)])
def test_the_pilot_bound_is_the_factor_the_docstring_names(pairs: int, factor: float) -> None:
    pilot = np.random.default_rng(0).normal(size=pairs)
    # The factors are given to two digits.
    assert plan_from_pilot(pilot.tolist()) / pilot.std(ddof=1) == pytest.approx(factor, abs=0.01)


@pytest.mark.parametrize("pilot", [[], [0.1, 0.2], [0.1, 0.2, float("nan")]])
def test_a_pilot_too_short_or_broken_is_refused(pilot: list[float]) -> None:
    with pytest.raises(LabkitError, match="pilot of at least 3 pairs"):
        plan_from_pilot(pilot)


@pytest.mark.parametrize(
    ("changed", "need"),
    [
        ({"sd_log_ratio": -1.0}, "SD of the log ratio"),
        ({"margin": float("nan")}, "margin"),
        ({"effect": -1.0}, "effect"),
        ({"alpha": 0.0}, "alpha"),
        ({"power": 1.0}, "power"),
        ({"axes": 0}, "axis"),
        ({"looks": 0}, "look"),
        ({"goal": "faster"}, "known claim"),
    ],
)
def test_values_out_of_range_are_refused(changed: dict[str, Any], need: str) -> None:
    asked = {"sd_log_ratio": 0.04, "margin": 0.03, "effect": 0.10, "goal": "better"} | changed
    with pytest.raises(LabkitError, match=need):
        plan_pairs(**asked)
