"""Checks of the method: whether it runs on the model, and offers what the request needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from labkit.core.request import Request
from labkit.core.spec import Feature, MethodSpec
from labkit.plan.method_name import parse_method
from labkit.plan.reason import Reason
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
