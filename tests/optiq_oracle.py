"""mlx-optiq's mixed KV cache as an oracle, in a process of its own, since importing it patches mlx-lm.

`python -m tests.optiq_oracle CASES.json OUT.npz` runs every case with `optiq.serve.install_mixed_kv` and
mlx-lm's `generate_step`: tokens and log-probabilities. It needs mlx-optiq 0.7.7:
`pip install --no-deps --target FOLDER mlx-optiq==0.7.7` and LABKIT_OPTIQ=FOLDER, since with its dependencies
it asks for transformers below 5.13, which labkit is beyond.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

VERSION = "0.7.7"
ROOT = Path(__file__).parents[1]
MISSING = f"mlx-optiq {VERSION} is not there: pip install --no-deps --target FOLDER, and LABKIT_OPTIQ=FOLDER"


@dataclass(frozen=True)
class Case:
    """model: the name of a tiny config, run in bf16, or a model directory. layers: (layer, bits, group)."""

    model: str
    layers: tuple[tuple[int, int, int], ...]
    prompt: tuple[int, ...]
    chunk: int
    tokens: int
    start: int = 0


@dataclass(frozen=True)
class Answer:
    """logprobs: one row a token, in f32."""

    tokens: list[int]
    logprobs: np.ndarray

    def digest(self) -> str:
        return hashlib.sha256(np.ascontiguousarray(self.logprobs).tobytes()).hexdigest()


def available() -> bool:
    """Whether mlx-optiq can be asked here."""
    return bool(os.environ.get("LABKIT_OPTIQ")) or importlib.util.find_spec("optiq") is not None


def ask(cases: Sequence[Case]) -> list[Answer]:
    """What mlx-optiq gives for these cases."""
    with tempfile.TemporaryDirectory() as folder:
        asked, given = Path(folder) / "cases.json", Path(folder) / "answers.npz"
        asked.write_text(json.dumps([asdict(case) for case in cases]))
        paths = [str(ROOT), os.environ.get("LABKIT_OPTIQ", ""), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        command = [sys.executable, "-m", "tests.optiq_oracle", str(asked), str(given)]
        subprocess.run(command, check=True, env=environment, cwd=ROOT, capture_output=True, text=True)
        with np.load(given) as found:
            return [Answer(found[f"t{i}"].tolist(), found[f"l{i}"]) for i in range(len(cases))]


def _graph(model: str) -> Any:
    """A graph that labkit's seam does not touch."""
    import mlx.core as mx
    from mlx_lm.utils import load_model

    from tests.numerics.tiny_configs import TINY
    from tests.numerics.tiny_models import tiny_graph

    with _without_seam():
        return tiny_graph(TINY[model], mx.bfloat16) if model in TINY else load_model(Path(model))[0]


@contextmanager
def _without_seam() -> Iterator[None]:
    from tests.numerics import tiny_models

    bind, tiny_models.bind_attention = tiny_models.bind_attention, lambda graph: None
    try:
        yield
    finally:
        tiny_models.bind_attention = bind


def _answer(case: Case) -> Answer:
    import mlx.core as mx
    from mlx_lm.generate import generate_step
    from optiq.serve import _LayerQuantConfig, install_mixed_kv  # type: ignore[import-not-found]

    graph = _graph(case.model)
    install_mixed_kv([_LayerQuantConfig(*layer) for layer in case.layers], case.start)
    steps = generate_step(
        mx.array(case.prompt),
        graph,
        max_tokens=case.tokens,
        prefill_step_size=case.chunk,
        kv_bits=8,
        quantized_kv_start=case.start,
    )
    pairs = [(int(token), np.array(logprobs.astype(mx.float32))) for token, logprobs in steps]
    return Answer([token for token, _ in pairs], np.stack([logprobs for _, logprobs in pairs]))


def _run(asked: Path, given: Path) -> None:
    from labkit.model.backend import prepare

    prepare()
    arrays: dict[str, Any] = {}
    for index, data in enumerate(json.loads(asked.read_text())):
        data["layers"] = tuple(tuple(layer) for layer in data["layers"])
        answer = _answer(Case(**data))
        arrays |= {f"t{index}": np.array(answer.tokens), f"l{index}": answer.logprobs}
    np.savez(given, **arrays)


if __name__ == "__main__":
    _run(Path(sys.argv[1]), Path(sys.argv[2]))
