"""Negotiation: (Request, Profile, Catalog) -> Plan | Refusal. Pure; it evaluates the whole composition.

It never changes a requested scheme, seed or constraint to make something else possible.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from labkit.core.kv_setting import KVSetting, LayerKV
from labkit.core.request import Request
from labkit.core.sampling import Sampling
from labkit.core.spec import Catalog, KVSpec, MethodSpec, Profile
from labkit.core.taps import Taps
from labkit.plan.checks_method import check_kv, check_method
from labkit.plan.checks_request import check_request
from labkit.plan.checks_sampling import check_sampling
from labkit.plan.plan import Plan, Reason, Refusal
from labkit.plan.values import shown


def negotiate(request: Request, profile: Profile, catalog: Catalog) -> Plan | Refusal:
    """Resolve a request on a model, or list every reason why it cannot run."""
    methods = {n: spec for n, spec in catalog.methods.items() if spec.provider == profile.provider}
    name = request.method or next(iter(methods), "none registered")
    method = methods.get(name.partition(":")[0]) if isinstance(name, str) else None
    kv, bits = parse_kv(request.kv, catalog)
    judged, misshapen = _judged(request)
    reasons = (
        *check_method(judged, name, methods),
        *check_kv(request.kv, kv, profile, catalog),
        *check_request(request, profile),
        *misshapen,
        *check_sampling(judged.sampling, profile.vocab_size, request.sampler is not None),
    )
    if reasons or kv is None or method is None:
        return Refusal(profile.name, reasons)
    return _plan(request, profile, catalog, method, kv, bits)


def parse_kv(name: str, catalog: Catalog) -> tuple[KVSpec | None, int | None]:
    """Split `affine:8` into its spec and bits; (None, None) where the catalog has no such name."""
    if name not in catalog.kv_names():
        return None, None
    family, _, argument = name.partition(":")
    return catalog.kv[family], int(argument) if argument else None


def qualified_name(function: Callable[..., Any]) -> str:
    """A callable's module and name; of a partial those of its function, of an object those of its class."""
    if isinstance(function, partial):
        return f"partial({qualified_name(function.func)})"
    named: Any = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def _judged(request: Request) -> tuple[Request, tuple[Reason, ...]]:
    """The request with defaults where it holds no Sampling or Taps, so that the rest can be judged."""
    sampling: Any = request.sampling
    taps: Any = request.taps
    if not isinstance(taps, Taps):
        request = replace(request, taps=Taps())
    if isinstance(sampling, Sampling):
        return request, ()
    reason = Reason("sampling", "a labkit.Sampling", shown(sampling))
    return replace(request, sampling=Sampling()), (reason,)


def _plan(
    request: Request, profile: Profile, catalog: Catalog, method: MethodSpec, kv: KVSpec, bits: int | None
) -> Plan:
    settled = {kind: name.format(bits=bits, group_size=kv.group_size) for kind, name in kv.settled.items()}
    chunk = request.prefill_chunk or catalog.default_prefill_chunk
    return Plan(
        model=profile.name,
        fingerprint=profile.fingerprint,
        method=request.method or method.name,
        kv=request.kv,
        kv_family=kv.family,
        kv_bits=bits,
        kv_group_size=kv.group_size,
        kv_setting=KVSetting(kv.family, _uniform(profile, kv, bits)),
        cache_layout=tuple(map(settled.get, profile.layers, profile.own_layout())),
        prefill_chunk=chunk,
        sampling=request.sampling,
        prompt_tokens=len(request.prompt),
        max_tokens=request.max_tokens,
        seed=request.seed,
        stop_tokens=request.stop_tokens,
        logprobs=request.logprobs,
        oracle=kv.oracle if bits else profile.oracle,
        dtype=profile.dtype,
        backend=catalog.backend,
        notes=_notes(request, chunk),
        stop=request.stop,
        top_logprobs=request.top_logprobs,
        sampler=None if request.sampler is None else qualified_name(request.sampler),
        processors=tuple(qualified_name(processor) for processor in request.logits_processors),
        taps=request.taps,
        features=method.features,
        layers=profile.layers,
        sliding_window=profile.sliding_window,
        recipe=request.recipe,
    )


def _uniform(profile: Profile, kv: KVSpec, bits: int | None) -> tuple[LayerKV | None, ...]:
    """The same setting for every layer; empty for a scheme without any."""
    if bits is None or kv.group_size is None:
        return ()
    return (LayerKV(bits, bits, kv.group_size),) * len(profile.layers)


def _notes(request: Request, chunk: int) -> tuple[str, ...]:
    default = () if request.prefill_chunk else (f"prefill_chunk {chunk} is this backend's default",)
    own = request.sampler is not None
    seed = ("the sampler draws from a generator of its own, not from the seed",) if own else ()
    callables = own or request.logits_processors
    named = ("the hash knows samplers and processors by name, not what they close over",) if callables else ()
    return (*default, *seed, *named)
