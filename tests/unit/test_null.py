"""The null model keeps time as asked, makes the same tokens every time, and refuses what it would ignore."""

from __future__ import annotations

import time

import numpy as np
import pytest

from labkit.core.errors import LabkitError
from labkit.model.null import RealClock, VirtualClock, parse_null
from labkit.model.null_noise import NoiseKind, NullNoise


def test_time_is_tokens_over_rate_times_slowdown() -> None:
    model = parse_null("null:prefill_tps=1000,decode_tps=100,slowdown=1.1")
    model.begin_visit()
    model.prefill(range(250))
    # Sums of a few doubles: equal to rounding.
    assert model.clock() == pytest.approx(0.275, rel=1e-12)
    model.decode([1, 2, 3])
    assert model.clock() == pytest.approx(0.275 + 0.011, rel=1e-12)


def test_tokens_depend_on_seed_and_sequence_only() -> None:
    plain, slow = parse_null("null"), parse_null("null:slowdown=2,sd=0.1,decode_tps=5")
    slow.begin_visit()
    assert plain.decode([5, 6])[0] == slow.decode([5, 6])[0]
    assert np.array_equal(plain.decode([5, 6])[1], slow.decode([5, 6])[1])
    others = {parse_null(f"null:seed={seed}").decode([5, 6])[0] for seed in range(20)}
    assert len(others) > 1
    assert len({plain.decode([5, 6, last])[0] for last in range(20)}) > 1


def test_logprobs_are_a_distribution_topped_by_the_token() -> None:
    model = parse_null("null")
    for last in range(50):
        token, logprobs = model.decode([last])
        assert logprobs.shape == (model.profile.vocab_size,)
        assert int(np.argmax(logprobs)) == token
        # 256 float32 log-probabilities, each rounded to about 5e-7 at magnitude 8.
        assert np.exp(logprobs.astype(np.float64)).sum() == pytest.approx(1.0, abs=1e-6)
        assert token not in model.tokenizer.eos_token_ids


def test_generated_tokens_are_text_that_round_trips() -> None:
    model = parse_null("null")
    sequence = model.tokenizer.encode("The capital of France is é")
    for _ in range(20):
        sequence.append(model.decode(sequence)[0])
    text = model.tokenizer.decode(sequence)
    assert text.startswith("The capital of France is é")
    assert model.tokenizer.encode(text) == sequence
    assert model.tokenizer.decode([0xFF]) == "\N{REPLACEMENT CHARACTER}"


def test_virtual_time_reads_no_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> float:
        raise AssertionError("the real clock was touched")

    for name in ("time", "perf_counter", "monotonic", "sleep"):
        monkeypatch.setattr(time, name, refused)
    model = parse_null("null:sd=0.03,noise=ar,rho=0.5")
    model.begin_visit()
    model.prefill([1] * 100)
    model.decode([1] * 100)
    assert isinstance(model.clock, VirtualClock)
    assert model.clock() > 0


def test_realtime_sleeps_for_the_time_it_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    model = parse_null("null:realtime=true,decode_tps=50,kv_bytes_per_token=10")
    model.begin_visit()
    model.decode([1])
    assert isinstance(model.clock, RealClock)
    assert slept == [0.02]
    assert model.kv_bytes_per_token == 10


def test_arms_of_one_machine_share_the_noise_of_each_visit() -> None:
    def seconds(name: str, visit: int) -> float:
        model = parse_null(name)
        model.seek(visit)
        model.begin_visit()
        model.prefill([0] * 1000)
        return model.clock()

    noise = "sd=0.05,noise=drift,slope=0.01,seed=7"
    for visit in (0, 3, 11):
        ratio = seconds(f"null:{noise},slowdown=1.25", visit) / seconds(f"null:{noise}", visit)
        assert ratio == pytest.approx(1.25, rel=1e-12)
    assert seconds(f"null:{noise}", 3) != seconds(f"null:{noise}", 4)


