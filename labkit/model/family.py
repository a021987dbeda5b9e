"""Family: the name that variants of one model share, so that the frontier compares like with like."""

from __future__ import annotations

import re

_VARIANT = re.compile(
    r"(?:mlx|gguf|ggml|hf|bf16|fp?16|fp?32|fp8|float16|float32|bfloat16|i?q\d\w*|int\d|\d+(?:\.\d+)?-?bits?|"
    r"mxfp\d|nvfp\d|gptq|awq|dwq|optiq|imat|imatrix|mixed|affine|[kms])"
)


def family_of(name: str) -> str:
    """A model's name in lower case without its owner and without endings that name a number format.

    `mlx-community/Qwen3-0.6B-4bit` and `Qwen3-0.6B.Q4_K_M` are both `qwen3-0.6b`.
    """
    base = name.rstrip("/").rsplit("/", 1)[-1].lower()
    words = re.split(r"([-_.])", base)
    while len(words) > 2 and _VARIANT.fullmatch(words[-1]):
        words = words[:-2]
    return "".join(words)
