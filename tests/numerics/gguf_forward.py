"""What a GGUF model means: its logits in float64, from its own rows and metadata, in llama.cpp's conventions.

Written from the definitions of the architectures, not from mlx-lm or the importer: rows are rotated where
they lie, norms are as stored. Where mlx-lm computes an architecture in another way than llama.cpp does, it is
followed, since it is labkit's oracle: Gemma 1 and StarCoder 2 take the exact GELU, Gemma 2 has no window,
Phi 3 takes the long factors at every length.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.numerics.gguf_blocks import HEADS, HIDDEN, KV_HEADS, TinyModel

Array = np.ndarray
_ERF = np.vectorize(math.erf)


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def gelu(x: Array) -> Array:
    return x * (1 + _ERF(x / math.sqrt(2))) / 2


def gelu_tanh(x: Array) -> Array:
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


@dataclass(frozen=True)
class Traits:
    """What an architecture's name stands for and its file does not say.

    interleaved: neighbouring rows are a rotary pair. period: every n-th layer sees everything, the others a
    window and a rotary base of their own. unrotated: every n-th layer is not rotated.
    """

    interleaved: bool = False
    layer_norm: bool = False
    activation: Callable[[Array], Array] = silu
    embed_scale: float = 1.0
    renormalize: bool = False
    period: int = 1
    local_base: float | None = None
    unrotated: int = 0


TRAITS: dict[str, Traits] = {
    "llama": Traits(interleaved=True, renormalize=True),
    "smollm3": Traits(interleaved=True, unrotated=4),
    "granite": Traits(interleaved=True),
    "qwen2": Traits(),
    "qwen2moe": Traits(),
    "qwen3": Traits(),
    "qwen3moe": Traits(renormalize=True),
    "gemma": Traits(activation=gelu, embed_scale=HIDDEN**0.5),
    "gemma2": Traits(activation=gelu_tanh, embed_scale=HIDDEN**0.5),
    "gemma3": Traits(activation=gelu_tanh, embed_scale=HIDDEN**0.5, period=6, local_base=10000.0),
    "phi3": Traits(),
    "olmo2": Traits(),
    "command-r": Traits(interleaved=True, layer_norm=True),
    "cohere2": Traits(interleaved=True, layer_norm=True, period=4, unrotated=4),
    "stablelm": Traits(layer_norm=True),
    "starcoder2": Traits(layer_norm=True, activation=gelu),
    "exaone": Traits(),
}


@dataclass(frozen=True)
class Forward:
    """One tiny model and how to compute it; `logits` is `(tokens, vocabulary)`."""

    model: TinyModel
    traits: Traits

    def logits(self, ids: list[int]) -> Array:
        x = self._outer("token_embd.weight")[ids] * self._number("embedding_scale", self.traits.embed_scale)
        for i in range(self._number("block_count")):
            x = self._layer(x, i)
        x = self._norm(x, "output_norm")
        output = "output.weight" if "output.weight" in self.model.weights else "token_embd.weight"
        logits = x @ self._outer(output).T * self._logit_scale()
        return _cap(logits, self._number("final_logit_softcapping", 0.0))

    def _logit_scale(self) -> float:
        scale = self._number("logit_scale", 1.0)
        return 1 / scale if self.model.architecture == "granite" else scale

    def _layer(self, x: Array, i: int) -> Array:
        share = self._number("residual_scale", 1.0)
        normed = self._norm(x, f"blk.{i}.attn_norm")
        attended = self._norm(self._attention(normed, i), f"blk.{i}.post_attention_norm")
        beside = self.model.architecture != "olmo2" and f"blk.{i}.ffn_norm.weight" not in self.model.weights
        if beside:
            return x + attended + self._mlp(normed, i)
        x = x + share * attended
        inner = self._mlp(self._norm(x, f"blk.{i}.ffn_norm"), i)
        return x + share * self._norm(inner, f"blk.{i}.post_ffw_norm")

    def _attention(self, x: Array, i: int) -> Array:
        q, k, v = self._qkv(x, i)
        tokens, head = len(x), q.shape[-1]
        whole = (i + 1) % self.traits.period == 0
        if not (self.traits.unrotated and (i + 1) % self.traits.unrotated == 0):
            q, k = (self._rotate(a, whole=whole) for a in (q, k))
        k, v = (np.repeat(a, HEADS // KV_HEADS, axis=1) for a in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) * self._number("attention.scale", head**-0.5)
        scores = _cap(scores, self._number("attn_logit_softcapping", 0.0))
        ahead = np.arange(tokens)[:, None] - np.arange(tokens)
        visible = (ahead >= 0) if whole else (ahead >= 0) & (ahead < self._number("attention.sliding_window"))
        weights = _softmax(np.where(visible, scores, -np.inf))
        mixed = np.einsum("hqk,khd->qhd", weights, v).reshape(tokens, -1)
        return self._linear(mixed, f"blk.{i}.attn_output")

    def _qkv(self, x: Array, i: int) -> list[Array]:
        """Each `(tokens, heads, head)`, normed where the model has norms for them."""
        if f"blk.{i}.attn_qkv.weight" in self.model.weights:
            head = self._number("attention.key_length")
            ends = [HEADS * head, (HEADS + KV_HEADS) * head]
            parts = np.split(self._linear(x, f"blk.{i}.attn_qkv"), ends, axis=-1)
        else:
            parts = [self._linear(x, f"blk.{i}.attn_{n}") for n in "qkv"]
        counts = (HEADS, KV_HEADS, KV_HEADS)
        heads = [p.reshape(len(x), n, -1) for p, n in zip(parts, counts, strict=True)]
        for at, name in enumerate(("q", "k")):
            norm = f"blk.{i}.attn_{name}_norm"
            flat = self.model.architecture == "olmo2"
            normed = self._norm(parts[at] if flat else heads[at], norm)
            heads[at] = normed.reshape(heads[at].shape)
        return heads

    def _rotate(self, x: Array, *, whole: bool) -> Array:
        dims = self._number("rope.dimension_count", x.shape[-1])
        step, size = self._steps(dims, whole=whole)
        angles = np.arange(len(x))[:, None, None] * step
        cos, sin = np.cos(angles) * size, np.sin(angles) * size
        turned, rest = x[..., :dims], x[..., dims:]
        if self.traits.interleaved:
            a, b = turned[..., 0::2], turned[..., 1::2]
            pairs = np.stack([a * cos - b * sin, a * sin + b * cos], axis=-1).reshape(turned.shape)
        else:
            a, b = turned[..., : dims // 2], turned[..., dims // 2 :]
            pairs = np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)
        return np.concatenate([pairs, rest], axis=-1)

    def _steps(self, dims: int, *, whole: bool) -> tuple[Array, float]:
        """Radians that each pair turns by with a token, and what the pair is multiplied by."""
        local = self.traits.local_base is not None and not whole
        base = self._number("rope.freq_base", 10000.0)
        if local:
            base = self.traits.local_base or base
        step = base ** -(np.arange(0, dims, 2) / dims)
        if local:
            return step, 1.0
        for name in ("rope_freqs.weight", "rope_factors_long.weight"):
            if name in self.model.weights:
                step = step / self._outer(name)
        factor = self._number("rope.scaling.factor", 1.0)
        if self.model.metadata.get("rope.scaling.type") == "yarn":
            return self._yarn(step, base, dims, factor)
        return step / factor, self._number("rope.scaling.attn_factor", 1.0)

    def _yarn(self, step: Array, base: float, dims: int, factor: float) -> tuple[Array, float]:
        context = self._number("rope.scaling.original_context_length")
        low, high = (
            dims * math.log(context / (turns * 2 * math.pi)) / (2 * math.log(base)) for turns in (32, 1)
        )
        low, high = max(math.floor(low), 0), min(math.ceil(high), dims - 1)
        ramp = np.clip((np.arange(dims // 2) - low) / max(high - low, 0.001), 0, 1)
        return step / factor * ramp + step * (1 - ramp), 1 + 0.1 * math.log(factor)

    def _mlp(self, x: Array, i: int) -> Array:
        name, weights = f"blk.{i}.ffn", self.model.weights
        if f"{name}_gate_inp.weight" in weights:
            return self._experts(x, name)
        act = self.traits.activation
        if f"{name}_gate.weight" in weights:
            return self._linear(
                act(self._linear(x, f"{name}_gate")) * self._linear(x, f"{name}_up"), f"{name}_down"
            )
        up = self._linear(x, f"{name}_up")
        if self.model.architecture == "phi3":
            gate, up = np.split(up, 2, axis=-1)
            return self._linear(act(gate) * up, f"{name}_down")
        return self._linear(act(up), f"{name}_down")

    def _experts(self, x: Array, name: str) -> Array:
        chances = _softmax(self._linear(x, f"{name}_gate_inp"))
        total = np.zeros_like(x)
        for row, chance in enumerate(chances):
            best = np.argsort(-chance)[: self._number("expert_used_count")]
            mass = chance[best].sum() if self.traits.renormalize else 1.0
            for e in best:
                gate, up, down = (self._expert(f"{name}_{part}", e) for part in ("gate", "up", "down"))
                total[row] += chance[e] / mass * (down @ (silu(gate @ x[row]) * (up @ x[row])))
        if f"{name}_gate_shexp.weight" in self.model.weights:
            open_ = 1 / (1 + np.exp(-x @ self._outer(f"{name}_gate_inp_shexp.weight")))
            inner = silu(self._linear(x, f"{name}_gate_shexp")) * self._linear(x, f"{name}_up_shexp")
            total += open_[:, None] * self._linear(inner, f"{name}_down_shexp")
        return total

    def _expert(self, name: str, expert: int) -> Array:
        if f"{name}_exps.weight" in self.model.weights:
            return self._outer(f"{name}_exps.weight")[expert]
        return self._outer(f"{name}.{expert}.weight")

    def _linear(self, x: Array, name: str) -> Array:
        bias = self.model.weights.get(f"{name}.bias")
        y = x @ self._outer(f"{name}.weight").T
        return y if bias is None else y + bias

    def _norm(self, x: Array, name: str) -> Array:
        """As stored; the input where the model has no such norm."""
        if f"{name}.weight" not in self.model.weights:
            return x
        if self.traits.layer_norm:
            x = x - x.mean(-1, keepdims=True)
        eps = self._number(f"attention.layer_norm{'' if self.traits.layer_norm else '_rms'}_epsilon")
        y = x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * self._outer(f"{name}.weight")
        return y + self.model.weights.get(f"{name}.bias", 0)

    def _outer(self, name: str) -> Array:
        return self.model.weights[name].astype(np.float64)

    def _number(self, key: str, default: Any = None) -> Any:
        """A float as the file's float32 holds it."""
        value = self.model.metadata.get(key, default)
        return float(np.float32(value)) if isinstance(value, float) else value


def _cap(x: Array, limit: float) -> Array:
    return np.tanh(x / limit) * limit if limit else x


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
