"""The cells of the batch conformance as data: KV schemes, architectures and shapes; and what runs one.

A shape says how long prompts are, when rows join and when they leave; mlx-lm's batch runs it alike.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.generate import BatchGenerator

from labkit.core.step import Step
from labkit.engine.model import Model
from tests.numerics.batch_rows import OPTIONS, alone, opened, prompt_of
from tests.numerics.rotated_scheme import RotatedScheme
from tests.numerics.tiny_configs import TINY
from tests.numerics.tiny_models import GEMMA3, LLAMA, MAMBA, tiny_model

CHUNK = OPTIONS["prefill_chunk"]
ARCHITECTURES: Mapping[str, dict[str, Any]] = {
    "llama": LLAMA,
    "qwen3": TINY["qwen3"],
    "phi3": TINY["phi3"],
    "qwen3_moe": TINY["qwen3_moe"],
    "gemma3_text": GEMMA3,
    "deepseek_v3": TINY["deepseek_v3"],
    "qwen3_next": TINY["qwen3_next"],
    "mamba": MAMBA,
}
# Bits and groups by layer; keys and values of other bits in the extended form.
MIXED: Sequence[dict[str, int]] = (
    {"layer_idx": 0, "bits": 4, "group_size": 32},
    {"layer_idx": 1, "k_bits": 8, "v_bits": 4, "group_size": 64},
)
# The one of a person's own attends itself and stacks with nothing.
SCHEMES = ("bf16", "affine:8", "affine:4/g32", "affine:8/s16", "affine:8/start44", "mixed", "own")


@dataclass(frozen=True)
class Shape:
    """prompts: their lengths. after: tokens of the first row after which each is opened. tokens: of each row.

    cancels: row -> tokens after which it is cancelled. together: whether all rows begin at one position and
    decode in every forward, so that none is padded.
    """

    prompts: tuple[int, ...]
    after: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    cancels: Mapping[int, int] = field(default_factory=dict)
    together: bool = False

    @property
    def rows(self) -> list[tuple[list[int], int, int]]:
        """Prompt, tokens to decode, and tokens of the first row before it comes, of every row."""
        count = len(self.prompts)
        after, tokens = self.after or (0,) * count, self.tokens or (6,) * count
        prompts = [prompt_of(length, salt=index) for index, length in enumerate(self.prompts)]
        return list(zip(prompts, tokens, after, strict=True))

    def ends(self, index: int) -> int:
        """Tokens that a row decodes before it leaves."""
        return self.cancels.get(index, self.rows[index][1])


# The windows are 32 positions.
SHAPES: Mapping[str, Shape] = {
    "1 row": Shape((40,), together=True),
    "2 rows": Shape((40,) * 2, together=True),
    "3 rows": Shape((21,) * 3, together=True),
    "8 rows": Shape((28,) * 8, together=True),
    "ragged": Shape((5, 40, 23, 17)),
    "8 ragged": Shape((1, 2, 33, 16, 40, 9, 28, 20)),
    "joins": Shape((23, 23, 9), after=(0, 3, 6), tokens=(10, 7, 6)),
    "leaves": Shape((23, 23, 9, 40), tokens=(9, 3, 9, 6), cancels={2: 5}),
    "joins past the window": Shape((45, 20, 60), after=(0, 3, 8), tokens=(12, 14, 6)),
}


@cache
def model_of(architecture: str, dtype: mx.Dtype = mx.bfloat16) -> Model:
    """The tiny model of an architecture."""
    return tiny_model(ARCHITECTURES[architecture], dtype)


def kv_of(scheme: str, folder: Path) -> Any:
    """What `kv=` takes for a scheme of the table."""
    if scheme == "own":
        return RotatedScheme
    if scheme == "mixed":
        path = folder / "kv_config.json"
        path.write_text(json.dumps(MIXED))
        return f"mixed:{path}"
    return scheme


def run_in_batch(model: Model, kv: Any, shape: Shape, **options: Any) -> list[list[Step]]:
    """The decode steps of every row. options: of every session."""
    steps: list[list[Step]] = [[] for _ in shape.prompts]
    # Rows that come at once are read before any decodes, so that they decode together from the first token.
    with model.batch(cap=8, policy="prefill-first") as batch:
        sessions: dict[str, int] = {}
        held = []
        while len(held) < len(shape.prompts) or batch.sessions():
            for prompt, tokens, after in shape.rows[len(held) :]:
                if len(steps[0]) < after:
                    break
                held.append(opened(batch, prompt, kv=kv, max_tokens=tokens, **options))
                sessions[held[-1].name] = len(held) - 1
            batch.turn()
            for index, session in enumerate(held):
                while session.unread:
                    step = session.take()
                    steps[index] += [step] if step is not None and step.tokens else []
                if len(steps[index]) == shape.cancels.get(index):
                    session.cancel()
    return steps


def run_upstream(model: Model, shape: Shape) -> list[list[tuple[int, mx.array]]]:
    """Tokens and log-probabilities `(vocab,)` of mlx-lm's BatchGenerator, rows coming and going alike."""
    found: list[list[tuple[int, mx.array]]] = [[] for _ in shape.prompts]
    # The first prompts are read by themselves, as every prompt of a batch is.
    generator = BatchGenerator(model.graph, prefill_batch_size=1, prefill_step_size=CHUNK)
    running, rows = list[int](), shape.rows
    while len(running) < len(rows) or any(len(f) < shape.ends(i) for i, f in enumerate(found)):
        for prompt, tokens, after in rows[len(running) :]:
            if len(found[0]) < after:
                break
            running += generator.insert([prompt], max_tokens=[tokens])
        for response in generator.next()[1]:
            index = running.index(response.uid)
            found[index].append((response.token, response.logprobs))
            if len(found[index]) == shape.cancels.get(index):
                generator.remove([response.uid])
    generator.close()
    return found


def run_alone(model: Model, kv: Any, shape: Shape, **options: Any) -> list[list[Step]]:
    """The decode steps of every row in a serial session, up to where it is cancelled."""
    return [
        alone(model, prompt, kv=kv, max_tokens=tokens, **options)[: shape.ends(index)]
        for index, (prompt, tokens, _) in enumerate(shape.rows)
    ]
