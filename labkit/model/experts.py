"""Experts: whether this device can multiply a model's expert weights as they are stored."""

from __future__ import annotations

from typing import Any

from labkit.core.errors import ModelUnavailable


def check_experts(graph: Any, name: str) -> None:
    """Raise ModelUnavailable for unpacked experts that a CPU cannot run: MLX's gather_mm takes f32 there.

    Without it the first prefill would fail, in mlx-lm too (MLX 0.32.4).
    """
    import mlx.core as mx
    from mlx_lm.models.switch_layers import SwitchLinear

    for path, module in graph.named_modules():
        if isinstance(module, SwitchLinear) and module.weight.dtype != mx.float32:
            dtype = str(module.weight.dtype).rpartition(".")[2]
            raise ModelUnavailable(
                "expert weights in float32, or quantized, are needed on a CPU",
                got=f"{name}: {dtype} in {path}",
                next_step="labkit models get MODEL --dtype float32",
            )
