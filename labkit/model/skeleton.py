"""Skeleton: the model that mlx-lm builds of a config, traced and never computed; no weights are read.

mlx-lm is the oracle, so what the layers of a model are is asked of mlx-lm, not of rules about configs.
Arrays are lazy, so that building takes no memory, and a trace gives shapes without running anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from labkit.core.errors import LabkitError, ModelUnavailable
from labkit.core.spec import CacheShape
from labkit.model.backend import prepare
from labkit.model.dry_run import trace
from labkit.model.upstream_classes import find_classes
from labkit.model.wording import one_line

# Building loops over layers and experts. No model has this many, so a config that says so is damaged.
MOST = 4096
_COUNTS = ("layers", "layer", "experts", "loops")


@dataclass(frozen=True, slots=True)
class Skeleton:
    """What mlx-lm builds of a config.

    module: mlx-lm's module for it. arguments: the text model's settings, defaults filled in.
    caches: the shape of each cache. depth: layers. moe: the layers with experts, by index.
    experts: how many such a layer has, at most. vocab_size: width of the logits, None where not traced.
    quantizes: whether a step runs over quantized caches in place of the plain ones.
    """

    module: str
    arguments: Mapping[str, Any]
    caches: tuple[CacheShape, ...]
    depth: int
    moe: tuple[int, ...]
    experts: int
    vocab_size: int | None
    quantizes: bool


def build_skeleton(config: Mapping[str, Any], dtype: str) -> Skeleton:
    """The skeleton of a config whose weights are of a dtype (f32 where mlx has none of that name).

    Raises ModelUnavailable where mlx-lm has no such architecture, cannot build it or cannot run it here.
    """
    _check_counts(config)
    prepare()
    try:
        model = _build(deepcopy(dict(config)), dtype)
        traced = trace(model)
    except LabkitError:
        raise
    except (Exception, SystemExit) as error:
        raise ModelUnavailable(
            f"a config that mlx-lm can build and run is needed ({one_line(config.get('model_type'), 60)})",
            got=f"{type(error).__name__}: {one_line(error)}",
            next_step="check config.json against the arguments of this model_type in mlx-lm",
        ) from error
    experts = dict(_experts(model))
    return Skeleton(
        module=type(model).__module__.rpartition(".")[2],
        arguments=_arguments(model),
        caches=traced.caches,
        depth=len(model.layers),
        moe=tuple(experts),
        experts=max(experts.values(), default=0),
        vocab_size=traced.vocab_size,
        quantizes=traced.quantizes,
    )


def _build(config: dict[str, Any], dtype: str) -> Any:
    """mlx-lm's model with lazy random weights. It edits nested configs in place, so it gets a copy."""
    import mlx.core as mx

    model_class, arguments_class = find_classes(config)
    model = model_class(arguments_class.from_dict(config))
    own = getattr(mx, dtype, None)
    model.set_dtype(own if isinstance(own, mx.Dtype) else mx.float32)
    return model


def _arguments(model: Any) -> dict[str, Any]:
    """The settings that the model was built with; those of the text model within it count more."""
    found: dict[str, Any] = {}
    module = model
    while module is not None:
        for stated in (getattr(module, name, None) for name in ("args", "config")):
            found |= _stated(stated)
        module = getattr(module, "language_model", None)
    return found | _stated(found.get("text_config"))


def _stated(arguments: Any) -> dict[str, Any]:
    if isinstance(arguments, Mapping):
        pairs = dict(arguments)
    elif is_dataclass(arguments):
        pairs = {field.name: getattr(arguments, field.name) for field in fields(arguments)}
    else:
        pairs = {}
    return {key: value for key, value in pairs.items() if value is not None}


def _experts(model: Any) -> Iterator[tuple[int, int]]:
    """Each layer with experts and how many it has: mlx-lm's switch layers, or a list of modules."""
    from mlx_lm.models.switch_layers import SwitchGLU, SwitchMLP

    for index, layer in enumerate(model.layers):
        counts = [
            module.up_proj.num_experts if isinstance(module, SwitchGLU) else module.fc1.num_experts
            for module in layer.modules()
            if isinstance(module, SwitchGLU | SwitchMLP)
        ]
        counts += [len(m["experts"]) for m in layer.modules() if isinstance(m.get("experts"), list)]
        if counts:
            yield index, max(counts)


def _check_counts(config: Mapping[str, Any]) -> None:
    for key, value in config.items():
        if isinstance(value, Mapping):
            _check_counts(value)
        elif isinstance(value, int) and value > MOST and str(key).endswith(_COUNTS):
            need = f"{one_line(key, 60)} of at most {MOST} was needed in config.json"
            raise ModelUnavailable(need, got=value)
