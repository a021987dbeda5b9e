"""The keyed sampling primitive's noise: Gumbel noise that depends on (seed, token index) and nothing else."""

from __future__ import annotations

import hashlib

import mlx.core as mx


def gumbel_noise(seed: int, index: int, size: int) -> mx.array:
    """Standard Gumbel noise `(size,)` in f32 for the token at `index` of the sequence with this seed.

    argmax(logits / T + noise) is a draw from softmax(logits / T) (Gumbel-max trick, Maddison et al. 2014,
    arXiv 1411.0030). A row's noise is the same alone and in any batch.
    """
    key = hashlib.blake2b(f"{seed}/{index}".encode(), digest_size=8).digest()
    return mx.random.gumbel((size,), key=mx.random.key(int.from_bytes(key, "little")))
