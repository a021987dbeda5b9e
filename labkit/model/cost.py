"""Costs: bytes moved and operations per token, and what the machine's ceilings allow for them.

Knows profiles and sizes, not sessions; measures nothing. The roofline is a bound, not a prediction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from labkit.core.kv_setting import KVSetting
from labkit.core.spec import CacheShape, Profile
from labkit.model.ceilings import Ceilings
from labkit.model.stored import stored
from labkit.model.tensors import Tensor

ITEMSIZE = {"float32": 4, "bfloat16": 2, "float16": 2}
# What mlx-lm's architectures call the table of token embeddings, and the output matrix where it is another.
_EMBEDDINGS = frozenset(
    ("embed_tokens", "wte", "word_embeddings", "embeddings", "tok_embeddings", "embedding", "embed_in")
)
_HEADS = frozenset(("lm_head", "output", "embed_out"))


@dataclass(frozen=True, slots=True)
class Weights:
    """The sizes of an artifact's weights, over all its tensors.

    lookup_bytes, lookup_parameters: the embedding table where the output has a matrix of its own (0 where
    they are one): only a row of it is read for a token.
    """

    stored_bytes: int
    parameters: int
    lookup_bytes: int = 0
    lookup_parameters: int = 0


@dataclass(frozen=True, slots=True)
class Roofline:
    """The static cost card of one arm on one workload.

    weight_bytes, kv_bytes: what one decoded token must read, halfway through decoding.
    kv_bytes_per_token: what a cached token adds over all layers, for what the plan stores.
    decode_tps_limit: bandwidth / bytes read. prefill_tps_limit: the product ceiling / operations.
    """

    weight_bytes: int
    kv_bytes_per_token: float
    kv_bytes: float
    decode_flops_per_token: float
    prefill_flops_per_token: float
    decode_tps_limit: float
    prefill_tps_limit: float
    ceilings: Ceilings

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def card(self) -> str:
        gb, gf = 1e9, 1e9
        return (
            f"reads {self.weight_bytes / gb:.3f} GB of weights and "
            f"{self.kv_bytes_per_token / 1024:.1f} KiB of KV per cached token; "
            f"{self.decode_flops_per_token / gf:.2f} GFLOP a decoded token, "
            f"{self.prefill_flops_per_token / gf:.2f} a prompt token\n"
            f"measured ceilings: {self.ceilings.bytes_per_s / gb:.1f} GB/s, "
            f"{self.ceilings.flops_per_s / gf:.0f} GFLOP/s ({self.ceilings.dtype})\n"
            f"so at most: decode {self.decode_tps_limit:.0f} tok/s, "
            f"prefill {self.prefill_tps_limit:.0f} tok/s"
        )


def untied_embedding(tensors: Mapping[str, Tensor], vocab_size: int) -> dict[str, Tensor]:
    """The tensors of the embedding table where the output has a matrix of its own; none where it has not."""
    tables = {
        name.rpartition(".")[0]
        for name, tensor in tensors.items()
        if name.endswith(".weight") and len(tensor.shape) == 2 and tensor.shape[0] == vocab_size
    }
    leaves = {path: path.rpartition(".")[2] for path in tables}
    if _HEADS.isdisjoint(leaves.values()):
        return {}
    return {n: t for n, t in tensors.items() if leaves.get(n.rpartition(".")[0]) in _EMBEDDINGS}


def kv_bytes_per_token(profile: Profile, setting: KVSetting) -> float:
    """Bytes of keys and values that a token adds over all layers while no sliding window is full.

    As they are stored once a row has reached the start. What a recurrent layer holds does not grow.
    """
    return sum(cache.token_bytes for cache in stored(profile, setting))


def kv_bytes_at(profile: Profile, tokens: float, setting: KVSetting) -> float:
    """Bytes of caches that a decode step reads at `tokens` cached tokens: windows hold no more.

    Keys, values and the state of recurrent layers, all without the room that a cache keeps to grow into.
    """
    caches = (cache.at(tokens, setting.start) for cache in stored(profile, setting))
    return sum(c.leaf.state_bytes + _kept(c.leaf, tokens) * c.token_bytes for c in caches)


def decode_flops_per_token(profile: Profile, weights: Weights, context: float) -> float:
    """Operations of one decoded token at `context` cached tokens.

    2 per parameter that is multiplied with, and 4 x heads x head size per token attended to and layer
    (queries by keys, weights by values; Kaplan et al. 2020, arXiv 2001.08361, table 1).
    """
    attention = sum(_attention_flops(profile, leaf, _kept(leaf, context)) for leaf in _leaves(profile))
    return 2.0 * (weights.parameters - weights.lookup_parameters) + attention


def prefill_flops_per_token(profile: Profile, weights: Weights, prompt_tokens: int) -> float:
    """Operations per prompt token, on average over the prompt but its last token, which is decoded.

    Prefill fills caches only: no output matrix, and of the last layer (taken as large as the average one)
    only its keys and values. A token attends to those before it.
    """
    output = profile.vocab_size * profile.hidden_size
    body = weights.parameters - weights.lookup_parameters - output
    *before, last = profile.caches or (None,)
    multiplied = body * len(before) / len(profile.caches) + _kv_parameters(profile, last) if last else body
    held = [leaf for cache in before for leaf in cache.leaves()]
    attention = sum(_attention_flops(profile, f, _mean_kept(f, prompt_tokens - 1)) for f in held)
    return 2.0 * multiplied + attention


def roofline(
    profile: Profile,
    weights: Weights,
    setting: KVSetting,
    prompt_tokens: int,
    new_tokens: int,
    ceilings: Ceilings,
) -> Roofline:
    """The card of a workload; decoding is taken halfway through its new tokens.

    Every stored weight but an untied embedding counts as used by every token. A mixture of experts uses
    fewer, as does a model with a vision tower: their limits come out too low and bound nothing.
    """
    context = prompt_tokens + (new_tokens - 1) / 2
    read = weights.stored_bytes - weights.lookup_bytes
    held = kv_bytes_at(profile, context, setting)
    prefill = prefill_flops_per_token(profile, weights, prompt_tokens)
    return Roofline(
        weight_bytes=read,
        kv_bytes_per_token=kv_bytes_per_token(profile, setting),
        kv_bytes=held,
        decode_flops_per_token=decode_flops_per_token(profile, weights, context),
        prefill_flops_per_token=prefill,
        decode_tps_limit=ceilings.bytes_per_s / (read + held),
        prefill_tps_limit=ceilings.flops_per_s / max(prefill, 1.0),
        ceilings=ceilings,
    )


def _leaves(profile: Profile) -> list[CacheShape]:
    return [leaf for cache in profile.caches for leaf in cache.leaves()]


def _kept(leaf: CacheShape, tokens: float) -> float:
    """How many of `tokens` tokens a cache keeps, and a step attends to."""
    return tokens if leaf.window is None else min(tokens, leaf.window)


def _mean_kept(leaf: CacheShape, count: int) -> float:
    """The mean of `_kept` over the positions p = 1..count."""
    if count == 0:
        return 0.0
    ramp = int(_kept(leaf, count))
    return (ramp * (ramp + 1) / 2 + (count - ramp) * ramp) / count


def _attention_flops(profile: Profile, leaf: CacheShape, attended: float) -> float:
    return 4.0 * profile.heads * leaf.key_size * attended if leaf.kv_heads else 0.0


def _kv_parameters(profile: Profile, cache: CacheShape) -> int:
    return profile.hidden_size * sum(leaf.elements for leaf in cache.leaves())