def test_successive_visits_walk_along_the_series() -> None:
    model = parse_null("null:sd=0.05,noise=independent,seed=7,prefill_tps=1")
    ends = [0.0]
    for _ in range(4):
        model.begin_visit()
        model.prefill([0])
        ends.append(model.clock())
    assert np.diff(ends) == pytest.approx(model.noise.factors(4), rel=1e-12)


@pytest.mark.parametrize("kind", ["none", "independent", "ar", "drift", "outliers"])
def test_a_longer_series_begins_with_the_shorter_one(kind: NoiseKind) -> None:
    noise = NullNoise(kind, sd=0.03, rho=0.5, slope=0.01, seed=4)
    assert np.array_equal(noise.factors(40)[:9], noise.factors(9))
    assert np.array_equal(noise.factors(40), noise.factors(40))


def test_noise_has_the_moments_it_was_given() -> None:
    visits = 20_000
    independent = np.log(NullNoise("independent", sd=0.03, seed=1).factors(visits))
    # SE of an SD over 20,000 draws is 0.5%; of a correlation 0.7%. Four SE each.
    assert independent.std() == pytest.approx(0.03, rel=0.02)
    assert np.corrcoef(independent[1:], independent[:-1])[0, 1] == pytest.approx(0.0, abs=0.03)
    correlated = np.log(NullNoise("ar", sd=0.03, rho=0.9, seed=1).factors(visits))
    # At rho = .9 the effective sample is visits * (1 - .81) / (1 + .81): the SE of the SD is 1.5%.
    assert correlated.std() == pytest.approx(0.03, rel=0.06)
    assert np.corrcoef(correlated[1:], correlated[:-1])[0, 1] == pytest.approx(0.9, abs=0.02)
    drift = np.log(NullNoise("drift", sd=0.0, slope=0.01).factors(5))
    assert drift == pytest.approx(0.01 * np.arange(5), abs=1e-15)


def test_one_visit_in_twenty_is_an_outlier_of_half_to_three_times() -> None:
    factors = NullNoise("outliers", sd=0.0, seed=2).factors(20_000)
    late = factors[factors > 1]
    # SE of a share of .05 over 20,000 draws is .0015; four SE.
    assert len(late) / len(factors) == pytest.approx(0.05, abs=0.006)
    assert late.min() >= 1.5 - 1e-12
    assert late.max() <= 3.0 + 1e-12


def test_profile_is_told_apart_by_its_settings() -> None:
    plain, slow = parse_null("null"), parse_null("null:slowdown=1.1")
    assert plain.path is None
    assert plain.profile.provider == "null"
    assert (plain.profile.vocab_size, plain.profile.context_length) == (256, 4096)
    assert plain.profile.fingerprint != slow.profile.fingerprint
    assert plain.profile.fingerprint == parse_null("null:slowdown=1").profile.fingerprint


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("nil", "null:key=value"),
        ("null:speed=3", "prefill_tps"),
        ("null:seed=1,seed=2", "once"),
        ("null:decode_tps=fast", "decode_tps must be above 0"),
        ("null:decode_tps=0", "decode_tps must be above 0"),
        ("null:slowdown=nan", "slowdown"),
        ("null:prefill_tps=inf", "prefill_tps"),
        ("null:sd=-0.1", "sd must be at least 0"),
        ("null:noise=pink", "independent, ar, drift, outliers"),
        ("null:noise=ar,rho=1,sd=0.1", "rho must be above -1, below 1"),
        ("null:seed=1.5", "whole number"),
        ("null:realtime=yes", "true or false"),
        ("null:rho", "got:     nothing"),
        ("null:rho=0.5", "only with noise=ar"),
        ("null:slope=0.5,noise=ar,sd=0.1", "only with noise=drift"),
        ("null:sd=0.1,noise=none", "only with a noise other than none"),
    ],
)
def test_bad_names_say_what_was_needed(name: str, part: str) -> None:
    with pytest.raises(LabkitError) as caught:
        parse_null(name)
    assert part in str(caught.value)
