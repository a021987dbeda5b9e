"""Row bytes in closed form against what real caches have allocated, moment by moment."""

from __future__ import annotations

import mlx.core as mx
import pytest

from labkit.core.kv_setting import KVSetting, LayerKV
from labkit.engine.model import Model
from labkit.kv.affine import Affine
from labkit.kv.plain import Plain
from labkit.model.row_bytes import STEP, row_bytes_at, row_bytes_most
from labkit.model.stored import stored
from tests.numerics.tiny_models import GEMMA3, LLAMA, MAMBA, tiny_model

WIDE_WINDOW = {**GEMMA3, "sliding_window": 300}
CONFIGS = {"llama": LLAMA, "gemma3": GEMMA3, "wide window": WIDE_WINDOW, "mamba": MAMBA}
EIGHT, SPLIT = LayerKV(8, 8, 64), LayerKV(8, 4, 32, short=True)
NEW = 4


def settings(model: Model) -> dict[str, KVSetting]:
    depth = len(model.profile.layers)
    return {
        "plain": KVSetting("bf16"),
        "affine": KVSetting("affine", (EIGHT,) * depth),
        "from 100": KVSetting("affine", (EIGHT,) * depth, start=100),
        "split": KVSetting("affine", (SPLIT,) * depth),
        "mixed": KVSetting("affine", (EIGHT, None, *[SPLIT] * (depth - 2))),
    }


def allocated(model: Model, setting: KVSetting, prompt: int, chunk: int) -> list[int]:
    """Bytes of the caches around every forward of a row, before and after they settle."""
    scheme = Plain(setting) if setting.family == "bf16" else Affine(setting)
    caches, found, read = scheme.make(model.graph), [], 0
    while read < prompt + NEW - 1:
        fed = min(chunk, prompt - 1 - read) if read < prompt - 1 else 1
        mx.eval(model.graph(mx.arange(fed)[None] % 200, cache=caches))
        found.append(sum(cache.nbytes for cache in caches))
        scheme.settle(caches)
        found.append(sum(cache.nbytes for cache in caches))
        read += fed
    return found


@pytest.mark.parametrize("chunk", [64, 256])
@pytest.mark.parametrize("prompt", [1, 30, 257, 600])
@pytest.mark.parametrize("name", CONFIGS)
def test_bytes_are_those_of_real_caches(name: str, prompt: int, chunk: int) -> None:
    """Too many by at most 255 positions of a cache that ends within a step; none by too few."""
    model = tiny_model(CONFIGS[name], mx.bfloat16 if prompt == 30 else mx.float32)
    for setting in settings(model).values():
        if name == "mamba" and setting.layers:
            continue
        real = allocated(model, setting, prompt, chunk)
        length = prompt + NEW - 1
        at = row_bytes_at(model.profile, setting, length, chunk)
        exact = name == "mamba" or (name == "llama" and chunk == STEP)
        assert real[-1] <= at <= real[-1] + (0 if exact else slack(model, setting, length))
        most = row_bytes_most(model.profile, setting, prompt, NEW, chunk)
        # The fullest moment may be one before the caches are quantized.
        assert max(real) <= most <= max(real) + (0 if exact else slack(model, setting, 0))


def slack(model: Model, setting: KVSetting, length: int) -> float:
    """255 positions of every cache in the form that it has at a length."""
    caches = (cache.at(length, setting.start) for cache in stored(model.profile, setting))
    return (STEP - 1) * sum(cache.token_bytes for cache in caches)


def test_nothing_is_held_of_no_tokens() -> None:
    model = tiny_model(LLAMA)
    assert row_bytes_at(model.profile, KVSetting("bf16"), 0) == 0
