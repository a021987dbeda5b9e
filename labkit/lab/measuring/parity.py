"""Parity: whose tokens and log-probabilities each arm equals, bit for bit. Pure; workers gave the digests.

A record keeps for each arm that has weights `equals`, `oracles` and `prompt_tokens` (of its prompt).
equals: the names of what it equals in every token and every log-probability, such as `mlx-lm kv=affine:8`
and, for the candidate, `baseline`. oracles: name -> what was compared: `itself` where the arm is the oracle,
`unavailable` with the reason where there was nothing to compare with, else `tokens` (how many),
`tokens_equal`, `logprobs_equal` (None where one side kept none) and `first_token`, `first_logprobs`: the
first place that differs, None without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from labkit.bench.pairs import ROLES, Role

Answer = Mapping[str, Any]
BASELINE = "baseline"


def parity(answers: Mapping[Role, Answer]) -> dict[str, Any]:
    """What a record says of parity: role -> equals, oracles and prompt_tokens; {} where no arm has weights.

    answers: role -> what its worker answered to `parity` (see `labkit.bench.parity`).
    """
    found: dict[str, Any] = {}
    for role in ROLES:
        answer = answers.get(role)
        if answer:
            oracles = dict([_own_oracle(answer)])
            other = answers.get(BASELINE)
            # Of several requests at a time neither arm says what it generates.
            if role != BASELINE and other and answer["arm"] and other["arm"]:
                oracles[BASELINE] = _against_arm(answer, other)
            equals = [name for name, compared in oracles.items() if is_equal(compared)]
            found[role] = {
                "equals": equals,
                "oracles": oracles,
                "prompt_tokens": answer["prompt_tokens"],
            }
    return found


def is_equal(compared: Answer) -> bool:
    """Whether a comparison found every bit equal, or the arm is that oracle."""
    bits = compared.get("tokens_equal") and compared.get("logprobs_equal")
    return bool(compared.get("itself") or (compared.get("tokens") and bits))


def compare(found: Answer, expected: Answer) -> dict[str, Any]:
    """One generation against another; see the module for the keys."""
    tokens = min(len(found["tokens"]), len(expected["tokens"]))
    kept = bool(found["rows"] and expected["rows"])
    equal = found["logprobs_sha256"] == expected["logprobs_sha256"] and found["dtype"] == expected["dtype"]
    return {
        "tokens": tokens,
        "tokens_equal": found["tokens_sha256"] == expected["tokens_sha256"],
        "logprobs_equal": equal if kept else None,
        "first_token": _first_difference(found["tokens"], expected["tokens"]),
        "first_logprobs": _first_difference(found["rows"], expected["rows"]) if kept else None,
    }


def describe(compared: Answer) -> str:
    """A comparison in words."""
    if compared.get("itself"):
        return "it is that oracle"
    if "unavailable" in compared:
        return f"nothing to compare with: {compared['unavailable']}"
    if not compared["tokens_equal"]:
        return f"tokens differ from token {compared['first_token']} on"
    if compared["logprobs_equal"] is None:
        return f"{compared['tokens']} tokens equal; one side kept no log-probabilities"
    if not compared["logprobs_equal"]:
        where = compared["first_logprobs"]
        at = "in their dtype" if where is None else f"from token {where} on"
        return f"{compared['tokens']} tokens equal; log-probabilities differ {at}"
    return f"{compared['tokens']} tokens and their log-probabilities equal"


def _own_oracle(answer: Answer) -> tuple[str, dict[str, Any]]:
    oracle = dict(answer["oracle"])
    name, generated = oracle.pop("name"), oracle.pop("generated", None)
    return name, oracle if generated is None else compare(answer["arm"], generated)


def _against_arm(answer: Answer, other: Answer) -> dict[str, Any]:
    """Against another arm, whose prompt is another one where its vocabulary has another size."""
    if answer["prompt_sha256"] != other["prompt_sha256"]:
        return {"unavailable": "its vocabulary differs, and so does the prompt"}
    return compare(answer["arm"], other["arm"])


def _first_difference(found: Sequence[Any], expected: Sequence[Any]) -> int | None:
    pairs = enumerate(zip_longest(found, expected))
    return next((index for index, (a, b) in pairs if a != b), None)
