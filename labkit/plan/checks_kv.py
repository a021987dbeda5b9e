"""Checks of a KV scheme on a model: whether every layer can hold what the name asks of it, by layer."""

from __future__ import annotations

from collections.abc import Iterator

from labkit.core.kv_file import KVFile
from labkit.core.kv_setting import QUANTIZABLE, KVSetting, LayerKV
from labkit.core.spec import CacheShape, Catalog, KVSpec, LayerKind, MethodSpec, Profile
from labkit.plan.kv_config import read_layers
from labkit.plan.kv_name import KVName, split_name
from labkit.plan.reason import Reason, spans

_PLAIN = ("bf16",)
_HEAD = "a head size that is a multiple of the group size"


def parse_kv(
    name: object, profile: Profile, catalog: Catalog, file: KVFile | None = None
) -> KVSetting | tuple[Reason, ...]:
    """What a name asks for on a model, or every reason why it cannot be had there.

    file: what the file in the name holds, where it has one.
    """
    named = split_name(name, catalog)
    if isinstance(named, Reason):
        return (named,)
    spec = catalog.kv[named.family]
    layers = _layers(named, file, len(profile.layers), spec)
    if layers and isinstance(layers[0], Reason):
        refused = tuple(reason for reason in layers if isinstance(reason, Reason))
        return (*check_spec(str(name), spec, profile, catalog.backend), *refused)
    kept = tuple(layer for layer in layers if not isinstance(layer, Reason))
    setting = KVSetting(named.family, kept, named.start)
    reasons = (
        *check_spec(str(name), spec, profile, catalog.backend),
        *_check_layers(str(name), setting, spec, profile),
    )
    return reasons or setting


def check_spec(name: str, spec: KVSpec, profile: Profile, backend: str) -> Iterator[Reason]:
    """Reasons that lie in the device and in how the architecture attends."""
    device = backend.partition("/")[0]
    if device in spec.unavailable:
        got = f"{name!r}: {spec.unavailable[device]}"
        yield Reason("kv", f"a scheme that runs on {device}", got, _PLAIN)
    asked = spec.attends or (spec.quantizes and _has_keys(profile))
    if asked and not profile.quantizes and profile.provider == "weights":
        need = "an architecture whose attention reads what a cache of another form gives"
        yield Reason("kv", need, f"{name!r} on {profile.architecture}: {_why_unread(profile)}", _PLAIN)


def check_method_kv(name: str, setting: KVSetting, method: MethodSpec, profile: Profile) -> Iterator[Reason]:
    """Reasons against a scheme in the hands of a method that has the caches of somebody else."""
    if method.kv_families is None:
        return
    if setting.family not in method.kv_families:
        got = f"{name!r} with {method.name}"
        yield Reason("kv", f"a scheme that {method.name} has", got, tuple(sorted(method.kv_families)))
    elif setting.layers and not _uniform(setting, profile):
        need = (
            f"one setting for every layer, all of them full, with scales in the model's dtype ({method.name})"
        )
        yield Reason("kv", need, repr(name), _PLAIN, "another method")


def _layers(
    named: KVName, file: KVFile | None, depth: int, spec: KVSpec
) -> tuple[LayerKV | None, ...] | tuple[Reason, ...]:
    if spec.file:
        return read_layers(named, file, depth, spec)
    if named.bits is None or named.group is None:
        return ()
    return (LayerKV(named.bits, named.bits, named.group, named.short),) * depth


def _check_layers(name: str, setting: KVSetting, spec: KVSpec, profile: Profile) -> Iterator[Reason]:
    """Every reason that lies in a layer, with all the layers that it holds for."""
    found: dict[tuple[str, str], list[int]] = {}
    for layer, kind in enumerate(profile.layers):
        kept = setting.layer(layer)
        # A scheme without settings is asked of every layer, one with settings of those that have one.
        if kept is None and setting.layers:
            continue
        for reason in _unfit(kind, _cache(profile, layer), kept, spec):
            found.setdefault(reason, []).append(layer)
    for (need, why), layers in found.items():
        which = f"layer {layers[0]}" if len(layers) == 1 else f"layers {spans(layers)}"
        options = () if spec.file or not need.startswith(_HEAD) else _in_groups(name, spec, profile)
        yield Reason("kv", need, f"{name!r} on {which} of {profile.name}: {why}", (*options, *_PLAIN))


def _in_groups(name: str, spec: KVSpec, profile: Profile) -> tuple[str, ...]:
    """The scheme in the groups that every layer's heads can be cut into."""
    caches = (_cache(profile, layer) for layer in range(len(profile.layers)))
    sizes = {size for cache in caches if cache for size in (cache.key_size, cache.value_size)}
    return tuple(f"{name.partition('/')[0]}/g{g}" for g in spec.groups if not any(size % g for size in sizes))


def _unfit(
    kind: LayerKind, cache: CacheShape | None, kept: LayerKV | None, spec: KVSpec
) -> Iterator[tuple[str, str]]:
    """What one layer would need to be, and what it is."""
    kinds = "/".join(sorted(spec.fits))
    if kind not in spec.fits:
        why = "recurrent, one state in place of keys and values" if kind == "recurrent" else kind
        yield f"a scheme that fits every layer ({kinds})", why
        return
    if kept is None or cache is None:
        return
    if spec.quantizes and QUANTIZABLE.get(cache.name) is None:
        yield f"caches with a quantized form ({', '.join(QUANTIZABLE)})", cache.name
        return
    wrong = sorted(
        {size for size in (cache.key_size, cache.value_size) if size % kept.group_size or not size}
    )
    if wrong:
        yield (
            f"{_HEAD} {kept.group_size}",
            f"head size {', '.join(map(str, wrong))}",
        )


def _cache(profile: Profile, layer: int) -> CacheShape | None:
    """The shape of a layer's cache; of a model whose caches are not known one with its head size."""
    if profile.caches:
        return profile.caches[layer]
    size = profile.head_dim or 0
    return CacheShape("KVCache", kv_heads=profile.kv_heads or 0, key_size=size, value_size=size)


def _has_keys(profile: Profile) -> bool:
    """Whether a layer has a cache that could be quantized, or may have one."""
    return not profile.caches or any(cache.name in QUANTIZABLE for cache in profile.caches)


def _why_unread(profile: Profile) -> str:
    why = "a trial step over quantized caches fails there"
    leaves = [leaf for cache in profile.caches for leaf in cache.leaves() if leaf.kv_heads]
    latent = next((leaf for leaf in leaves if leaf.kv_heads == 1 and leaf.key_size != leaf.value_size), None)
    if latent is None:
        return why
    return (
        f"{why}; caches of one head, {latent.key_size} and {latent.value_size} wide, hold latents as a rule"
    )


def _uniform(setting: KVSetting, profile: Profile) -> bool:
    kept = setting.layers[0]
    shapes = [_cache(profile, layer) for layer in range(len(profile.layers))]
    full = all(shape is not None and QUANTIZABLE.get(shape.name) == "full" for shape in shapes)
    item_bytes = max((shape.item_bytes for shape in shapes if shape is not None), default=0)
    alike = kept is not None and all(layer == kept for layer in setting.layers)
    return alike and full and kept is not None and not kept.in_dtype(item_bytes).is_split
