"""What mlx-optiq is asked on tiny bf16 models, and what it answered.

bf16 does not pass through a BLAS, so the bits are those of MLX itself on one kind of processor.
`LABKIT_OPTIQ=FOLDER python -m tests.numerics.mixed_cases` asks again and writes the answers down.
"""

from __future__ import annotations

import json
import platform
import random
from importlib import metadata
from pathlib import Path
from typing import Any

from tests.optiq_oracle import VERSION, Case, ask

FILE = Path(__file__).with_name("mixed_answers.json")
# Every width that MLX has, and two group sizes.
STORED = ((8, 64), (4, 32), (6, 64), (3, 32), (5, 64), (2, 32), (8, 32))
# Kinds of caches: all full; sliding first and last, in three proportions; recurrent beside sliding.
CACHES = {
    "llama": (0, 1),
    "qwen3": (0, 1),
    "gemma3_text": (0, 1, 2),
    "olmo3": (0, 1),
    "cohere2": (0, 1, 2, 3),
    "ministral3": (0, 1),
    "recurrent_gemma": (2,),
}
# The windows are of 32: prompts of a token, within, up to and past them; the start within the prompt, at a
# chunk's end and while decoding.
SHAPES = ((1, 16, 0), (20, 16, 0), (30, 16, 0), (50, 16, 0), (50, 2048, 0), (20, 16, 24), (50, 16, 32))
TOKENS = 8


def cases() -> list[Case]:
    found = []
    for model, caches in CACHES.items():
        stored = tuple((layer, *STORED[(2 * layer + 1) % len(STORED)]) for layer in caches)
        for length, chunk, start in SHAPES:
            found.append(Case(model, stored, _prompt(length), chunk, TOKENS, start))
        # The first is not listed and keeps the model's own cache.
        if len(stored) > 1:
            found.append(Case(model, stored[1:], _prompt(40), 16, TOKENS))
    return found


def name(case: Case) -> str:
    first = "" if case.layers[0][0] in (0, 2) else "-not-the-first"
    return f"{case.model}-{len(case.prompt)}-by-{case.chunk}-from-{case.start}{first}"


def made_on() -> dict[str, str]:
    """What decides the bits."""
    return {
        "mlx": metadata.version("mlx"),
        "mlx-lm": metadata.version("mlx-lm"),
        "machine": platform.machine(),
    }


def answers() -> dict[str, Any]:
    return json.loads(FILE.read_text())


def _prompt(length: int) -> tuple[int, ...]:
    source = random.Random(length)
    return tuple(source.randrange(256) for _ in range(length))


def _write() -> None:
    asked = cases()
    found = {
        name(case): {"tokens": answer.tokens, "sha256 of logprobs": answer.digest()}
        for case, answer in zip(asked, ask(asked), strict=True)
    }
    made = {"mlx-optiq": VERSION, **made_on()}
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in found.items())
    FILE.write_text(f'{{"made on": {json.dumps(made)},\n"answers": {{\n{lines}\n}}}}\n')


if __name__ == "__main__":
    _write()
