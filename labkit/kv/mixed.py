"""The `mixed` scheme: bits and group size per layer, as mlx-optiq's kv_config.json lists them."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from labkit.core.spec import KVSpec
from labkit.kv.affine import Affine


class Mixed(Affine):
    """What `affine` does, layer by layer; a layer that is not listed keeps the model's own cache."""

    SPEC: ClassVar[KVSpec] = replace(
        Affine.SPEC,
        family="mixed",
        summary="affine quantized keys and values, bits and group size per layer",
        oracle="mlx-optiq install_mixed_kv",
        oracles={},
        file=True,
    )
