"""Checks of method and KV scheme: whether they fit the model, and offer what the request needs."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping

from labkit.core.request import Request
from labkit.core.spec import Catalog, Feature, KVSpec, MethodSpec, Profile
from labkit.plan.method_name import parse_method
from labkit.plan.plan import Reason
from labkit.plan.values import is_count, is_number

_ABLE: Mapping[Feature, str] = {
    "sample": "a method that draws with processors, samplers and alternatives of the request",
    "tap": "a method that records taps",
}


def check_method(request: Request, name: str, methods: Mapping[str, MethodSpec]) -> Iterator[Reason]:
    """Reasons against the method of this name. methods: those that run on the model."""
    method = methods.get(name.partition(":")[0]) if isinstance(name, str) else None
    if method is None:
        yield Reason("method", "a method that runs on this model", repr(name), tuple(methods))
        return
    yield from _argument(name, method)
    if method.greedy_only and not request.sampling.greedy:
        got = f"{name} with temperature {request.sampling.temperature}"
        yield Reason("method", "a method that can sample", got, ("temperature=0", "another method"))
    for feature, fields in _needs(request).items():
        if fields and feature not in method.features:
            able = tuple(n for n, spec in methods.items() if feature in spec.features)
            yield Reason("method", _ABLE[feature], f"{name} with {', '.join(fields)}", able)


def _argument(name: str, method: MethodSpec) -> Iterator[Reason]:
    """Whether the number in a method's name is there where it should be, and is a share."""
    try:
        number = parse_method(name)[1]
    except ValueError:
        number = -1.0
    if not method.argument and ":" in name:
        yield Reason("method", "a method without a number in its name", repr(name), (method.name,))
    elif method.argument and (number is None or number < 0):
        yield Reason("method", "a share of 0 or more in its name", repr(name), (f"{method.name}:0.10",))


def check_kv(name: str, kv: KVSpec | None, profile: Profile, catalog: Catalog) -> Iterator[Reason]:
    """Reasons against the KV scheme of this name, which is `kv` where the catalog has it."""
    if kv is None:
        names = catalog.kv_names()
        close = difflib.get_close_matches(str(name), names, n=1)
        hint = f"did you mean {close[0]!r}?" if close else ""
        yield Reason("kv", "a KV scheme of the catalog", repr(name), names, hint)
        return
    device = catalog.backend.partition("/")[0]
    if device in kv.unavailable:
        got = f"{name!r}: {kv.unavailable[device]}"
        yield Reason("kv", f"a scheme that runs on {device}", got, ("bf16",))
    unfit = [i for i, kind in enumerate(profile.layers) if kind not in kv.fits]
    if unfit:
        kinds = sorted({profile.layers[i] for i in unfit})
        layers = ", ".join(map(str, unfit[:8])) + (", ..." if len(unfit) > 8 else "")
        got = f"{name!r} on {'/'.join(kinds)} layers {layers} of {profile.name}"
        yield Reason("kv", f"a scheme that fits every layer ({'/'.join(sorted(kv.fits))})", got, ("bf16",))
    if kv.bits and not profile.quantizes:
        got = f"{name!r} on {profile.architecture}"
        yield Reason("kv", "an architecture whose attention reads quantized caches", got, ("bf16",))
    sizes = profile.head_sizes()
    wrong = [size for size in sizes if kv.group_size and size % kv.group_size]
    if wrong or (kv.group_size and not sizes):
        need = f"a head size that is a multiple of the group size {kv.group_size}"
        yield Reason("kv", need, f"{name!r} with head size {wrong[0] if wrong else None}", ("bf16",))


def _needs(request: Request) -> Mapping[Feature, list[str]]:
    """The features that a request needs, and the fields that need them; wrong values need nothing."""
    sampling = request.sampling
    drawing = {
        "logit_bias": isinstance(sampling.logit_bias, tuple) and sampling.logit_bias != (),
        "repetition_penalty": is_number(sampling.repetition_penalty) and sampling.repetition_penalty != 1.0,
        "presence_penalty": is_number(sampling.presence_penalty) and sampling.presence_penalty != 0.0,
        "frequency_penalty": is_number(sampling.frequency_penalty) and sampling.frequency_penalty != 0.0,
        "top_logprobs": is_count(request.top_logprobs),
        "sampler": callable(request.sampler),
        "logits_processors": isinstance(request.logits_processors, tuple) and request.logits_processors != (),
    }
    tapping = {
        "taps.logits": request.taps.logits is True,
        "taps.hidden": request.taps.hidden != (),
        "taps.attention": request.taps.attention != (),
    }
    return {
        "sample": [name for name, used in drawing.items() if used],
        "tap": [name for name, used in tapping.items() if used],
    }
