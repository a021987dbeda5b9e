"""Llama and what shares its tensors: Mistral (says llama), Mixtral (llama with experts), SmolLM3, Granite."""

from __future__ import annotations

from collections.abc import Mapping

from labkit.model.gguf.architecture import Architecture
from labkit.model.gguf.architectures.blocks import (
    ATTENTION_BIAS,
    GATED_MLP,
    INTERLEAVED_ATTENTION,
    MLP_BIAS,
    NORMS,
    OUTER,
    RMS_FIELDS,
    ROPE_FREQS,
    TIED,
    experts,
)
from labkit.model.gguf.metadata import count, real
from labkit.model.gguf.summary import Summary
from labkit.model.gguf.tensor import Config, Tensor

_LAYER = {**NORMS, **INTERLEAVED_ATTENTION, **GATED_MLP}
_SCALINGS = frozenset({"linear", "yarn", "llama3"})

LLAMA = Architecture(
    name="llama",
    fields=RMS_FIELDS,
    constants={"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu"},
    tensors=OUTER,
    layer_tensors=_LAYER,
    options=(TIED, ATTENTION_BIAS, MLP_BIAS, ROPE_FREQS),
    scalings=_SCALINGS,
)

_MOE = "block_sparse_moe"


def _expert(file_name: str, name: str, module: str, shape: tuple[str, str]) -> dict[str, Tensor]:
    """One projection of each expert by itself, as files of 2023 have it; mlx-lm stacks them."""
    target = f"{_MOE}.experts.{{expert}}.{name}.weight"
    return {file_name: Tensor(target, shape, module=f"{_MOE}.switch_mlp.{module}")}


MIXTRAL = Architecture(
    name="llama",
    fields={
        **RMS_FIELDS,
        "num_local_experts": count("expert_count"),
        "num_experts_per_tok": count("expert_used_count"),
    },
    constants={"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_act": "silu"},
    tensors=OUTER,
    layer_tensors={
        **NORMS,
        **INTERLEAVED_ATTENTION,
        "ffn_gate_inp.weight": Tensor(f"{_MOE}.gate.weight", ("num_local_experts", "hidden_size")),
    },
    layouts=(
        experts(f"{_MOE}.switch_mlp", "num_local_experts", "intermediate_size"),
        {
            **_expert("ffn_gate.{expert}.weight", "w1", "gate_proj", ("intermediate_size", "hidden_size")),
            **_expert("ffn_down.{expert}.weight", "w2", "down_proj", ("hidden_size", "intermediate_size")),
            **_expert("ffn_up.{expert}.weight", "w3", "up_proj", ("intermediate_size", "hidden_size")),
        },
    ),
    options=(TIED,),
    experts="num_local_experts",
    free_head=False,
    allowed={"expert_gating_func": (1,), "expert_weights_norm": (True,)},
)


def _no_rope_layers(_: Summary, config: Config) -> Mapping[str, list[int]]:
    """Every fourth layer is not rotated; GGUF files do not say so."""
    return {"no_rope_layers": [int((i + 1) % 4 != 0) for i in range(config["num_hidden_layers"])]}


SMOLLM3 = Architecture(
    name="smollm3",
    fields=RMS_FIELDS,
    constants={"architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3", "hidden_act": "silu"},
    tensors=OUTER,
    layer_tensors=_LAYER,
    options=(TIED, ATTENTION_BIAS, MLP_BIAS),
    scalings=frozenset({"linear", "yarn"}),
    finish=_no_rope_layers,
)

GRANITE = Architecture(
    name="granite",
    fields={
        **RMS_FIELDS,
        "logits_scaling": real("logit_scale"),
        "residual_multiplier": real("residual_scale", 1.0),
        "embedding_multiplier": real("embedding_scale", 1.0),
        "attention_multiplier": real("attention.scale"),
    },
    constants={"architectures": ["GraniteForCausalLM"], "model_type": "granite", "hidden_act": "silu"},
    tensors=OUTER,
    layer_tensors=_LAYER,
    options=(TIED, ATTENTION_BIAS, MLP_BIAS),
    free_head=False,
    scalings=frozenset({"linear", "yarn"}),
    # The switch by which Granite files turn rotation off.
    allowed={"rope.scaling.finetuned": (True,)},
)
