"""Which table is a file's: found by `general.architecture`, and by the experts for what says llama."""

from __future__ import annotations

from collections.abc import Mapping

from labkit.core.errors import ModelUnavailable
from labkit.model.gguf.architecture import Architecture
from labkit.model.gguf.architectures.cohere import COHERE2, COMMAND_R
from labkit.model.gguf.architectures.exaone import EXAONE
from labkit.model.gguf.architectures.gemma import GEMMA, GEMMA2, GEMMA3
from labkit.model.gguf.architectures.llama import GRANITE, LLAMA, MIXTRAL, SMOLLM3
from labkit.model.gguf.architectures.olmo2 import OLMO2
from labkit.model.gguf.architectures.phi3 import PHI3
from labkit.model.gguf.architectures.qwen import QWEN2, QWEN2_MOE, QWEN3, QWEN3_MOE
from labkit.model.gguf.architectures.stablelm import STABLELM
from labkit.model.gguf.architectures.starcoder2 import STARCODER2
from labkit.model.gguf.metadata import refused
from labkit.model.gguf.summary import Summary
from labkit.model.wording import one_line

_LISTED = (
    *(LLAMA, QWEN2, QWEN2_MOE, QWEN3, QWEN3_MOE, GEMMA, GEMMA2, GEMMA3, PHI3, OLMO2, COMMAND_R, COHERE2),
    *(STABLELM, STARCODER2, SMOLLM3, GRANITE, EXAONE),
)
ARCHITECTURES: Mapping[str, Architecture] = {a.name: a for a in _LISTED}


def architecture_of(summary: Summary) -> Architecture:
    """The table for a file. Raises ModelUnavailable, by name, for one that is none of the known ones."""
    kind = summary.metadata.get("general.type", "model")
    if kind != "model":
        raise refused("general.type", kind, ("model",))
    name = str(summary.metadata.get("general.architecture", ""))
    if name not in ARCHITECTURES:
        raise ModelUnavailable(
            "a GGUF architecture that labkit imports was needed",
            got=one_line(name) if name else "none stated",
            options=sorted(ARCHITECTURES),
            next_step="use a safetensors version of the model: a directory or a hub id",
        )
    has_experts = bool(summary.metadata.get(f"{name}.expert_count"))
    return MIXTRAL if name == LLAMA.name and has_experts else ARCHITECTURES[name]
