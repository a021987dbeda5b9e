"""Facts of a model in words: what `labkit models show` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.markup import escape
from rich.table import Table

from labkit.core.spec import Profile
from labkit.model.artifact import Artifact, Packed
from labkit.model.null import NullModel
from labkit.model.origin import terms_of
from labkit.model.wording import one_line


def facts_table(
    artifact: Artifact, profile: Profile, packing: Sequence[Packed], origin: Mapping[str, Any], badge: str
) -> Table:
    """Two columns: what is said, and what is so. badge: how that of `labkit verify` stands, in words."""
    rows = {
        "model": artifact.name,
        "family": artifact.family,
        "path": str(artifact.path),
        "source": source(origin),
        "licence": terms_of(origin),
        "size": size(artifact),
        "quantization": quantization(packing),
        "fingerprint": artifact.fingerprint,
        "badge": badge,
        "architecture": f"{profile.architecture} ({profile.status}, oracle {profile.oracle})",
        "layers": layers(profile),
        "experts": experts(profile),
        "sliding window": f"{profile.sliding_window} tokens" if profile.sliding_window else "none",
        "heads": heads(profile),
        "context": f"{profile.context_length:,} tokens",
        "vocabulary": f"{profile.vocab_size:,}",
    }
    return _table(rows)


def null_table(model: NullModel) -> Table:
    """The same of a null model: it has no artifact, and settings instead."""
    profile = model.profile
    rows = {
        "model": f"{model.name}: keeps time and makes up tokens, without weights",
        "family": profile.family,
        "settings": ", ".join(f"{key}={value}" for key, value in asdict(model.settings).items()),
        "fingerprint": profile.fingerprint,
        "context": f"{profile.context_length:,} tokens",
        "vocabulary": f"{profile.vocab_size:,}",
    }
    return _table(rows)


def _table(rows: Mapping[str, str]) -> Table:
    table = Table("", "", box=None, show_header=False)
    for label, value in rows.items():
        if value:
            table.add_row(f"[bold]{label}[/bold]", escape(value))
    return table


def size(a: Artifact) -> str:
    """Dtype, parameters, bytes and bits per weight."""
    return f"{a.dtype}, {parameters(a)} parameters, {stored(a)}, {a.effective_bpw:.2f} bits per weight"


def stored(a: Artifact) -> str:
    """The bytes of all tensors."""
    return f"{a.artifact_bytes / 1e6:,.1f} MB"


def parameters(a: Artifact) -> str:
    """The parameters of the unpacked model."""
    return f"{a.parameters / 1e6:,.1f} M"


def layers(profile: Profile) -> str:
    """The kinds of layers, and how many there are of each."""
    kinds = {kind: profile.layers.count(kind) for kind in dict.fromkeys(profile.layers)}
    return ", ".join(f"{n} {kind}" for kind, n in kinds.items())


def experts(profile: Profile) -> str:
    """What a mixture of experts mixes; nothing to say of a dense model."""
    if not profile.moe:
        return ""
    return f"{profile.experts} in {len(profile.moe)} layers, {profile.experts_per_token} for each token"


def heads(profile: Profile) -> str:
    """Query heads, and those of keys and values where layers have such caches."""
    if not profile.heads:
        return "none"
    if profile.kv_heads is None:
        return str(profile.heads)
    return f"{profile.heads}, {profile.kv_heads} for keys and values, {profile.head_dim} wide"


def quantization(packing: Sequence[Packed]) -> str:
    """How many matrices are packed, and how."""
    kinds = (f"{p.layers} matrices in {p.bits} bits, groups of {p.group_size}" for p in packing)
    return "; ".join(kinds) or "none"


def source(origin: Mapping[str, Any]) -> str:
    """Where labkit had the model from, as labkit.json says."""
    found = origin.get("source")
    if not isinstance(found, Mapping):
        return ""
    place = ("path",) if "path" in found else ("file",)
    keys = ("package", "version", "repository", "commit", *place)
    parts = [str(found[key]) for key in keys if found.get(key)]
    return one_line(f"{found.get('kind', '')}: {' '.join(parts)}")
