"""Sampled sessions against mlx-lm's `generate_step` with its own processors and samplers, bit for bit."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.generate import generate_step
from mlx_lm.sample_utils import make_logits_processors, make_sampler

from labkit.core.sampling import Sampling
from labkit.core.step import Step
from labkit.engine.model import Model
from tests.numerics.distributions import DTYPES
from tests.numerics.tiny_models import LLAMA, tiny_model
from tests.oracle import random_prompt

TOKENS, CHUNK = 24, 16
PROCESSORS: dict[str, dict[str, Any]] = {
    "bias": {"logit_bias": {3: 2.0, 200: -5.0, 17: 0.25}},
    "repetition": {"repetition_penalty": 1.3, "repetition_context_size": 8},
    "presence": {"presence_penalty": 0.7},
    "frequency": {"frequency_penalty": 0.4, "frequency_context_size": 64},
    "all": {
        "logit_bias": {3: 2.0},
        "repetition_penalty": 1.1,
        "presence_penalty": 0.2,
        "frequency_penalty": 0.1,
    },
}
SAMPLERS: dict[str, dict[str, Any]] = {
    "plain": {"temp": 0.8},
    "top-p": {"temp": 1.0, "top_p": 0.9},
    "all": {"temp": 0.7, "top_p": 0.95, "min_p": 0.01, "top_k": 40, "xtc_probability": 0.5},
    "greedy": {"temp": 0.0},
}


def decoded(model: Model, prompt: list[int], **options: Any) -> list[Step]:
    fixed = {"max_tokens": TOKENS, "prefill_chunk": CHUNK, "logprobs": True, "stop_tokens": ()}
    return [s for s in model.session(prompt, **fixed, **options).steps() if s.kind == "decode"]


def generated(model: Model, prompt: list[int], **options: Any) -> list[tuple[Any, mx.array]]:
    fixed = {"max_tokens": TOKENS, "prefill_step_size": CHUNK}
    return list(generate_step(mx.array(prompt), model.graph, **fixed, **options))


def assert_same(steps: list[Step], expected: list[tuple[Any, mx.array]]) -> None:
    assert [step.tokens[0] for step in steps] == [int(token) for token, _ in expected]
    for index, (step, (_, logprobs)) in enumerate(zip(steps, expected, strict=True)):
        assert mx.array_equal(step.logprobs[0], logprobs), f"log-probabilities differ at token {index}"


@pytest.mark.parametrize("name", PROCESSORS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", [1, 37])
def test_processors_equal_those_of_generate_step(length: int, dtype: str, name: str) -> None:
    model = tiny_model(LLAMA, DTYPES[dtype])
    prompt = random_prompt(model, length)
    steps = decoded(model, prompt, sampling=Sampling(**PROCESSORS[name]))
    expected = generated(model, prompt, logits_processors=make_logits_processors(**PROCESSORS[name]))
    assert_same(steps, expected)
    plain = decoded(model, prompt)
    assert not mx.array_equal(steps[-1].logprobs, plain[-1].logprobs), "the processors did nothing here"


def test_a_requests_own_processors_see_what_those_of_generate_step_see() -> None:
    model = tiny_model(LLAMA)
    prompt = random_prompt(model, 37)
    seen: dict[str, list[Any]] = {"labkit": [], "mlx-lm": []}

    def spy(name: str) -> Any:
        def processor(tokens: mx.array, logits: mx.array) -> mx.array:
            seen[name].append(tokens.tolist())
            return logits - mx.arange(logits.shape[-1]) * 0.01

        return processor

    steps = decoded(model, prompt, logits_processors=(spy("labkit"),))
    assert_same(steps, generated(model, prompt, logits_processors=[spy("mlx-lm")]))
    # generate_step runs one forward more than it yields.
    assert seen["labkit"] == seen["mlx-lm"][:TOKENS]
    assert seen["labkit"][-1] == [*prompt, *(step.tokens[0] for step in steps[:-1])]


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_mlx_lms_sampler_passed_in_draws_what_it_draws_there(dtype: str, name: str) -> None:
    model = tiny_model(LLAMA, DTYPES[dtype])
    prompt = random_prompt(model, 37)
    for seed in (1, 2):
        mx.random.seed(seed)
        expected = generated(model, prompt, sampler=make_sampler(**SAMPLERS[name]))
        mx.random.seed(seed)
        assert_same(decoded(model, prompt, sampler=make_sampler(**SAMPLERS[name])), expected)


def test_a_sampler_and_processors_together_equal_generate_step() -> None:
    model = tiny_model(LLAMA)
    prompt = random_prompt(model, 20)
    mx.random.seed(3)
    processors = make_logits_processors(**PROCESSORS["all"])
    expected = generated(model, prompt, sampler=make_sampler(0.9, 0.9), logits_processors=processors)
    mx.random.seed(3)
    steps = decoded(model, prompt, sampler=make_sampler(0.9, 0.9), sampling=Sampling(**PROCESSORS["all"]))
    assert_same(steps, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_alternatives_are_the_top_of_the_log_probabilities(dtype: str) -> None:
    model = tiny_model(LLAMA, DTYPES[dtype])
    steps = decoded(model, [5, 6, 7], sampling=Sampling(1.5, logit_bias={3: 2.0}), top_logprobs=7)
    plain = decoded(model, [5, 6, 7], sampling=Sampling(1.5, logit_bias={3: 2.0}))
    assert [s.tokens for s in steps] == [s.tokens for s in plain]
    outside = 0
    for step in steps:
        row = np.array(step.logprobs[0].astype(mx.float32))
        (found,) = step.top_logprobs
        order = np.lexsort((np.arange(row.size), -row))[:7]
        assert found.top == tuple((int(i), float(row[i])) for i in order)
        assert (found.token, found.logprob) == (step.tokens[0], float(row[step.tokens[0]]))
        outside += found.token not in order
    assert outside, "no token here was drawn from outside of its alternatives"


def test_top_k_of_one_is_greedy() -> None:
    model = tiny_model(LLAMA)
    one = decoded(model, [5, 6, 7], sampling=Sampling(1.0, top_k=1), seed=4)
    assert [s.tokens for s in one] == [s.tokens for s in decoded(model, [5, 6, 7])]
