"""Upstream classes: which of mlx-lm's classes a config means, as mlx-lm itself chooses them."""

from __future__ import annotations

from inspect import signature
from typing import Any


def find_classes(config: dict[str, Any]) -> tuple[Any, Any]:
    """The model class and the class of its arguments. Raises what mlx-lm raises for a model_type it lacks.

    The choice is the default of an argument of `mlx_lm.utils.load_model`, and public in no other way.
    """
    from mlx_lm.utils import load_model

    return signature(load_model).parameters["get_model_classes"].default(config=config)
