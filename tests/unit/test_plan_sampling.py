"""The planner on sampling, stops, alternatives, callables and taps: ranges, compositions and golden text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from labkit.core.request import Request
from labkit.core.sampling import Sampling
from labkit.core.spec import MethodSpec
from labkit.core.taps import Taps
from labkit.plan.negotiate import negotiate, qualified_name
from labkit.plan.plan import Plan
from labkit.plan.reason import Refusal
from tests.unit.test_plan import CATALOG, PROFILE, REQUEST
from tests.unit.test_sampling_data import FULL

ABLE = MethodSpec("autoregressive", "one token a step", features=frozenset({"branch", "tap", "sample"}))
BARE = MethodSpec("bare", "neither", greedy_only=True)
ENGINE = replace(CATALOG, methods={"autoregressive": ABLE, "bare": BARE})
HYBRID = replace(PROFILE, layers=("recurrent", "full"))


def answer(**change: Any) -> Plan | Refusal:
    return negotiate(replace(REQUEST, **change), PROFILE, ENGINE)


def planned(**change: Any) -> Plan:
    plan = answer(**change)
    assert isinstance(plan, Plan), plan.explain()
    return plan


def reasons(**change: Any) -> list[tuple[str, str]]:
    refusal = answer(**change)
    assert isinstance(refusal, Refusal)
    return [(reason.field, reason.explain()) for reason in refusal.reasons]


def only_reason(field: str, **change: Any) -> str:
    """The text of the one reason, which must be about this field."""
    found = reasons(**change)
    assert [name for name, _ in found] == [field]
    return found[0][1]


# What a field needs beside it to mean anything.
BESIDE: dict[str, dict[str, Any]] = {
    "min_tokens_to_keep": {"min_p": 0.1},
    "xtc_threshold": {"xtc_probability": 0.5},
    "xtc_special_tokens": {"xtc_probability": 0.5},
    "repetition_context_size": {"repetition_penalty": 1.5},
    "presence_context_size": {"presence_penalty": 1.0},
    "frequency_context_size": {"frequency_penalty": 1.0},
}


def sampling_with(field: str, value: Any) -> Sampling:
    return Sampling(**{"temperature": 1.0, **BESIDE.get(field, {}), field: value})


@pytest.mark.parametrize(
    ("field", "good", "bad", "need"),
    [
        (
            "temperature",
            [0, 1e-6, 1, 2.5, 1e6],
            [-1, 9e-7, 1.1e6],
            "0 (greedy) or a number from 1e-06 to 1e+06",
        ),
        ("top_p", [1e-6, 0.5, 1], [0.0, -0.1, 1.01, 1e-7], "a number from 1e-06 to 1"),
        ("top_k", [0, 1, 999], [-1, 1000, 2.0, 0.5], "a whole number from 0 to 999"),
        ("min_p", [0, 1e-300, 1], [-0.1, 1.1], "a number from 0 to 1"),
        ("min_tokens_to_keep", [1, 1000], [0, 1001, 1.0], "a whole number from 1 to 1000"),
        ("xtc_probability", [0, 0.5, 1], [-0.5, 1.5], "a number from 0 to 1"),
        ("xtc_threshold", [0, 0.5], [-0.1, 0.51], "a number from 0 to 0.5"),
        ("repetition_penalty", [0.001, 1, 1000], [0, -1, 1001], "a number from 0.001 to 1000"),
        ("repetition_context_size", [1, 5000], [0, -1, 2.5], "a whole number from 1 to 2147483647"),
        ("presence_penalty", [-2, 0, 1000], [-1001, 1e4], "a number from -1000 to 1000"),
        ("presence_context_size", [1, 5000], [0, -1, 2.5], "a whole number from 1 to 2147483647"),
        ("frequency_penalty", [-2, 0, 1000], [-1001, 1e4], "a number from -1000 to 1000"),
        ("frequency_context_size", [1, 5000], [0, -1, 2.5], "a whole number from 1 to 2147483647"),
    ],
)
def test_every_number_has_its_range(field: str, good: list[Any], bad: list[Any], need: str) -> None:
    for value in good:
        planned(sampling=sampling_with(field, value))
    wrong_types = [
        True,
        False,
        None,
        "1",
        float("nan"),
        float("inf"),
        -float("inf"),
        10**400,
        (1,),
        np.eye(2),
    ]
    for value in [*bad, *wrong_types, np.bool_(True)]:
        text = only_reason(field, sampling=sampling_with(field, value))
        assert text.startswith(f"{field}: {need}, got "), text


def test_the_ranges_cover_every_field() -> None:
    ranged = test_every_number_has_its_range.pytestmark[0].args[1]  # type: ignore[attr-defined]
    tables = {"xtc_special_tokens", "logit_bias"}
    assert {case[0] for case in ranged} | tables == {field.name for field in fields(Sampling)}


@pytest.mark.parametrize("value", [7, "12", (1, 1000), (-1,), (True,), (1.0,), ("1",), None])
def test_special_tokens_are_ids_of_the_vocabulary(value: Any) -> None:
    text = only_reason("xtc_special_tokens", sampling=sampling_with("xtc_special_tokens", value))
    assert text.startswith("xtc_special_tokens: token ids from 0 to 999, got ")


@pytest.mark.parametrize(
    ("bias", "words"),
    [
        ({1000: 1.0}, "logit_bias: token ids from 0 to 999, got 1000"),
        ({-1: 1.0}, "got -1"),
        ({True: 1.0}, "got True"),
        ({"5": 1.0}, "got '5'"),
        ({5: "high"}, "logit_bias: nats from -10000 (a ban) to 10000, got 'high' for token 5"),
        ({5: float("nan")}, "got nan for token 5"),
        ({5: -float("inf")}, "got -inf for token 5"),
        ({5: 10_001}, "got 10001.0 for token 5"),
        ({5: True}, "got True for token 5"),
        ([(5, 1.0), (5, 2.0)], "logit_bias: every token id once, got token 5 2 times"),
        ([(5, 1.0, 2.0)], "logit_bias: token ids with the nats to add, got ((5, 1.0, 2.0),)"),
        ("bias", "got 'bias'"),
        (5, "got 5"),
        (None, "got None"),
    ],
)
def test_a_wrong_logit_bias_is_named(bias: Any, words: str) -> None:
    assert words in only_reason("logit_bias", sampling=Sampling(logit_bias=bias))


def test_a_bias_may_ban_and_force() -> None:
    assert planned(sampling=Sampling(logit_bias={0: -10_000, 999: 10_000})).sampling.processes


@pytest.mark.parametrize(
    ("sampling", "words"),
    [
        (Sampling(0.0, 0.5), "greedy or top-p, not both, got temperature 0 with top_p 0.5\n"),
        (Sampling(top_k=5), "greedy or top-k, not both, got temperature 0 with top_k 5\n"),
        (Sampling(min_p=0.1), "greedy or min-p, not both"),
        (Sampling(xtc_probability=0.1), "options: xtc_probability=0, temperature above 0"),
        (Sampling(top_p=0.5, top_k=5), "greedy or top-p and top-k, not both"),
    ],
)
def test_filters_of_a_greedy_draw_are_refused(sampling: Sampling, words: str) -> None:
    assert words in only_reason("sampling", sampling=sampling)


@pytest.mark.parametrize(
    ("field", "value", "partner"),
    [
        ("min_tokens_to_keep", 2, "min_p"),
        ("xtc_threshold", 0.2, "xtc_probability"),
        ("xtc_special_tokens", (1,), "xtc_probability"),
        ("repetition_context_size", 5, "repetition_penalty"),
        ("presence_context_size", 5, "presence_penalty"),
        ("frequency_context_size", 5, "frequency_penalty"),
    ],
)
def test_a_setting_that_would_do_nothing_is_refused(field: str, value: Any, partner: str) -> None:
    text = only_reason(field, sampling=Sampling(**{"temperature": 1.0, field: value}))
    assert f"{field}: {partner} beside it, without which it does nothing, got {value!r}" in text


def test_processors_act_on_a_greedy_draw_too() -> None:
    assert planned(sampling=Sampling(repetition_penalty=1.2, logit_bias={3: 1.0})).sampling.greedy


def test_every_wrong_field_is_listed_once() -> None:
    wrong = Sampling(-1, 2, -1, 2, 0, 2, 2, (-1,), 0, 0, 1e9, 0, 1e9, 0, {-1: 1.0})
    assert sorted(name for name, _ in reasons(sampling=wrong)) == sorted(f.name for f in fields(wrong))


@pytest.mark.parametrize("value", [None, 0.7, {"temperature": 1.0}, "greedy"])
def test_what_is_no_sampling_is_refused_beside_the_rest(value: Any) -> None:
    found = reasons(sampling=value, max_tokens=0)
    assert [name for name, _ in found] == ["max_tokens", "sampling"]


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("top_logprobs", -1, "top_logprobs: a whole number from 0 to 1000, got -1"),
        ("top_logprobs", 1001, "next:    logprobs=True keeps the whole distribution"),
        ("top_logprobs", True, "got True"),
        ("top_logprobs", 2.0, "got 2.0"),
        ("top_logprobs", "5", "got '5'"),
        ("stop", ("",), "stop: strings of at least one character, got ''"),
        ("stop", ("a", 3), "got 3"),
        ("stop", ("a", b"b"), "got b'b'"),
        ("stop", "abc", "stop: a tuple of strings, got 'abc'"),
        ("stop", None, "stop: a tuple of strings, got None"),
        ("sampler", 5, "sampler: a callable from log-probabilities (1, vocab) to ids (1,), or None, got 5"),
        ("logits_processors", (len, 5), "logits_processors: callables from ids (n,)"),
        ("logits_processors", len, "logits_processors: a tuple of callables"),
        ("taps", None, "taps: a labkit.Taps, got None"),
        ("seed", "x" * 500, "seed: a whole number from 0 to 2^63 - 1, got 'xxx"),
    ],
)
def test_fields_of_the_request_are_checked(field: str, value: Any, words: str) -> None:
    text = only_reason(field, **{field: value})
    assert words in text
    assert len(text) < 250


@pytest.mark.parametrize(
    ("taps", "field", "words"),
    [
        (Taps(hidden=(0, 0.5)), "taps.hidden", "layer indices from 0, got 0.5"),  # pyright: ignore[reportArgumentType]
        (Taps(hidden=(-1,)), "taps.hidden", "got -1"),
        (Taps(attention=(True,)), "taps.attention", "got True"),
        (Taps(logits=1), "taps.logits", "True or False, got 1"),  # pyright: ignore[reportArgumentType]
        (Taps(call=5), "taps.call", "a callable"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_taps_name_layers_that_have_what_is_tapped(taps: Taps, field: str, words: str) -> None:
    refusal = negotiate(replace(REQUEST, taps=taps), HYBRID, ENGINE)
    assert isinstance(refusal, Refusal)
    assert [reason.field for reason in refusal.reasons] == [field]
    assert words in refusal.explain()


def sampler_of_mine(logprobs: Any) -> Any:
    return logprobs


class Processor:
    def __call__(self, tokens: Any, logits: Any) -> Any:
        return logits


@pytest.mark.parametrize(
    ("sampling", "got"),
    [
        (Sampling(0.5), "a sampler with temperature 0.5"),
        (Sampling(top_k=5), "a sampler with top_k 5"),
        (Sampling(0.5, min_p=0.1, min_tokens_to_keep=2), "temperature 0.5, min_p 0.1, min_tokens_to_keep 2"),
        (Sampling(0.5, xtc_probability=1, xtc_special_tokens=(4,)), "xtc_special_tokens (4,)"),
    ],
)
def test_a_sampler_beside_filters_is_refused_and_neither_wins(sampling: Sampling, got: str) -> None:
    text = only_reason("sampler", sampler=sampler_of_mine, sampling=sampling)
    assert "not both" in text
    assert got in text


def test_a_sampler_goes_with_processors() -> None:
    planned(sampler=sampler_of_mine, sampling=Sampling(repetition_penalty=1.1))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"top_logprobs": 3}, "bare with top_logprobs\n    options: autoregressive"),
        ({"sampler": sampler_of_mine}, "bare with sampler\n"),
        ({"logits_processors": (Processor(),)}, "bare with logits_processors\n"),
        ({"sampling": Sampling(presence_penalty=1.0)}, "bare with presence_penalty\n"),
        (
            {"sampling": Sampling(logit_bias={1: 1.0}), "top_logprobs": 1},
            "bare with logit_bias, top_logprobs\n",
        ),
        ({"taps": Taps(logits=True)}, "a method that records taps, got bare with taps.logits\n"),
        ({"taps": Taps(attention=(1,))}, "bare with taps.attention\n"),
    ],
)
def test_what_a_method_does_not_offer_is_refused(change: dict[str, Any], words: str) -> None:
    assert words in only_reason("method", method="bare", **change)
    planned(method="autoregressive", **change)


def test_what_needs_no_feature_runs_on_any_method() -> None:
    planned(method="bare", stop=("x",), logprobs=True, taps=Taps(call=print))


def test_the_plan_says_what_a_session_needs() -> None:
    taps = Taps(logits=True, hidden=[1])
    plan = planned(stop=("a", "b"), top_logprobs=5, taps=taps, logits_processors=(Processor(),))
    assert (plan.stop, plan.top_logprobs, plan.taps) == (("a", "b"), 5, taps)
    assert plan.processors == ("tests.unit.test_plan_sampling.Processor",)
    assert (plan.sampler, plan.features, plan.layers) == (None, ABLE.features, PROFILE.layers)


def test_old_constructions_of_a_plan_still_work() -> None:
    added = {"stop", "top_logprobs", "sampler", "processors", "taps", "features", "layers", "sliding_window"}
    old = {f.name: getattr(planned(), f.name) for f in fields(Plan) if f.name not in added}
    assert Plan(**old).hash() == planned().hash()


def test_the_hash_holds_what_decides_numerics_and_nothing_else() -> None:
    base = planned().hash()
    same: list[dict[str, Any]] = [
        {"stop": ("x",)},
        {"top_logprobs": 4},
        {"taps": Taps(True, (0,), (1,), print)},
    ]
    assert all(planned(**change).hash() == base for change in same)
    other: list[dict[str, Any]] = [
        {"sampler": sampler_of_mine},
        {"sampler": Processor()},
        {"logits_processors": (Processor(),)},
        {"logits_processors": (Processor(), Processor())},
        *({"sampling": sampling_with(f.name, getattr(FULL, f.name))} for f in fields(FULL)),
    ]
    assert len({planned(**change).hash() for change in other} | {base}) == len(other) + 1


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (sampler_of_mine, "tests.unit.test_plan_sampling.sampler_of_mine"),
        (Processor(), "tests.unit.test_plan_sampling.Processor"),
        (partial(sampler_of_mine), "partial(tests.unit.test_plan_sampling.sampler_of_mine)"),
        (Processor().__call__, "tests.unit.test_plan_sampling.Processor.__call__"),
        (len, "builtins.len"),
    ],
)
def test_callables_are_known_by_name(function: Callable[..., Any], name: str) -> None:
    assert qualified_name(function) == name


def test_full_sampling_is_explained_in_the_order_in_which_it_acts() -> None:
    line = next(x for x in planned(sampling=FULL, seed=9).explain().splitlines() if x.startswith("sampling"))
    assert line == (
        "sampling    logit bias on 2 token(s), repetition penalty 1.1 over 64 tokens, "
        "presence penalty 0.3 over 32 tokens, frequency penalty -0.2 over 16 tokens, top-p 0.95, "
        "min-p 0.05 keeping 2, XTC 0.5 above 0.2 sparing 2, top-k 40, temperature 0.7, seed 9"
    )


def test_explain_is_golden_for_all_that_a_request_can_ask() -> None:
    plan = planned(
        sampler=sampler_of_mine,
        logits_processors=(Processor(),),
        sampling=Sampling(presence_penalty=0.5),
        stop=("\n\n", "END"),
        top_logprobs=5,
        taps=Taps(True, (0, 1), (1,), print),
    )
    mine = "tests.unit.test_plan_sampling"
    assert plan.explain() == (
        "model       tiny (float32, fingerprint 0123456789ab)\n"
        "backend     cpu/mkl\n"
        "method      autoregressive\n"
        "kv          bf16 (the model's own dtype, float32)\n"
        "caches      2 x KVCache\n"
        "prefill     2 of 3 tokens in chunks of 256\n"
        "decode      at most 8 tokens, 0 stop token(s), stop strings '\\n\\n', 'END'\n"
        f"sampling    presence penalty 0.5 over 20 tokens, processor {mine}.Processor, "
        f"sampler {mine}.sampler_of_mine\n"
        "logprobs    the 5 likeliest of each token\n"
        "taps        logits; hidden states of layers 0, 1; attention of layers 1; a call for each step\n"
        "oracle      mlx-lm\n"
        f"hash        {plan.hash()}\n"
        "substituted nothing\n"
        "note        prefill_chunk 256 is this backend's default\n"
        "note        the sampler draws from a generator of its own, not from the seed\n"
        "note        the hash knows samplers and processors by name, not what they close over"
    )


def test_a_request_of_garbage_gets_a_refusal_and_no_exception() -> None:
    garbage: list[Any] = [
        None,
        True,
        -1,
        2**70,
        float("nan"),
        "x",
        b"x",
        (),
        [1],
        {1: 2},
        object(),
        len,
        np.eye(2),
    ]
    kept = {"prompt", "kv", "method"}
    for name in (f.name for f in fields(Request) if f.name not in kept | {"stop_tokens"}):
        for value in garbage:
            assert answer(**{name: value}).explain()
