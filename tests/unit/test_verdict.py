"""The verdict table: improved, worse, equivalent, unresolved, failed and missing rows, and the outcome."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.bench.judges import Samples, classify
from labkit.bench.sequential import ONE_LOOK, Look, look_alpha, look_pairs
from labkit.bench.verdict import axis_verdicts, decided, outcome
from labkit.core.canonical import canonical_json
from labkit.core.errors import LabkitError
from labkit.core.hypothesis import Hypothesis
from labkit.core.records import AxisResult

# A fixed sample of 12 log ratios with mean 0 and SD about .02, not autocorrelated.
NOISE = (0.013, 0.018, -0.024, -0.005, 0.022, 0.004, -0.03, 0.017, -0.011, -0.021, 0.024, -0.007)

GOLDEN = """\
decode_tps     improves better     1.200 [1.183, 1.218] n=12 pair p=.0005 holm=.0039
prefill_tps    improves equivalent 1.000 [0.986, 1.015] n=12 pair p=.0005 holm=.0039
kv_bytes       improves better     3.556 [3.556, 3.556] n=12 pair p=.0005 holm=.0039
artifact_bytes improves better     2.000 [2.000, 2.000] n=1 pair p=.0000 holm=.0000
ttft_s         holds    worse      0.800 [0.788, 0.811] n=12 pair p=.0005 holm=.0039
itl_p50_s      holds    unresolved 1.030 [1.015, 1.045] n=12 pair p=1.0000 holm=1.0000
itl_p99_s      holds    unresolved 1.201 [1.179, 1.229] n=7 pair p=1.0000 holm=1.0000
peak_bytes     holds    unresolved 1.000 [1.000, 1.000] n=0 pair p=1.0000 holm=1.0000
ppl_ratio      holds    worse      0.951 [0.949, 0.953] n=8 window p=.0000 holm=.0000
kl_mean_nats   holds    equivalent 0.002 [0.001, 0.003] n=8 window p=.0000 holm=.0000
top1_agreement holds    unresolved -0.020 [-0.027, -0.013] n=3 window p=1.0000 holm=1.0000
"""


def visits(log_ratio: float, noise: Sequence[float] = NOISE, base: float = 50.0) -> Samples:
    """Pairs whose candidate over baseline is exp(log_ratio) with the noise."""
    baseline = tuple(base * (1 + 0.01 * i) for i in range(len(noise)))
    return Samples(tuple(b * np.exp(log_ratio + e) for b, e in zip(baseline, noise, strict=True)), baseline)


def golden_axes() -> tuple[AxisResult, ...]:
    """One experiment with a row of every kind."""
    nll = tuple(3.0 + 0.1 * i for i in range(8))
    samples = {
        "decode_tps": visits(np.log(1.2)),
        "prefill_tps": visits(0.0),
        "kv_bytes": Samples((180.0,) * 12, (640.0,) * 12),
        "artifact_bytes": Samples((100.0,), (200.0,)),
        "ttft_s": visits(np.log(1.25)),
        "itl_p50_s": visits(-np.log(1.03)),
        "itl_p99_s": visits(-np.log(1.2), NOISE[:7]),
        "ppl_ratio": Samples(tuple(v + 0.05 + e / 10 for v, e in zip(nll, NOISE, strict=False)), nll),
        "kl_mean_nats": Samples((0.001, 0.002, 0.003, 0.001, 0.004, 0.002, 0.001, 0.002)),
        "top1_agreement": Samples((0.98, 0.977, 0.983)),
    }
    improves = {"decode_tps": 0.05, "prefill_tps": 0.05, "kv_bytes": 0.4, "artifact_bytes": 0.3}
    held = ("ttft_s", "itl_p50_s", "itl_p99_s", "peak_bytes", "ppl_ratio", "kl_mean_nats", "top1_agreement")
    holds = {name: 0.01 if name in ("kl_mean_nats", "ppl_ratio") else 0.03 for name in held}
    return axis_verdicts(samples, Hypothesis("all rows", improves=improves, holds=holds))


def table(axes: Sequence[AxisResult]) -> str:
    """The axes as text, without their notes."""
    rows = (
        f"{a.metric:14} {a.goal:8} {a.verdict:10} {a.estimate:.3f} [{a.low:.3f}, {a.high:.3f}]"
        f" n={a.n} {a.unit} p={_p(a.p_value)} holm={_p(a.p_holm)}"
        for a in axes
    )
    return "".join(f"{row}\n" for row in rows)


def _p(value: float) -> str:
    return f"{value:.4f}".removeprefix("0") if value < 1 else f"{value:.4f}"


def notes_of(axes: Sequence[AxisResult], metric: str) -> str:
    return "; ".join(next(a.notes for a in axes if a.metric == metric))


def one(sample: Samples, metric: str = "decode_tps", margin: float = 0.03) -> AxisResult:
    return axis_verdicts({metric: sample}, Hypothesis("one axis", improves={metric: margin}))[0]


def test_golden_table() -> None:
    assert table(golden_axes()) == GOLDEN


def test_rows_that_say_nothing_say_why() -> None:
    axes = golden_axes()
    assert "no sample" in notes_of(axes, "peak_bytes")
    assert "7 pairs: at least 8 are needed" in notes_of(axes, "itl_p99_s")
    assert "3 windows: at least 4 are needed" in notes_of(axes, "top1_agreement")
    assert "exact" in notes_of(axes, "artifact_bytes")
    assert notes_of(axes, "decode_tps") == "sign-flip p 0.000488 against no difference at all"


def test_every_result_can_be_stored() -> None:
    for axis in golden_axes():
        numbers = [axis.estimate, axis.low, axis.high, axis.p_value, axis.p_holm]
        assert canonical_json([axis.metric, *numbers, axis.n, axis.verdict])


@pytest.mark.parametrize("pairs", range(1, 8))
def test_fewer_than_eight_pairs_decide_nothing(pairs: int) -> None:
    axis = one(visits(1.0, NOISE[:pairs]))
    assert (axis.verdict, axis.n, axis.p_value) == ("unresolved", pairs, 1.0)
    assert axis.low <= axis.estimate <= axis.high


@pytest.mark.parametrize("windows", [1, 2, 3])
def test_fewer_than_four_windows_decide_nothing(windows: int) -> None:
    axis = one(Samples((0.0,) * windows), "kl_mean_nats")
    assert (axis.verdict, axis.n, axis.p_value) == ("unresolved", windows, 1.0)


def test_lower_is_better_where_the_metric_says_so() -> None:
    slower = visits(np.log(1.2))
    assert one(slower, "decode_tps").verdict == "better"
    assert one(slower, "ttft_s").verdict == "worse"


def test_equal_differences_decide_by_the_sign_alone() -> None:
    bytes_held = one(Samples((100.0,) * 8, (141.0,) * 8), "kv_bytes", 0.40)
    assert (bytes_held.verdict, bytes_held.p_value) == ("better", 2**-7)
    assert bytes_held.low == bytes_held.estimate == bytes_held.high
    assert one(Samples((100.0,) * 8, (100.0,) * 8), "kv_bytes", 0.40).verdict == "equivalent"


@pytest.mark.parametrize("margin", [0.03, 0.1, 0.4, 0.7, 1.0])
@pytest.mark.parametrize("metric", ["kv_bytes", "artifact_bytes"])
def test_a_difference_exactly_at_the_margin_is_on_neither_side(metric: str, margin: float) -> None:
    n = 1 if metric == "artifact_bytes" else 8
    for baseline, candidate in ((1000.0 * (1 + margin), 1000.0), (1000.0, 1000.0 * (1 + margin))):
        at = one(Samples((candidate,) * n, (baseline,) * n), metric, margin)
        assert (at.verdict, at.p_value) == ("unresolved", 1.0)


def test_holm_withdraws_a_verdict_and_says_so() -> None:
    # Eight pairs reach p = .0078 at best: enough for 6 axes, not for 7.
    names = ["decode_tps", "prefill_tps", "ttft_s", "itl_p50_s", "itl_p95_s", "itl_p99_s", "kv_bytes"]
    samples = {name: Samples((10.0,) * 8, (20.0,) * 8) for name in names}
    six = axis_verdicts(samples, Hypothesis("six", improves=dict.fromkeys(names[:6], 0.05)))
    seven = axis_verdicts(samples, Hypothesis("seven", improves=dict.fromkeys(names, 0.05)))
    assert {a.verdict for a in six} == {"better", "worse"}
    assert {a.verdict for a in seven} == {"unresolved"}
    assert "better alone, but p 0.0547 after Holm over 7 axes" in notes_of(seven, "ttft_s")
    # A metric that was not measured stays in the family.
    missing = axis_verdicts(
        dict.fromkeys(names[:6], samples["ttft_s"]), Hypothesis("", dict.fromkeys(names, 0.05))
    )
    assert {a.verdict for a in missing} == {"unresolved"}


def test_the_unit_is_the_pair_however_pairs_hang_together() -> None:
    alternating = tuple(e / 10 + (0.2 if i % 2 else -0.2) for i, e in enumerate(NOISE + NOISE[:4]))
    axis = one(visits(0.5, alternating))
    assert (axis.unit, axis.n) == ("pair", 16)


def looked(
    d: Sequence[float], look: Look, margin: float = 0.03, floor: float = 0.0, bias: float = 0.0
) -> AxisResult:
    claim = Hypothesis("one axis", improves={"decode_tps": margin})
    known = {"decode_tps": floor}, {"decode_tps": bias}
    return axis_verdicts({"decode_tps": visits(0.0, d)}, claim, look, *known)[0]


def test_a_look_widens_the_interval_and_says_so() -> None:
    first, last, alone = (looked(NOISE[:8], look) for look in (Look((8, 16), 0), Look((8, 16), 1), ONE_LOOK))
    assert [axis.alpha for axis in (first, last, alone)] == [*(look_alpha((8, 16), k) for k in (0, 1)), 0.05]
    assert first.high - first.low > alone.high - alone.low
    assert "look 1 of 2: an interval of 96.90%" in notes_of([first], "decode_tps")
    assert "look" not in notes_of([alone], "decode_tps")


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10_000),
    st.floats(-0.12, 0.12),
    st.sampled_from([0, 1, 2]),
    st.floats(0, 0.06),
    st.booleans(),
)
def test_at_any_look_and_floor_a_verdict_stands_where_its_own_p_does(
    seed: int, shift: float, index: int, floor: float, biased: bool
) -> None:
    planned = (8, 17, 25)
    noise = np.random.default_rng(seed).normal(shift, 0.03, planned[index])
    bias = floor if biased else 0.0
    axis = looked(tuple(noise), Look(planned, index), floor=floor, bias=bias)
    assert (axis.verdict != "unresolved") == (axis.p_value <= 0.05)
    limits = np.log1p(0.03), np.log1p(floor), np.log1p(bias)
    assert axis.verdict == classify(np.log(axis.low), np.log(axis.high), *limits)
    assert axis.floor == floor


def test_so_many_looks_that_the_first_can_decide_nothing() -> None:
    look = Look(look_pairs(128, 16), 0)
    axis = looked((0.5,) * 8, look)
    # 2/256 is the least two-sided p of 8 pairs.
    assert axis.alpha < 2 / 256
    assert (axis.verdict, axis.p_value) == ("unresolved", 1.0)
    assert "8 pairs: their smallest p is above the" in notes_of([axis], "decode_tps")


def test_holm_works_on_the_p_of_the_looks() -> None:
    # Eight equal pairs have p 2/256 alone; at the first of two looks it stands for 0.0126 of both.
    equal = Samples((10.0,) * 8, (20.0,) * 8)
    samples: dict[str, Samples] = dict.fromkeys(["decode_tps", "ttft_s", "kv_bytes", "load_s"], equal)
    margins = dict.fromkeys(samples, 0.05)
    look = Look((8, 16), 0)
    four = axis_verdicts(samples, Hypothesis("four", improves=margins), look)
    three = axis_verdicts(samples, Hypothesis("x", dict.fromkeys(list(margins)[:3], 0.05)), look)
    assert four[0].p_value == pytest.approx(2 / 256 / np.log1p((np.e - 1) / 2), rel=1e-9)
    assert {a.verdict for a in four} == {"unresolved"}
    assert {a.verdict for a in three} == {"better", "worse"}


def test_scores_and_artifacts_are_judged_once() -> None:
    samples = {"kl_mean_nats": Samples((0.001,) * 4), "artifact_bytes": Samples((100.0,), (200.0,))}
    claim = Hypothesis("x", improves={"artifact_bytes": 0.3}, holds={"kl_mean_nats": 0.01})
    floors = {"kl_mean_nats": 1.0, "artifact_bytes": 5.0}
    axes = axis_verdicts(samples, claim, Look((8, 16), 0), floors)
    assert [(a.verdict, a.alpha, a.floor) for a in axes] == [("better", 0.05, 0.0), ("equivalent", 0.05, 0.0)]


def test_a_difference_must_be_beyond_the_bias_of_equal_arms_too() -> None:
    gain = tuple(0.10 + e / 10 for e in NOISE)
    assert looked(gain, ONE_LOOK, floor=0.05, bias=0.05).verdict == "better"
    held = looked(gain, ONE_LOOK, floor=0.12, bias=0.12)
    assert (held.verdict, held.floor) == ("unresolved", 0.12)
    note = "A/A floor of 12.00% exceeds the margin of 3.00%"
    assert note in notes_of([held], "decode_tps")
    assert looked([-d for d in gain], ONE_LOOK, floor=0.05, bias=0.05).verdict == "worse"
    assert looked([-d for d in gain], ONE_LOOK, floor=0.12, bias=0.12).verdict == "unresolved"


def test_a_floor_of_chance_alone_stands_in_the_way_of_no_difference() -> None:
    """The interval of the pairs holds the chance already: counted twice it would cost power."""
    gain = tuple(0.10 + e / 10 for e in NOISE)
    assert looked(gain, ONE_LOOK, floor=0.12).verdict == "better"
    assert looked([-d for d in gain], ONE_LOOK, floor=0.12).verdict == "worse"


def test_nothing_is_equivalent_within_a_margin_below_the_floor() -> None:
    tie = tuple(e / 10 for e in NOISE)
    assert looked(tie, ONE_LOOK, floor=0.03).verdict == "equivalent"
    below = looked(tie, ONE_LOOK, floor=0.031)
    assert (below.verdict, below.p_value) == ("unresolved", 1.0)
    assert "a quieter machine or a wider margin would help" in notes_of([below], "decode_tps")


@pytest.mark.parametrize(
    ("less", "verdict"), [(2.0, "better"), (-2.0, "worse"), (0.0, "equivalent"), (0.5, "unresolved")]
)
def test_seconds_of_compiling_are_compared_by_difference(less: float, verdict: str) -> None:
    baseline = np.array([5.0, 5.1, 4.9, 5.2, 5.0, 5.1, 4.8, 5.0])
    candidate = baseline - less + np.array(NOISE[:8])
    axis = one(Samples(candidate.tolist(), baseline.tolist()), "compile_s", 0.5)
    assert (axis.verdict, axis.scale, axis.unit) == (verdict, "absolute", "pair")
    # Shown as candidate less baseline, in seconds, where lower is better.
    assert axis.estimate == pytest.approx(-less, abs=0.02)
    assert axis.low <= axis.estimate <= axis.high


def test_seconds_of_compiling_may_be_zero_or_below_and_have_a_floor() -> None:
    zero = Samples((0.0,) * 8, (0.0,) * 8)
    axis = one(zero, "compile_s", 0.5)
    assert (axis.verdict, str(axis.estimate)) == ("equivalent", "0.0")
    claim = Hypothesis("x", improves={"compile_s": 0.5})
    floored = axis_verdicts({"compile_s": zero}, claim, floors={"compile_s": 0.75})[0]
    assert floored.verdict == "unresolved"
    assert "A/A floor of 0.75 s exceeds the margin of 0.5 s" in notes_of([floored], "compile_s")


def test_a_run_is_decided_when_every_axis_of_visits_is() -> None:
    def axis(metric: str, verdict: Any) -> AxisResult:
        return replace(_axis("holds", verdict), metric=metric)

    assert decided([axis("decode_tps", "worse"), axis("kl_mean_nats", "unresolved")])
    assert not decided([axis("decode_tps", "better"), axis("kv_bytes", "unresolved")])
    assert decided([axis("kl_mean_nats", "unresolved")])


def test_kl_is_never_better_and_the_margin_itself_is_within() -> None:
    def kl(values: Sequence[float], margin: float) -> AxisResult:
        return one(Samples(values), "kl_mean_nats", margin)

    assert kl((0.0,) * 4, 0.0).verdict == "equivalent"
    assert kl((0.01,) * 4, 0.01).verdict == "equivalent"
    assert kl((0.1, 0.12, 0.11, 0.13), 0.01).verdict == "worse"
    assert kl((0.0, 0.02, 0.0, 0.03), 0.01).verdict == "unresolved"
    wide = kl((0.0, 0.001, 0.0, 0.005), 0.1)
    assert (wide.verdict, wide.low) == ("equivalent", 0.0)


def test_agreement_is_a_difference_from_full_agreement() -> None:
    close = one(Samples((0.98, 0.99, 0.985, 0.99)), "top1_agreement", 0.05)
    assert close.verdict == "equivalent"
    assert close.estimate == pytest.approx(-0.01375, abs=1e-12)
    assert close.low < close.estimate < close.high <= 0
    assert one(Samples((0.80, 0.81, 0.79, 0.80)), "top1_agreement", 0.05).verdict == "worse"


def test_perplexity_is_the_ratio_of_the_mean_nll() -> None:
    baseline = (3.0, 3.2, 2.9, 3.1, 3.05)
    shifts = (-0.10, -0.11, -0.09, -0.10, -0.10)
    axis = one(Samples([b + s for b, s in zip(baseline, shifts, strict=True)], baseline), "ppl_ratio", 0.03)
    assert (axis.verdict, axis.unit, axis.n) == ("better", "window", 5)
    assert axis.estimate == pytest.approx(np.exp(0.10), rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10_000), st.integers(8, 15), st.floats(-0.12, 0.12), st.sampled_from(["visit", "score"])
)
def test_a_verdict_stands_exactly_where_its_own_p_is_at_most_five_percent(
    seed: int, n: int, shift: float, source: str
) -> None:
    noise = np.random.default_rng(seed).normal(shift, 0.03, n)
    if source == "visit":
        axis = one(visits(0.0, tuple(noise)))
    else:
        axis = one(Samples(tuple(3 - noise), (3.0,) * n), "ppl_ratio")
    assert (axis.verdict != "unresolved") == (axis.p_value <= 0.05)
    assert axis.verdict == classify(np.log(axis.low), np.log(axis.high), np.log1p(0.03))


@pytest.mark.parametrize(
    ("sample", "metric", "need"),
    [
        (Samples((1.0, float("nan")), (1.0, 1.0)), "decode_tps", "finite values of decode_tps"),
        (Samples((1.0, 1.0), (1.0, float("inf"))), "decode_tps", "finite values of decode_tps"),
        (Samples((1.0, 0.0), (1.0, 1.0)), "ttft_s", "positive values of ttft_s"),
        (Samples((1.0, 1.0), (1.0, -2.0)), "ttft_s", "positive values of ttft_s"),
        (Samples((1.0, 1.0), (1.0,)), "ttft_s", "as many values of ttft_s"),
        (Samples((1.0, float("nan")), (1.0, 1.0)), "compile_s", "finite values of compile_s"),
        (Samples((float("nan"),) * 4), "kl_mean_nats", "finite values of kl_mean_nats"),
        (Samples((3.0,) * 4), "ppl_ratio", "as many values of ppl_ratio"),
        (Samples((1.0, 2.0), (1.0, 1.0)), "artifact_bytes", "one value of artifact_bytes"),
        (Samples((1.0,), (1.0,)), "speed", "known metric"),
    ],
)
def test_bad_samples_are_refused_by_the_metrics_name(sample: Samples, metric: str, need: str) -> None:
    with pytest.raises(LabkitError, match=need):
        one(sample, metric)


@pytest.mark.parametrize("bad", [-0.1, float("nan"), float("inf")])
def test_a_bad_floor_is_refused(bad: float) -> None:
    with pytest.raises(LabkitError, match="A/A floor of decode_tps"):
        looked(NOISE, ONE_LOOK, floor=bad)
    with pytest.raises(LabkitError, match="A/A bias of decode_tps"):
        looked(NOISE, ONE_LOOK, bias=bad)


@pytest.mark.parametrize("margin", [-0.1, float("nan"), float("inf")])
def test_a_bad_margin_is_refused(margin: float) -> None:
    with pytest.raises(LabkitError, match="margin of decode_tps"):
        one(visits(0.0), margin=margin)


def _axis(goal: Any, verdict: Any) -> AxisResult:
    return AxisResult("decode_tps", goal, 0.03, "ratio", 1.0, 1.0, 1.0, 8, "pair", 0.5, 0.5, verdict)


@pytest.mark.parametrize(
    ("improves", "holds", "expected"),
    [
        ("better", "equivalent", "supported"),
        ("better", "better", "supported"),
        ("better", "", "supported"),
        ("better better", "equivalent better", "supported"),
        ("better", "worse", "trade-off"),
        ("better", "worse equivalent", "trade-off"),
        ("better", "worse unresolved", "trade-off"),
        ("better", "unresolved", "undecided"),
        ("unresolved", "equivalent", "undecided"),
        ("better unresolved", "worse", "undecided"),
        ("equivalent", "equivalent", "refuted"),
        ("worse", "better", "refuted"),
        ("better worse", "equivalent", "refuted"),
        ("equivalent unresolved", "unresolved", "refuted"),
        ("", "equivalent", "supported"),
        ("", "worse unresolved", "refuted"),
        ("", "unresolved", "undecided"),
        ("", "", "undecided"),
    ],
)
def test_outcome_table(improves: str, holds: str, expected: str) -> None:
    axes = [_axis("improves", v) for v in improves.split()] + [_axis("holds", v) for v in holds.split()]
    for order in itertools.islice(itertools.permutations(axes), 6):
        assert outcome(order) == expected


def test_a_held_axis_that_may_be_better_is_said_to_be_not_worse() -> None:
    """An interval across the upper margin is unresolved, and no loss."""
    gains = np.linspace(1.005, 1.045, 10)
    sample = Samples(candidate=[float(g) for g in gains], baseline=[1.0] * 10)
    (held,) = axis_verdicts({"decode_tps": sample}, Hypothesis("x", holds={"decode_tps": 0.02}))
    (improved,) = axis_verdicts({"decode_tps": sample}, Hypothesis("x", improves={"decode_tps": 0.02}))
    assert held.verdict == improved.verdict == "unresolved"
    assert any("not worse" in note for note in held.notes)
    assert not any("not worse" in note for note in improved.notes)
