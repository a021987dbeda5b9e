"""The checks ahead of mlx-lm let its whole registry pass, and stop what it would stumble over."""

from __future__ import annotations

import importlib
from copy import deepcopy
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from labkit.core.errors import ModelUnavailable
from labkit.model.arguments import check_arguments
from labkit.model.soundness import check_sound
from labkit.model.tensors import Tensor
from tests.numerics.tiny_configs import TINY

LAYERS = ("num_hidden_layers", "n_layers", "n_layer", "num_layers", "num_transformer_layers")
CODES = {
    mx.float32: "F32",
    mx.float16: "F16",
    mx.uint32: "U32",
    mx.uint8: "U8",
    mx.int32: "I32",
    mx.int64: "I64",
}


def tensors_of(model: Any) -> dict[str, Tensor]:
    """What a file of the model would hold; nothing is computed."""
    parameters: Any = tree_flatten(model.parameters())
    return {
        name: Tensor(name, CODES[array.dtype], array.shape, Path("x"), 0, array.nbytes)
        for name, array in parameters
    }


def built(module: Any, config: dict[str, Any]) -> Any:
    """The model of a config, which some of mlx-lm's classes write to."""
    return module.Model(module.ModelArgs.from_dict(deepcopy(config)))


@pytest.mark.parametrize("name", TINY)
def test_a_sound_model_of_every_architecture_passes(name: str) -> None:
    module = importlib.import_module(f"mlx_lm.models.{name}")
    config = TINY[name]
    check_arguments(config, module.ModelArgs)
    check_sound(tensors_of(built(module, config)), config)


@pytest.mark.parametrize("name", TINY)
def test_absurd_layers_are_refused_in_every_architecture(name: str) -> None:
    module = importlib.import_module(f"mlx_lm.models.{name}")
    config = TINY[name]
    tensors = tensors_of(built(module, config))
    nested = config.get("text_config")
    part = nested if isinstance(nested, dict) else config
    keys = [k for k in LAYERS if k in part]
    assert keys
    damaged = {**part, **dict.fromkeys(keys, 10**9)}
    with pytest.raises(ModelUnavailable, match="must fit the weights"):
        check_sound(tensors, {**config, "text_config": damaged} if nested else damaged)
