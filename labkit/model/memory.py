"""Memory of the device and of this process. Imports mlx only when asked."""

from __future__ import annotations

import psutil


def reset_peak() -> None:
    """Start a new peak of device memory."""
    import mlx.core as mx

    mx.reset_peak_memory()


def peak_metrics() -> dict[str, float]:
    """peak_bytes: device allocations since the reset (mlx leaves its buffer pool out of it).

    footprint_bytes: what the process itself holds, the pool included (USS where the system tells, else RSS).
    """
    import mlx.core as mx

    return {"peak_bytes": float(mx.get_peak_memory()), "footprint_bytes": float(footprint_bytes())}


def footprint_bytes() -> int:
    """Unique set size of this process in bytes, or its resident size where the system hides it."""
    process = psutil.Process()
    try:
        return process.memory_full_info().uss
    except psutil.AccessDenied:
        return process.memory_info().rss
