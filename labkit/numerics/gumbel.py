"""The keyed sampling primitives: chance that depends on (seed, token index) and on nothing else."""

from __future__ import annotations

import hashlib

import mlx.core as mx

# Below any Gumbel value that f32 can draw but the -inf of a uniform 0, which could not win alone.
LEAST_NOISE = -8.0


def gumbel_noise(seed: int, index: int, size: int) -> mx.array:
    """Standard Gumbel noise `(size,)` in f32 for the token at `index` of the sequence with this seed.

    argmax(logits / T + noise) is a draw from softmax(logits / T) (Gumbel-max trick, Maddison et al. 2014,
    arXiv 1411.0030). A row's noise is the same alone and in any batch. It is finite, so that a token whose
    logit is -inf never wins over one whose logit is not.
    """
    key = mx.random.key(int.from_bytes(_digest(f"{seed}/{index}"), "little"))
    return mx.maximum(mx.random.gumbel((size,), key=key), LEAST_NOISE)


def keyed_uniform(seed: int, index: int) -> float:
    """A number from [0, 1) on the host for the token at `index`, independent of its Gumbel noise."""
    return (int.from_bytes(_digest(f"uniform/{seed}/{index}"), "little") >> 11) * 2.0**-53


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=8).digest()
