"""Parity: what answers of workers say of whose bits an arm has, and where it departs from them."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from labkit.bench.pairs import Role
from labkit.lab.measuring.parity import compare, describe, is_equal, parity

Answer = dict[str, Any]
BF16 = "mlx-lm kv=bf16"


def generated(tokens: tuple[int, ...] = (5, 6, 7), rows: tuple[str, ...] = ("a", "b", "c")) -> Answer:
    digest = [hashlib.sha256(repr(part).encode()).hexdigest() for part in (tokens, rows)]
    return {
        "tokens": list(tokens),
        "rows": list(rows),
        "tokens_sha256": digest[0],
        "logprobs_sha256": digest[1] if rows else "",
        "dtype": "float32" if rows else "",
    }


def answer(
    arm: Answer | None = None, oracle: Answer | None = None, prompt: str = "p", **parts: Any
) -> Answer:
    told = parts or {"generated": oracle or generated()}
    return {
        "prompt_tokens": 9,
        "prompt_sha256": prompt,
        "arm": arm or generated(),
        "oracle": {"name": BF16, **told},
    }


def roles(baseline: Answer, candidate: Answer) -> dict[Role, Answer]:
    return {"baseline": baseline, "candidate": candidate}


def test_arms_that_equal_their_oracles_and_one_another_say_so() -> None:
    found = parity(roles(answer(itself=True), answer()))
    assert found["baseline"]["equals"] == [BF16]
    assert found["candidate"]["equals"] == [BF16, "baseline"]
    assert found["candidate"]["oracles"][BF16] == {
        "tokens": 3,
        "tokens_equal": True,
        "logprobs_equal": True,
        "first_token": None,
        "first_logprobs": None,
    }
    assert found["candidate"]["prompt_tokens"] == 9


@pytest.mark.parametrize(
    ("arm", "first_token", "first_logprobs", "words"),
    [
        (generated(tokens=(5, 6, 8)), 2, None, "tokens differ from token 2 on"),
        (generated(tokens=(5, 6), rows=("a", "b")), 2, 2, "tokens differ from token 2 on"),
        (
            generated(rows=("a", "x", "c")),
            None,
            1,
            "3 tokens equal; log-probabilities differ from token 1 on",
        ),
        (generated(rows=()), None, None, "3 tokens equal; one side kept no log-probabilities"),
    ],
)
def test_a_difference_is_placed(
    arm: Answer, first_token: int | None, first_logprobs: int | None, words: str
) -> None:
    found = parity({"candidate": answer(arm)})["candidate"]
    compared = found["oracles"][BF16]
    assert (compared["first_token"], compared["first_logprobs"]) == (first_token, first_logprobs)
    assert found["equals"] == []
    assert describe(compared) == words


def test_the_whole_digest_decides_where_the_short_ones_agree() -> None:
    other = {**generated(), "logprobs_sha256": "0" * 64, "dtype": "bfloat16"}
    compared = compare(other, generated())
    assert (compared["logprobs_equal"], compared["first_logprobs"]) == (False, None)
    assert describe(compared) == "3 tokens equal; log-probabilities differ in their dtype"
    assert not is_equal(compared)


def test_nothing_generated_equals_nothing() -> None:
    nothing = generated((), ())
    assert not is_equal(compare(nothing, nothing))


def test_an_oracle_that_cannot_run_is_named_with_its_reason() -> None:
    found = parity(roles(answer(unavailable="temperature 0.7"), answer(unavailable="temperature 0.7")))
    assert found["baseline"]["equals"] == []
    assert found["candidate"]["equals"] == ["baseline"]
    assert describe(found["baseline"]["oracles"][BF16]) == "nothing to compare with: temperature 0.7"


def test_arms_of_other_vocabularies_are_not_compared() -> None:
    found = parity(roles(answer(), answer(prompt="q")))
    assert found["candidate"]["equals"] == [BF16]
    assert "vocabulary" in found["candidate"]["oracles"]["baseline"]["unavailable"]


def test_null_models_have_no_parity() -> None:
    assert parity(roles({}, {})) == {}
    assert list(parity(roles({}, answer()))["candidate"]["oracles"]) == [BF16]
