"""Graph: an artifact's weights in mlx-lm's own model class, with its tokenizer. Knows no caches."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from labkit.core.errors import LabkitError, ModelUnavailable
from labkit.model.arguments import check_arguments
from labkit.model.backend import prepare
from labkit.model.soundness import check_directory
from labkit.model.upstream_classes import find_classes
from labkit.model.wording import first_names, one_line

_MODEL = (
    "a model that mlx-lm can load is needed",
    "fetch the model again, or check config.json against the weights",
)
_TOKENIZER = ("a tokenizer that mlx-lm can load is needed", "fetch the tokenizer's files again")
_LISTED = re.compile(r"(?P<what>(Missing|Received) \d+ parameters[^:]*):\s*(?P<names>.+)", re.DOTALL)


def load_graph(path: Path, *, lazy: bool = False) -> tuple[Any, Any]:
    """The mlx-lm model and tokenizer of an artifact directory, as `mlx_lm.load` makes them.

    lazy: build and check everything, but read no weights. Raises ModelUnavailable with one message for a
    directory that is damaged, that mlx-lm cannot load, or whose config has types that mlx-lm would not
    notice before a step fails.
    """
    check_directory(path)
    prepare()
    from mlx_lm.utils import load_model, load_tokenizer

    from labkit.model.attention import bind_attention

    with _one_message(path, *_MODEL):
        model, config = load_model(path, lazy=lazy, get_model_classes=_checked_classes)
    with _one_message(path, *_TOKENIZER):
        # Otherwise transformers would ask on the terminal whether to run Python of the model's.
        own = {"trust_remote_code": False}
        tokenizer = load_tokenizer(path, own, eos_token_ids=config.get("eos_token_id", None))
    _check_tokenizer(path, tokenizer)
    bind_attention(model)
    return model, tokenizer


def _checked_classes(config: dict[str, Any]) -> tuple[Any, Any]:
    """mlx-lm's own choice of classes, refused where the config does not have the types of its arguments."""
    model_class, arguments_class = find_classes(config)
    check_arguments(config, arguments_class)
    return model_class, arguments_class


def _check_tokenizer(path: Path, tokenizer: Any) -> None:
    """A tokenizer that was built of nothing, since its files are absent, gives no tokens."""
    with _one_message(path, *_TOKENIZER):
        tokens = tokenizer.encode("a b", add_special_tokens=False)
    if not tokens:
        raise ModelUnavailable(
            "a tokenizer with a vocabulary was needed in the model directory",
            got=f"{path.name}: text becomes no tokens",
            next_step="fetch the tokenizer's files (tokenizer.json or tokenizer.model) too",
        )


@contextmanager
def _one_message(path: Path, need: str, next_step: str) -> Iterator[None]:
    """Turn whatever mlx-lm and the tokenizer raise into one message; some architectures even exit."""
    try:
        yield
    except LabkitError:
        raise
    except (Exception, SystemExit) as error:
        raise ModelUnavailable(
            need, got=f"{one_line(path.name, 60)}: {_reason(error)}", next_step=next_step
        ) from error


def _reason(error: BaseException) -> str:
    """The error in one line; of a list of parameters the first names."""
    listed = _LISTED.search(str(error))
    if listed:
        names = [name for name in re.split(r"[,\s]+", listed["names"].rstrip(".")) if name]
        return f"{listed['what'].lower()}: {first_names(names)}"
    return f"{type(error).__name__}: {one_line(error)}"
