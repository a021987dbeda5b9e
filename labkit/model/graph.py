"""Graph: an artifact's weights in mlx-lm's own model class, with its tokenizer. Knows no caches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from labkit.core.errors import ModelUnavailable


def load_graph(path: Path) -> tuple[Any, Any]:
    """The mlx-lm model and tokenizer of an artifact directory, exactly as `mlx_lm.load` makes them.

    Raises ModelUnavailable with mlx-lm's own reason where it cannot.
    """
    from mlx_lm.utils import load

    try:
        loaded = load(str(path))
    except Exception as error:
        need = "a model that mlx-lm can load is needed"
        got = f"{path.name}: {type(error).__name__}: {error}"
        raise ModelUnavailable(need, got=got, next_step=f"labkit models show {path.name}") from error
    return loaded[0], loaded[1]
