"""An architecture of GGUF files as data, and what it makes of one file: a config and a list of weights.

Knows how tables are read; the tables themselves are in `architectures`. The oracle of every mapping is
mlx-lm's model of the same name: the config is what it reads, the names are those its `sanitize` leaves alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from labkit.core.errors import ModelUnavailable
from labkit.model.gguf import rope
from labkit.model.gguf.metadata import Field, count, refused, uniform
from labkit.model.gguf.summary import Summary
from labkit.model.gguf.tensor import Config, Tensor, Weight
from labkit.model.wording import first_names

EMBEDDING = "token_embd.weight"
_EACH = "{expert}"
_WINDOW = "attention.sliding_window"
# A file without some of its tensors is told which; one without more than half, that its counts are wrong.
_MOST_MISSING = 2
# Of no effect on the numbers of a language model, or stated a second time by its tensors.
_SILENT = frozenset(
    {
        "vocab_size",
        "pooling_type",
        "tensor_data_layout",
        "use_parallel_residual",
        "attention.layer_norm_epsilon",
        "attention.layer_norm_rms_epsilon",
    }
)
# What no mapping imports unless its own tables say so, with the values that change nothing.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "attention.causal": (True,),
    "attention.clamp_kqv": (0.0,),
    "attention.max_alibi_bias": (0.0,),
    "attn_logit_softcapping": (0.0,),
    "final_logit_softcapping": (0.0,),
    "expert_count": (0,),
    "expert_used_count": (0,),
    "expert_shared_count": (0,),
    "expert_group_count": (0, 1),
    "expert_group_used_count": (0, 1),
    "expert_weights_scale": (0.0, 1.0),
    "leading_dense_block_count": (0,),
    "nextn_predict_layers": (0,),
    "rope.scaling.finetuned": (True, False),
}


@dataclass(frozen=True, slots=True)
class Option:
    """Tensors that a file has all of (in every layer) or none of, and what either says in the config."""

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    layer_tensors: Mapping[str, Tensor] = field(default_factory=dict)
    present: Mapping[str, Any] = field(default_factory=dict)
    absent: Mapping[str, Any] = field(default_factory=dict)


class _Place(NamedTuple):
    """A row of a table in one layer, whose new names begin with `prefix`, for one expert."""

    tensor: Tensor
    prefix: str = ""
    expert: int = 0

    def weight(self, config: Config) -> Weight:
        return self.tensor.weight(config, self.prefix, self.expert)


@dataclass(frozen=True, slots=True)
class Architecture:
    """One value of `general.architecture`.

    fields: config entry -> the number's Field, in order: a default may name an earlier entry.
    constants: config entries that the file does not hold. free_head: whether mlx-lm's model takes a head
    size other than hidden / heads. partial_rotary: whether only a part of a head may be rotated.
    tensors, layer_tensors: names in the file, the latter below `blk.N.`; `{expert}` stands for each expert
    (their number is the config entry `experts`). layouts: alternatives of further layer tensors.
    layers: prefix of a layer's names in the model directory. scalings: see `rope_scaling`.
    allowed: metadata keys and the values under which the import is right; an absent key is right.
    known: further metadata keys that `finish` reads. finish: the last word on the config.
    windowless: whether mlx-lm's model leaves a stated window out, so that its context has to end with it.
    """

    name: str
    fields: Mapping[str, Field]
    constants: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    layer_tensors: Mapping[str, Tensor]
    layouts: Sequence[Mapping[str, Tensor]] = ()
    options: Sequence[Option] = ()
    layers: str = "model.layers."
    experts: str = ""
    free_head: bool = True
    partial_rotary: bool = False
    scalings: frozenset[str] = frozenset()
    allowed: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    known: frozenset[str] = frozenset()
    finish: Callable[[Summary, Config], Mapping[str, Any]] | None = None
    windowless: bool = False

    def config(self, summary: Summary) -> dict[str, Any]:
        """The model's config, less token ids and dtype.

        Raises ModelUnavailable, by name and value, for metadata that is missing, unknown, out of range, at
        odds with the rest, or that mlx-lm would compute differently within the config's context. That
        context is the file's, or a shorter window that mlx-lm leaves out: see `cut`.
        """
        self._check_metadata(summary.metadata)
        config: dict[str, Any] = dict(self.constants)
        for key, number in self.fields.items():
            config[key] = number.read(self.name, summary.metadata, config)
        self._check_counts(summary, config)
        config["max_position_embeddings"] -= self.cut(summary.metadata, config)
        config |= {"vocab_size": _vocabulary(summary), **self._heads(summary.metadata, config)}
        for option in self.options:
            config |= option.present if self._has(summary, option) else option.absent
        config |= rope.rope_scaling(self.name, summary, config, self.scalings)
        if self.finish:
            config |= self.finish(summary, config)
        self._check_window(summary.metadata, config)
        return config

    def cut(self, metadata: Mapping[str, Any], config: Config) -> int:
        """Tokens of the file's context beyond the window, where mlx-lm's model leaves it out; else 0.

        config: with the numbers of `fields`. Up to the window, attention with it and without it is the same.
        """
        window = config.get("sliding_window")
        if not self.windowless or not metadata.get(f"{self.name}.{_WINDOW}", window):
            return 0
        ends = (self.fields["max_position_embeddings"], count(_WINDOW, window))
        context, window = (number.read(self.name, metadata, config) for number in ends)
        return max(0, int(context) - int(window))

    def weights(self, summary: Summary, config: Config) -> dict[str, Weight]:
        """The file's tensors in its order -> what becomes of them. No data is read.

        Raises ModelUnavailable for tensors that are missing, unknown or of another shape, by name.
        """
        expected = dict(self._expected(summary, config))
        missing = [n for n in expected if n not in summary.shapes]
        unknown = [n for n in summary.shapes if n not in expected]
        if missing or unknown:
            parts = [f"{label} {first_names(n)}" for label, n in (("no", missing), ("unknown", unknown)) if n]
            raise ModelUnavailable(
                f"exactly the tensors of a {self.name} model were needed", got="; ".join(parts)
            )
        for name, place in expected.items():
            needed, got = place.tensor.file_shape(config), tuple(summary.shapes[name])
            if needed != got:
                raise ModelUnavailable(
                    f"a tensor that fits the config was needed: {name} {list(needed)}", got=list(got)
                )
        return {name: expected[name].weight(config) for name in summary.shapes}

    def _expected(self, summary: Summary, config: Config) -> Iterator[tuple[str, _Place]]:
        outer, layer = self._tables(summary)
        for name, tensor in outer.items():
            yield name, _Place(tensor)
        for i in range(config["num_hidden_layers"]):
            for name, tensor in layer.items():
                for expert in range(config[self.experts] if _EACH in name else 1):
                    place = _Place(tensor, f"{self.layers}{i}.", expert)
                    yield f"blk.{i}.{name.format(expert=expert)}", place

    def _tables(self, summary: Summary) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The rows outside of layers and those of every layer, with the options that the file has."""
        found = [option for option in self.options if self._has(summary, option)]
        outer, layer = dict(self.tensors), dict(self.layer_tensors)
        for option in found:
            outer |= option.tensors
            layer |= option.layer_tensors
        return outer, layer | dict(self._layout(summary))

    def _layout(self, summary: Summary) -> Mapping[str, Tensor]:
        """The alternative of which the file has a tensor, else the first."""
        found = [t for t in self.layouts if any(_in_layers(summary, n.format(expert=0)) for n in t)]
        return next(iter([*found, *self.layouts]), {})

    def _has(self, summary: Summary, option: Option) -> bool:
        named = any(name in summary.shapes for name in option.tensors)
        return named or any(_in_layers(summary, name) for name in option.layer_tensors)

    def _check_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Every key below the prefix is read by someone, or has a value that changes nothing."""
        allowed = {**_NEUTRAL, **self.allowed}
        read = {f.key for f in self.fields.values()} | _SILENT | rope.KEYS | self.known
        read |= {"attention.key_length", "attention.value_length", "rope.dimension_count", _WINDOW}
        for full, value in metadata.items():
            key = full.removeprefix(f"{self.name}.")
            if key == full or key in read:
                continue
            if uniform(value) not in allowed.get(key, ()):
                raise refused(full, value, allowed.get(key, ()), "use a safetensors version of the model")

    def _check_counts(self, summary: Summary, config: Config) -> None:
        """Counts that the file's tensors contradict are refused before a name is made of them."""
        outer, layer = self._tables(summary)
        layers, for_each = config["num_hidden_layers"], sum(_EACH in name for name in layer)
        experts = config[self.experts] if for_each else 1
        needed = len(outer) + layers * (len(layer) - for_each + for_each * experts)
        held = len(summary.shapes)
        if needed > _MOST_MISSING * held:
            entry, value = ("num_hidden_layers", layers) if layers > experts else (self.experts, experts)
            stated = f"{value}, which makes {needed} tensors"
            raise refused(f"{self.name}.{self.fields[entry].key}", stated, (f"at most the file's {held}",))
        used = config.get("num_experts_per_tok", 0)
        if self.experts and used > config[self.experts]:
            raise refused(
                f"{self.name}.expert_used_count", used, (f"at most {config[self.experts]} experts",)
            )

    def _heads(self, metadata: Mapping[str, Any], config: Config) -> dict[str, Any]:
        """head_dim and, where only a part of a head is rotated, partial_rotary_factor."""
        hidden, heads, kv_heads = (
            config[k] for k in ("hidden_size", "num_attention_heads", "num_key_value_heads")
        )
        if heads % kv_heads:
            raise refused(f"{self.name}.attention.head_count_kv", kv_heads, (f"a divisor of {heads}",))
        share = max(1, hidden // heads)
        whole = (
            share
            if self.partial_rotary
            else count("rope.dimension_count", share).read(self.name, metadata, {})
        )
        head = count("attention.key_length", whole).read(self.name, metadata, {})
        if head % 2 or (head * heads != hidden and not self.free_head):
            options = ("an even number",) if self.free_head else (f"{hidden} / {heads}, and even",)
            raise refused(f"{self.name}.attention.key_length", head, options)
        rotated = count("rope.dimension_count", head).read(self.name, metadata, {})
        value = count("attention.value_length", head).read(self.name, metadata, {})
        if value != head:
            raise refused(f"{self.name}.attention.value_length", value, (head,))
        if rotated % 2 or rotated > head or (rotated != head and not self.partial_rotary):
            raise refused(f"{self.name}.rope.dimension_count", rotated, (head,))
        partial = {"partial_rotary_factor": _share(int(rotated), int(head))} if self.partial_rotary else {}
        return {"head_dim": head, **partial}

    def _check_window(self, metadata: Mapping[str, Any], config: Config) -> None:
        """A window that the config does not state and that the context can pass is refused."""
        window = uniform(metadata.get(f"{self.name}.{_WINDOW}", 0))
        if window == 0 or window == config.get("sliding_window"):
            return
        context = config["max_position_embeddings"]
        if not isinstance(window, int) or window < context:
            options = (0, f"at least the context of {context}")
            raise refused(f"{self.name}.{_WINDOW}", window, options)


def _vocabulary(summary: Summary) -> int:
    shape = summary.shapes.get(EMBEDDING, ())
    if not shape:
        raise ModelUnavailable("the tensors of a language model were needed", got=f"no {EMBEDDING}")
    return shape[0]


def _in_layers(summary: Summary, name: str) -> bool:
    return any(n.startswith("blk.") and n.split(".", 2)[-1] == name for n in summary.shapes)


def _share(part: int, whole: int) -> float:
    """The factor of which mlx-lm's `int(factor * whole)` is exactly `part`."""
    factor = part / whole
    return factor if int(factor * whole) == part else (part + 0.5) / whole
