"""A tiny config for every architecture of mlx-lm's registry, by the name of its module in mlx_lm.models."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from tests.numerics.tiny_dense import DENSE
from tests.numerics.tiny_experts import MIXED
from tests.numerics.tiny_latent import LATENTS
from tests.numerics.tiny_nested import NESTED
from tests.numerics.tiny_recurrent import RECURRENT
from tests.numerics.tiny_windowed import WINDOWED

_ALL = {**DENSE, **MIXED, **WINDOWED, **LATENTS, **RECURRENT, **NESTED}
# Apart from one another: some of mlx-lm's classes write to the configs that they are given.
TINY: Mapping[str, dict[str, Any]] = {name: deepcopy(config) for name, config in _ALL.items()}
# Modules of the registry that have no tiny config, and why.
NOT_SWEPT: Mapping[str, str] = {
    "olmo": "never: mlx-lm's module ends the process unless the package hf_olmo is installed",
}
# Architectures that mlx-lm itself cannot run on a CPU, and why.
METAL_ONLY: Mapping[str, str] = {
    "bitnet": "never on a CPU: mlx-lm multiplies ternary weights with a Metal kernel",
    "muse_spark": "never on a CPU: mlx-lm norms and rotates queries with a Metal kernel",
}
