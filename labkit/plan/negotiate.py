"""Negotiation: (Request, Profile, Catalog) -> Plan | Refusal. Pure; it evaluates the whole composition.

It never changes a requested scheme, seed or constraint to make something else possible.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator
from dataclasses import replace

from labkit.core.request import Request
from labkit.core.sampling import Sampling
from labkit.core.spec import Catalog, KVSpec, MethodSpec, Profile
from labkit.plan.plan import Plan, Reason, Refusal

# Below it, 1 / temperature and the nucleus leave the range of f32.
LEAST_SAMPLING = 1e-6


def negotiate(request: Request, profile: Profile, catalog: Catalog) -> Plan | Refusal:
    """Resolve a request on a model, or list every reason why it cannot run."""
    names = tuple(n for n, spec in catalog.methods.items() if spec.provider == profile.provider)
    method_name = request.method or next(iter(names), "none registered")
    method = catalog.methods[method_name] if method_name in names else None
    kv, bits = parse_kv(request.kv, catalog)
    reasons = (
        *_check_method(method_name, method, names, request.sampling),
        *_check_kv(request.kv, kv, profile, catalog),
        *_check_lengths(request, profile),
        *_check_sampling(request.sampling),
        *_check_seed(request.seed),
        *_check_stop_tokens(request.stop_tokens, profile),
    )
    if reasons or kv is None or method is None:
        return Refusal(profile.name, reasons)
    return _plan(replace(request, method=method_name), profile, catalog, kv, bits)


def parse_kv(name: str, catalog: Catalog) -> tuple[KVSpec | None, int | None]:
    """Split `affine:8` into its spec and bits; (None, None) where the catalog has no such name."""
    if name not in catalog.kv_names():
        return None, None
    family, _, argument = name.partition(":")
    return catalog.kv[family], int(argument) if argument else None


def _plan(request: Request, profile: Profile, catalog: Catalog, kv: KVSpec, bits: int | None) -> Plan:
    chunk = request.prefill_chunk or catalog.default_prefill_chunk
    settled = {kind: name.format(bits=bits, group_size=kv.group_size) for kind, name in kv.settled.items()}
    notes = () if request.prefill_chunk else (f"prefill_chunk {chunk} is this backend's default",)
    return Plan(
        model=profile.name,
        fingerprint=profile.fingerprint,
        method=str(request.method),
        kv=request.kv,
        kv_family=kv.family,
        kv_bits=bits,
        kv_group_size=kv.group_size,
        cache_layout=tuple(settled.get(kind) for kind in profile.layers),
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
        notes=notes,
    )


def _check_method(
    name: str, method: MethodSpec | None, names: tuple[str, ...], sampling: Sampling
) -> Iterator[Reason]:
    if method is None:
        yield Reason("method", "a method that runs on this model", repr(name), names)
    elif method.greedy_only and not sampling.greedy:
        got = f"{name} with temperature {sampling.temperature:g}"
        yield Reason("method", "a method that can sample", got, ("temperature=0", "another method"))


def _check_kv(name: str, kv: KVSpec | None, profile: Profile, catalog: Catalog) -> Iterator[Reason]:
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
    if kv.group_size and (profile.head_dim is None or profile.head_dim % kv.group_size):
        need = f"a head size that is a multiple of the group size {kv.group_size}"
        yield Reason("kv", need, f"{name!r} with head size {profile.head_dim}", ("bf16",))


def _check_lengths(request: Request, profile: Profile) -> Iterator[Reason]:
    prompt, context = len(request.prompt), profile.context_length
    if prompt == 0:
        yield Reason("prompt", "at least one token", "an empty prompt")
    if not _is_count(request.max_tokens):
        yield Reason("max_tokens", "a whole number of at least 1", repr(request.max_tokens))
    elif prompt > context:
        yield Reason("prompt", f"at most {context} tokens, the context of {profile.name}", f"{prompt} tokens")
    elif prompt + request.max_tokens > context:
        room = context - prompt
        need = f"prompt and max_tokens within the context of {context} tokens"
        options = (f"max_tokens from 1 to {room}",) if room else ("a shorter prompt",)
        yield Reason("max_tokens", need, f"{prompt} + {request.max_tokens} tokens", options)
    if request.prefill_chunk is not None and not _is_count(request.prefill_chunk):
        yield Reason("prefill_chunk", "a whole number of at least 1", repr(request.prefill_chunk))
    wrong = [t for t in request.prompt if not _is_token(t, profile)]
    if wrong:
        yield Reason("prompt", f"token ids from 0 to {profile.vocab_size - 1}", repr(wrong[0]))


def _check_sampling(sampling: Sampling) -> Iterator[Reason]:
    temperature, top_p = sampling.temperature, sampling.top_p
    if not (_is_number(temperature) and (temperature == 0 or temperature >= LEAST_SAMPLING)):
        need = f"0 (greedy) or a finite number of at least {LEAST_SAMPLING:g}"
        yield Reason("temperature", need, repr(temperature))
    if not (_is_number(top_p) and LEAST_SAMPLING <= top_p <= 1):
        yield Reason("top_p", f"a number from {LEAST_SAMPLING:g} to 1", repr(top_p))
    elif temperature == 0 and top_p < 1:
        got = f"temperature 0 with top_p {top_p:g}"
        yield Reason("sampling", "greedy or top-p, not both", got, ("top_p=1", "temperature above 0"))


def _check_seed(seed: int) -> Iterator[Reason]:
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        yield Reason("seed", "a whole number from 0 to 2^63 - 1", repr(seed))


def _check_stop_tokens(stop_tokens: tuple[int, ...], profile: Profile) -> Iterator[Reason]:
    wrong = [t for t in stop_tokens if not _is_token(t, profile)]
    if wrong:
        yield Reason("stop_tokens", f"token ids from 0 to {profile.vocab_size - 1}", repr(wrong[0]))


def _is_token(value: object, profile: Profile) -> bool:
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return 0 <= value < profile.vocab_size


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
