"""Negotiation: (Request, Profile, Catalog) -> Plan | Refusal. Pure; it evaluates the whole composition.

It never changes a requested scheme, seed or constraint to make something else possible.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from labkit.core.kv_setting import KVSetting, cache_name
from labkit.core.request import Request
from labkit.core.sampling import Sampling
from labkit.core.spec import Catalog, KVSpec, MethodSpec, Profile
from labkit.core.taps import Taps
from labkit.plan.checks_kv import check_method_kv, parse_kv
from labkit.plan.checks_method import check_method
from labkit.plan.checks_request import check_request
from labkit.plan.checks_sampling import check_sampling
from labkit.plan.plan import Plan
from labkit.plan.reason import Reason, Refusal
from labkit.plan.values import shown

# A scheme that answers to it answers to whatever is the model's own oracle.
ORACLE = "mlx-lm"


def negotiate(request: Request, profile: Profile, catalog: Catalog) -> Plan | Refusal:
    """Resolve a request on a model, or list every reason why it cannot run."""
    methods = {n: spec for n, spec in catalog.methods.items() if spec.provider == profile.provider}
    name = request.method or next(iter(methods), "none registered")
    method = methods.get(name.partition(":")[0]) if isinstance(name, str) else None
    setting, catalog = _setting(request, profile, catalog)
    judged, misshapen = _judged(request)
    reasons = (
        *check_method(judged, name, methods),
        *_check_kv(request, setting, method, profile),
        *check_request(request, profile),
        *misshapen,
        *check_sampling(judged.sampling, profile.vocab_size, request.sampler is not None),
    )
    if reasons or method is None or not isinstance(setting, KVSetting):
        return Refusal(profile.name, reasons)
    return _plan(request, profile, catalog, method, setting)


def qualified_name(function: Callable[..., Any]) -> str:
    """A callable's module and name; of a partial those of its function, of an object those of its class."""
    if isinstance(function, partial):
        return f"partial({qualified_name(function.func)})"
    named: Any = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def _setting(
    request: Request, profile: Profile, catalog: Catalog
) -> tuple[KVSetting | tuple[Reason, ...], Catalog]:
    """What the KV scheme comes to, and the catalog that has it: one's own is known to the request alone."""
    own: Any = request.kv_class
    if own is None:
        return parse_kv(request.kv, profile, catalog, request.kv_file), catalog
    spec, parts = getattr(own, "SPEC", None), (getattr(own, "make", None), getattr(own, "settle", None))
    if not isinstance(spec, KVSpec) or not all(map(callable, parts)):
        need = "a class with SPEC, make(graph) and settle(caches), as labkit.kv.base.Scheme says"
        return (Reason("kv", need, request.kv, catalog.kv_names()),), catalog
    catalog = catalog.including(request.kv, spec)
    return parse_kv(request.kv, profile, catalog, request.kv_file), catalog


def _check_kv(
    request: Request, setting: KVSetting | tuple[Reason, ...], method: MethodSpec | None, profile: Profile
) -> tuple[Reason, ...]:
    if not isinstance(setting, KVSetting):
        return setting
    return tuple(check_method_kv(request.kv, setting, method, profile)) if method else ()


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
    request: Request, profile: Profile, catalog: Catalog, method: MethodSpec, setting: KVSetting
) -> Plan:
    kv = catalog.kv[setting.family]
    chunk = request.prefill_chunk or catalog.default_prefill_chunk
    return Plan(
        model=profile.name,
        fingerprint=profile.fingerprint,
        method=request.method or method.name,
        kv=request.kv,
        kv_summary=kv.summary,
        kv_setting=setting,
        kv_class=request.kv_class,
        cache_layout=_layout(setting, kv, profile),
        prefill_chunk=chunk,
        sampling=request.sampling,
        prompt_tokens=len(request.prompt),
        max_tokens=request.max_tokens,
        seed=request.seed,
        stop_tokens=request.stop_tokens,
        logprobs=request.logprobs,
        oracle=_oracle(setting, kv, profile),
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


def _layout(setting: KVSetting, spec: KVSpec, profile: Profile) -> tuple[str | None, ...]:
    """Per cache what stands there after a run: what the SPEC says, its codes, or the model's own."""
    found: list[str | None] = []
    for layer, (kind, own) in enumerate(zip(profile.layers, profile.own_layout(), strict=True)):
        kept = setting.layer(layer)
        coded = own if kept is None else cache_name(kind, kept, _item_bytes(profile, layer))
        untouched = kept is None and setting.layers
        found.append(coded if untouched else spec.settled.get(kind, coded))
    return tuple(found)


def _oracle(setting: KVSetting, spec: KVSpec, profile: Profile) -> str:
    """Who does the same already, of the layers that it holds for; attention over split codes nobody does."""
    if not setting.layers:
        return profile.oracle if spec.oracle == ORACLE else spec.oracle
    names, split = dict[str, None](), False
    for layer, kind in enumerate(profile.layers):
        kept = setting.layer(layer)
        if kept is not None:
            names[spec.oracles.get(kind, spec.oracle)] = None
            split = split or kept.in_dtype(_item_bytes(profile, layer)).is_split
    return " and ".join(names) + (", of the codes alone" if split else "")


def _item_bytes(profile: Profile, layer: int) -> int:
    return profile.caches[layer].item_bytes if profile.caches else 0


def _notes(request: Request, chunk: int) -> tuple[str, ...]:
    default = () if request.prefill_chunk else (f"prefill_chunk {chunk} is this backend's default",)
    own = request.sampler is not None
    seed = ("the sampler draws from a generator of its own, not from the seed",) if own else ()
    callables = own or request.logits_processors
    named = ("the hash knows samplers and processors by name, not what they close over",) if callables else ()
    return (*default, *seed, *named)
