"""Costs and ceilings: bytes moved and operations per token, and what this machine can do at most.

Knows profiles and sizes, not sessions. The roofline is a bound, not a prediction.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from labkit.core.spec import Profile

ITEMSIZE = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Measured on this machine in this process: flops_per_s of a large product, bytes_per_s of a read."""

    flops_per_s: float
    bytes_per_s: float
    dtype: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Roofline:
    """The static cost card of one arm on one workload.

    decode_tps_limit: bandwidth / bytes a decoded token must read. prefill_tps_limit: the product ceiling /
    operations per prompt token. kv_bytes_per_token: over all layers, for what the plan stores.
    """

    weight_bytes: int
    kv_bytes_per_token: float
    flops_per_token: float
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
            f"{self.flops_per_token / gf:.2f} GFLOP a token\n"
            f"measured ceilings: {self.ceilings.bytes_per_s / gb:.1f} GB/s, "
            f"{self.ceilings.flops_per_s / gf:.0f} GFLOP/s ({self.ceilings.dtype})\n"
            f"so at most: decode {self.decode_tps_limit:.0f} tok/s, "
            f"prefill {self.prefill_tps_limit:.0f} tok/s"
        )


def kv_bytes_per_token(profile: Profile, bits: int | None, group_size: int | None) -> float:
    """Bytes of keys and values a token adds over all layers; quantized with a scale and a bias a group."""
    if profile.kv_heads is None or profile.head_dim is None:
        return 0.0
    item = ITEMSIZE.get(profile.dtype, 4)
    element = item if bits is None or group_size is None else bits / 8 + 2 * item / group_size
    return 2 * len(profile.layers) * profile.kv_heads * profile.head_dim * element


def roofline(
    profile: Profile,
    weight_bytes: int,
    parameters: int,
    kv_per_token: float,
    context: int,
    ceilings: Ceilings,
) -> Roofline:
    """The card for decoding at `context` cached tokens.

    Operations per token: 2 per parameter, plus 4 x heads x head_dim x context / 2 per layer for attention
    over a prompt (Kaplan et al. 2020, arXiv 2001.08361, section 2.1).
    """
    head_dim = profile.head_dim or profile.hidden_size // max(profile.heads, 1)
    attention = 2.0 * len(profile.layers) * profile.heads * head_dim * context
    flops = 2.0 * parameters + attention
    moved = weight_bytes + kv_per_token * context
    return Roofline(
        weight_bytes=weight_bytes,
        kv_bytes_per_token=kv_per_token,
        flops_per_token=flops,
        decode_tps_limit=ceilings.bytes_per_s / moved,
        prefill_tps_limit=ceilings.flops_per_s / flops,
        ceilings=ceilings,
    )


def measure_ceilings(dtype: str, clock: Callable[[], float] = time.perf_counter) -> Ceilings:
    """Best of a few short runs: a square product in `dtype`, and the faster of two
    ways to read 256 MiB of f32 (matrix-vector product, maximum)."""
    import mlx.core as mx

    size = 1024 if mx.default_device() == mx.Device(mx.cpu) else 8192
    side = 8192
    a = mx.random.normal((size, size)).astype(getattr(mx, dtype))
    table, vector = mx.random.normal((side, side)), mx.random.normal((side,))
    mx.eval(a, table, vector)
    product = _best(lambda: mx.eval(a @ a), clock)
    read = min(_best(lambda: mx.eval(table @ vector), clock), _best(lambda: mx.eval(mx.max(table)), clock))
    return Ceilings(2.0 * size**3 / product, 4.0 * side**2 / read, dtype)


def _best(work: Callable[[], None], clock: Callable[[], float], runs: int = 3) -> float:
    work()
    times = []
    for _ in range(runs):
        started = clock()
        work()
        times.append(clock() - started)
    return min(times)
