"""QuantRecipe: how a model is to be quantized, as data that round-trips through TOML. Names no model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from typing import Any, Literal

import tomlkit
from tomlkit.exceptions import TOMLKitError

from labkit.core.canonical import digest, stated
from labkit.quant.packing import Packing, QuantizationRefused

Indivisible = Literal["refuse", "keep"]


@dataclass(frozen=True, slots=True)
class LayerRule:
    """What differs for the layers whose path fits a pattern, such as `*.mlp.down_proj` or `lm_head`.

    pattern: as in `fnmatch`, over the whole path of mlx-lm's module. keep: leave the weights as they are.
    A number that is not stated is the recipe's, or the usual one of `mode` where the rule states a mode.
    """

    pattern: str
    keep: bool = False
    mode: str | None = None
    bits: int | None = None
    group_size: int | None = None

    def __post_init__(self) -> None:
        _check_types(self, {"pattern": str, "keep": bool, "mode": str, "bits": int, "group_size": int})
        states = any(v is not None for v in (self.mode, self.bits, self.group_size))
        if not self.pattern or self.keep == states:
            need = "a pattern, and either keep or a mode, bits or group_size were needed in a layer rule"
            raise QuantizationRefused(need, got=self)

    def packing(self, default: Packing) -> Packing:
        """Of the layers that the rule is for; raises QuantizationRefused where MLX has no such packing."""
        if self.mode is not None and self.mode != default.mode:
            return Packing.of(self.mode, self.bits, self.group_size)
        return Packing(
            default.mode,
            default.bits if self.bits is None else self.bits,
            default.group_size if self.group_size is None else self.group_size,
        )


@dataclass(frozen=True, slots=True)
class QuantRecipe:
    """method: the name of a quantizer. bits, group_size: None takes the usual ones of `mode`.

    layers: rules, of which the last that fits a layer counts. indivisible: whether a layer whose rows the
    group size does not divide is refused, or kept and named in the artifact. seed: of what a method draws.
    options: a method's own settings, by the names that its SPEC lists.
    """

    method: str = "round"
    mode: str = "affine"
    bits: int | None = None
    group_size: int | None = None
    layers: tuple[LayerRule, ...] = ()
    indivisible: Indivisible = "refuse"
    seed: int = 0
    options: Mapping[str, bool | int | float | str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kinds = {"method": str, "mode": str, "bits": int, "group_size": int, "indivisible": str, "seed": int}
        _check_types(self, kinds)
        if self.indivisible not in ("refuse", "keep"):
            need = "what to do with indivisible layers was needed"
            raise QuantizationRefused(need, got=self.indivisible, options=("refuse", "keep"))
        wrong = [k for k, v in self.options.items() if type(v) not in (bool, int, float, str)]
        if wrong:
            raise QuantizationRefused("options of plain values were needed", got=", ".join(wrong))
        object.__setattr__(self, "layers", tuple(self.layers))
        default = self.packing
        for rule in self.layers:
            rule.packing(default)

    @property
    def packing(self) -> Packing:
        """Of every layer that no rule is for."""
        return Packing.of(self.mode, self.bits, self.group_size)

    def rule(self, path: str) -> LayerRule | None:
        """The last rule that fits a module's path."""
        return next((r for r in reversed(self.layers) if fnmatchcase(path, r.pattern)), None)

    def hash(self) -> str:
        """16 hex digits of what is stated; a field that is added later does not change it."""
        return digest(self.identity())

    def identity(self) -> dict[str, Any]:
        """Plain JSON and TOML data without what is at its default; `method` and `mode` always."""
        layers = [stated(rule) for rule in self.layers]
        own = {"method": self.method, "mode": self.mode, **stated(self), "options": dict(self.options)}
        return {k: v for k, v in {**own, "layers": layers}.items() if v not in ([], {})}

    def to_toml(self) -> str:
        """The text that `from_toml` reads back to an equal recipe."""
        return tomlkit.dumps(self.identity())

    @classmethod
    def from_toml(cls, text: str) -> QuantRecipe:
        """Raises QuantizationRefused for what is no TOML, an unknown key, or a value of another type."""
        try:
            data = tomlkit.parse(text).unwrap()
        except TOMLKitError as error:
            raise QuantizationRefused("a recipe in TOML was needed", got=str(error)) from error
        return cls.from_identity(data)

    @classmethod
    def from_identity(cls, data: Mapping[str, Any]) -> QuantRecipe:
        """The recipe of an `identity`. Raises QuantizationRefused as `from_toml` does."""
        layers, options = data.get("layers", []), data.get("options", {})
        if not isinstance(layers, list) or not isinstance(options, Mapping):
            raise QuantizationRefused("a list `layers` and a table `options` were needed", got=dict(data))
        rules = tuple(LayerRule(**_known(LayerRule, rule)) for rule in layers)
        return cls(**{**_known(cls, data), "layers": rules})


def _known(kind: type[Any], data: Any) -> dict[str, Any]:
    """The fields of a dataclass from a mapping that holds no others."""
    names = [f.name for f in fields(kind)]
    strange = sorted(set(data) - set(names)) if isinstance(data, Mapping) else [repr(data)]
    if strange or (kind is LayerRule and "pattern" not in data):
        need = f"the keys of a {kind.__name__} were needed"
        raise QuantizationRefused(need, got=", ".join(strange) or "no pattern", options=names)
    return dict(data)


def _check_types(instance: Any, kinds: Mapping[str, type]) -> None:
    """Raise QuantizationRefused for a field of another type: True is no number, None only a default."""
    for f in fields(instance):
        value, kind = getattr(instance, f.name), kinds.get(f.name)
        if kind and type(value) is not kind and (value is not None or f.default is not None):
            raise QuantizationRefused(f"{f.name} of type {kind.__name__} was needed", got=repr(value))
