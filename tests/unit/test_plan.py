"""The planner on data alone: no model, no mlx."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from labkit.core.arm import Arm
from labkit.core.canonical import digest, stated
from labkit.core.request import Request
from labkit.core.sampling import Sampling
from labkit.core.spec import Catalog, KVSpec, MethodSpec, Profile
from labkit.plan.negotiate import negotiate
from labkit.plan.plan import Plan
from labkit.plan.reason import Refusal
from tests.unit.tiny_profile import PROFILE

CATALOG = Catalog(
    kv={
        "bf16": KVSpec(
            "bf16",
            "the model's own dtype",
            "mlx-lm",
            "bit-exact",
            frozenset({"full", "sliding", "recurrent"}),
            settled={"full": "KVCache", "sliding": "RotatingKVCache"},
        ),
        "affine": KVSpec(
            "affine",
            "affine",
            "mlx-lm kv_bits",
            "bit-exact",
            frozenset({"full"}),
            bits=(4, 8),
            groups=(64, 32),
        ),
    },
    methods={"autoregressive": MethodSpec("autoregressive", "one token a step")},
    default_prefill_chunk=256,
    backend="cpu/mkl",
)
REQUEST = Request(prompt=(1, 2, 3), max_tokens=8)


def planned(request: Request, profile: Profile = PROFILE) -> Plan:
    plan = negotiate(request, profile, CATALOG)
    assert isinstance(plan, Plan), plan.explain()
    return plan


def refused(request: Request, profile: Profile = PROFILE) -> str:
    refusal = negotiate(request, profile, CATALOG)
    assert isinstance(refusal, Refusal)
    return refusal.explain()


def test_explain_is_golden() -> None:
    text = planned(replace(REQUEST, kv="affine:8", stop_tokens=(2,))).explain()
    assert text == (
        "model       tiny (float32, fingerprint 0123456789ab)\n"
        "backend     cpu/mkl\n"
        "method      autoregressive\n"
        "kv          affine:8 (8 bits, group 64, from token 0)\n"
        "caches      2 x QuantizedKVCache(bits=8, group_size=64)\n"
        "prefill     2 of 3 tokens in chunks of 256\n"
        "decode      at most 8 tokens, 1 stop token(s)\n"
        "sampling    greedy\n"
        "oracle      mlx-lm kv_bits\n"
        "hash        fa92909a8d9a76c9\n"
        "substituted nothing\n"
        "note        prefill_chunk 256 is this backend's default"
    )


def test_hashes_of_requests_as_they_were_before_full_sampling() -> None:
    """Literal hashes: records of earlier versions join those of this one by them."""
    before = {
        "e7da5357d333372b": REQUEST,
        "fa92909a8d9a76c9": replace(REQUEST, kv="affine:8"),
        "ce8a0f24dfd079d1": replace(REQUEST, sampling=Sampling(0.5)),
        "beb2dd3582d58796": replace(REQUEST, sampling=Sampling(0.8, 0.9)),
        "cb2d1ccbe2e42e3f": replace(REQUEST, prefill_chunk=64),
    }
    assert {planned(request).hash(): request for request in before.values()} == before
    assert Arm("smollm2").hash() == "14ac50cba3457151"
    assert Arm("smollm2", kv="affine:8", blas="mkl").hash() == "ff035f9331d93867"
    assert Arm("smollm2", sampling=Sampling(0.8, 0.9)).hash() == "7e9535b4953ddda9"


def test_hash_depends_on_what_decides_numerics_and_on_nothing_else() -> None:
    base = planned(REQUEST).hash()
    same = (replace(REQUEST, prompt=(9,)), replace(REQUEST, max_tokens=2), replace(REQUEST, seed=7))
    other = (
        replace(REQUEST, kv="affine:4"),
        replace(REQUEST, prefill_chunk=64),
        replace(REQUEST, sampling=Sampling(0.5)),
    )
    assert all(planned(r).hash() == base for r in same)
    assert len({planned(r).hash() for r in other} | {base}) == 4
    assert planned(REQUEST, replace(PROFILE, fingerprint="f")).hash() != base


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"prompt": ()}, "prompt: at least one token, got an empty prompt"),
        ({"max_tokens": 0}, "max_tokens: a whole number of at least 1, got 0"),
        ({"max_tokens": -5}, "max_tokens: a whole number of at least 1, got -5"),
        ({"max_tokens": True}, "max_tokens: a whole number of at least 1, got True"),
        ({"prompt": (1,) * 101}, "prompt: at most 100 tokens, the context of tiny, got 101 tokens"),
        ({"prompt": (1,) * 95}, "options: max_tokens from 1 to 5"),
        ({"prompt": (1000,)}, "prompt: token ids from 0 to 999, got 1000"),
        ({"kv": "affine:9"}, "options: affine:4, affine:8"),
        ({"kv": "afine:8"}, "did you mean 'affine:8'?"),
        ({"kv": "affine"}, "kv: one of the bits that 'affine' stores in its name, got 'affine'"),
        ({"prefill_chunk": 0}, "prefill_chunk: a whole number of at least 1, got 0"),
        ({"seed": -1}, "seed: a whole number from 0 to 2^63 - 1, got -1"),
        ({"stop_tokens": (-3,)}, "stop_tokens: token ids from 0 to 999, got -3"),
        ({"method": "diffusion"}, "method: a method that runs on this model, got 'diffusion'"),
        (
            {"sampling": Sampling(float("nan"))},
            "temperature: 0 (greedy) or a number from 1e-06 to 1e+06",
        ),
        ({"sampling": Sampling(-1.0)}, "temperature: 0 (greedy) or a number from 1e-06 to 1e+06"),
        ({"sampling": Sampling(1e-40)}, "temperature: 0 (greedy) or a number from 1e-06 to 1e+06"),
        (
            {"sampling": Sampling(cast(Any, "hot"))},
            "or a number from 1e-06 to 1e+06, got 'hot'",
        ),
        ({"sampling": Sampling(1.0, 1e-300)}, "top_p: a number from 1e-06 to 1, got 1e-300"),
        ({"prompt": (1.5,)}, "prompt: token ids from 0 to 999, got 1.5"),
        ({"stop_tokens": ("x",)}, "stop_tokens: token ids from 0 to 999, got 'x'"),
        (
            {"sampling": Sampling(float("inf"))},
            "temperature: 0 (greedy) or a number from 1e-06 to 1e+06",
        ),
        ({"sampling": Sampling(1.0, float("nan"))}, "top_p: a number from 1e-06 to 1, got nan"),
        ({"sampling": Sampling(1.0, 0.0)}, "top_p: a number from 1e-06 to 1, got 0.0"),
        ({"sampling": Sampling(0.0, 0.5)}, "sampling: greedy or top-p, not both"),
    ],
)
def test_refusals_say_need_value_and_options(change: dict, words: str) -> None:
    assert words in refused(replace(REQUEST, **change))


def test_every_reason_is_listed() -> None:
    text = refused(Request(prompt=(), max_tokens=0, kv="nope", sampling=Sampling(-1)))
    assert text.count("\n- ") == 4


def test_scheme_is_refused_by_layer() -> None:
    text = refused(replace(REQUEST, kv="affine:8"), replace(PROFILE, layers=("full", "sliding")))
    assert "kv: a scheme that fits every layer (full), got 'affine:8' on layer 1 of tiny: sliding" in text
    assert "a head size that is a multiple of the group size 64" in refused(
        replace(REQUEST, kv="affine:8"), replace(PROFILE, head_dim=48)
    )


def test_a_full_context_fits() -> None:
    assert planned(replace(REQUEST, prompt=(1,) * 92)).prompt_tokens == 92


def test_a_scheme_without_a_kernel_on_this_device_is_refused_with_the_reason() -> None:
    affine = replace(CATALOG.kv["affine"], unavailable={"cuda": "no kernel for it"})
    catalog = replace(CATALOG, kv={**CATALOG.kv, "affine": affine}, backend="cuda")
    refusal = negotiate(replace(REQUEST, kv="affine:8"), PROFILE, catalog)
    assert isinstance(refusal, Refusal)
    assert "kv: a scheme that runs on cuda, got 'affine:8': no kernel for it" in refusal.explain()
    assert isinstance(negotiate(REQUEST, PROFILE, catalog), Plan)


@dataclass(frozen=True)
class WiderArm(Arm):
    """An Arm of a later version of labkit."""

    later: int = 3


def test_hashes_do_not_move_when_a_field_with_a_default_is_added() -> None:
    assert digest(stated(WiderArm("smollm2", kv="affine:8"))) == Arm("smollm2", kv="affine:8").hash()
    assert digest(stated(WiderArm("smollm2", later=4))) != Arm("smollm2").hash()
