"""Profiles over mlx-lm's registry: what they say of a model is what the model does."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from typing import Any

import mlx.core as mx
import mlx_lm.models
import pytest
from mlx.utils import tree_flatten
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    ChunkedKVCache,
    KVCache,
    RotatingKVCache,
    make_prompt_cache,
)
from mlx_lm.models.switch_layers import SwitchGLU, SwitchMLP

from labkit.core.errors import ModelUnavailable
from labkit.core.spec import CacheShape, Profile
from labkit.model.profile import NO_LIMIT, profile_from_config
from tests.numerics.tiny_base import WINDOW
from tests.numerics.tiny_configs import METAL_ONLY, NOT_SWEPT, TINY
from tests.numerics.tiny_models import tiny_graph

BUILT = [name for name in TINY if name not in METAL_ONLY]
KINDS = {KVCache: "full", RotatingKVCache: "sliding", ChunkedKVCache: "sliding", ArraysCache: "recurrent"}
# Configs of these say nothing of a context: mlx-lm's own default counts, or the 4,096 where it has none.
CONTEXTS = {"afm7": 4096, **dict.fromkeys(("mamba", "mamba2", "rwkv7"), NO_LIMIT)}


def profile_of(name: str) -> Profile:
    return profile_from_config(TINY[name], name=name, dtype="float32")


def kind(cache: Any) -> str:
    if isinstance(cache, CacheList):
        kinds = [kind(part) for part in cache.caches]
        return next(k for k in ("recurrent", "sliding", "full") if k in kinds)
    return KINDS.get(type(cache), "recurrent")


def filled(name: str) -> tuple[Any, list[Any], mx.array]:
    """A tiny model, its caches after a chunk and a step, and the logits."""
    graph = tiny_graph(TINY[name])
    caches = make_prompt_cache(graph)
    graph(mx.arange(10)[None], cache=caches)
    return graph, caches, graph(mx.array([[3]]), cache=caches)


def registry() -> set[str]:
    """The modules of mlx_lm.models that hold an architecture; one that ends the process holds one too."""
    found = set()
    for module in pkgutil.iter_modules(mlx_lm.models.__path__):
        try:
            loaded = importlib.import_module(f"mlx_lm.models.{module.name}")
        except SystemExit:
            found.add(module.name)
        else:
            found |= {module.name} if {"Model", "ModelArgs"} <= set(vars(loaded)) else set()
    return found


def test_no_architecture_of_the_registry_is_forgotten() -> None:
    assert registry() == set(TINY) | set(NOT_SWEPT)
    assert not set(TINY) & set(NOT_SWEPT)
    assert set(METAL_ONLY) <= set(TINY)


@pytest.mark.parametrize("name", BUILT)
def test_caches_are_those_that_the_model_makes_and_fills(name: str) -> None:
    profile = profile_of(name)
    _, caches, logits = filled(name)
    assert profile.own_layout() == tuple(type(cache).__name__ for cache in caches)
    assert list(profile.layers) == [kind(cache) for cache in caches]
    assert profile.vocab_size == logits.shape[-1] == TINY[name].get("vocab_size", logits.shape[-1])
    leaves = [leaf for cache in profile.caches for leaf in cache.leaves()]
    for leaf, cache in zip(leaves, flat(caches), strict=True):
        assert held(leaf) == measured(cache)


def flat(caches: list[Any]) -> list[Any]:
    return [leaf for c in caches for leaf in (flat(list(c.caches)) if isinstance(c, CacheList) else [c])]


def held(leaf: CacheShape) -> tuple[int, int, int, int | None]:
    return leaf.kv_heads, leaf.key_size, leaf.value_size, leaf.window


def measured(cache: Any) -> tuple[int, int, int, int | None]:
    if type(cache) not in KINDS or isinstance(cache, ArraysCache):
        return 0, 0, 0, None
    window = getattr(cache, "max_size", getattr(cache, "chunk_size", None))
    keys, values = cache.keys, cache.values
    return keys.shape[1], keys.shape[-1], values.shape[-1], window


@pytest.mark.parametrize("name", BUILT)
def test_experts_are_where_the_model_holds_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the names of the parameters, and by what is asked of the experts in a step."""
    profile = profile_of(name)
    chosen: list[int] = []
    for layer in (SwitchGLU, SwitchMLP):
        monkeypatch.setattr(layer, "__call__", counting(layer.__call__, chosen))
    graph = filled(name)[0]
    found = {i: experts_of(layer) for i, layer in enumerate(graph.layers)}
    assert profile.depth == len(graph.layers)
    assert profile.moe == tuple(i for i, count in found.items() if count)
    assert profile.experts == max(found.values())
    if name == "dbrx":
        assert profile.experts_per_token == TINY[name]["ffn_config"]["moe_top_k"]
    else:
        assert {profile.experts_per_token} == (set(chosen) or {0})
    assert ("\nexperts " in profile.explain()) == bool(profile.moe)


def counting(call: Any, chosen: list[int]) -> Any:
    def counted(self: Any, x: mx.array, indices: mx.array) -> mx.array:
        chosen.append(indices.shape[-1])
        return call(self, x, indices)

    return counted


def experts_of(layer: Any) -> int:
    """mlx-lm stacks experts along the first axis; dbrx numbers them."""
    counts = [0]
    weights: list[tuple[str, Any]] = tree_flatten(layer.parameters())  # pyright: ignore[reportAssignmentType]
    for path, weight in weights:
        numbered = re.search(r"\bexperts\.(\d+)\.", path)
        stacked = re.search(r"\b(switch_mlp|switch_glu|experts)\.", path)
        if numbered:
            counts.append(int(numbered[1]) + 1)
        elif stacked and "shared" not in path:
            counts.append(weight.shape[0])
    return max(counts)


@pytest.mark.parametrize("name", BUILT)
def test_the_rest_is_read_where_the_architecture_keeps_it(name: str) -> None:
    profile = profile_of(name)
    assert profile.context_length == CONTEXTS.get(name, 2048)
    assert profile.hidden_size in (64, 128)
    assert profile.heads == (4 if name == "openelm" else 2 if profile.kv_heads else 0)
    assert profile.sliding_window == (WINDOW if has_window(profile) else None)
    assert profile.status == "registered"


def has_window(profile: Profile) -> bool:
    return any(leaf.window for cache in profile.caches for leaf in cache.leaves())


def test_what_a_config_leaves_out_is_mlx_lms_default() -> None:
    gemma = profile_from_config({"model_type": "gemma3_text"}, name="m")
    assert gemma.layers == (("sliding",) * 5 + ("full",)) * 4 + ("sliding",) * 2
    assert (gemma.sliding_window, gemma.context_length, gemma.vocab_size) == (512, 32768, 262144)
    assert (gemma.heads, gemma.kv_heads, gemma.head_dim, gemma.hidden_size) == (4, 1, 256, 1152)
    text = {"model_type": "gemma3_text", "num_hidden_layers": 6}
    vision = profile_from_config({"model_type": "gemma3", "text_config": text}, name="m")
    assert (vision.heads, vision.kv_heads, vision.vocab_size, len(vision.layers)) == (8, 4, 262208, 6)
    mixtral = profile_from_config({"model_type": "mixtral"}, name="m")
    assert (len(mixtral.moe), mixtral.experts, mixtral.experts_per_token) == (32, 8, 2)
    oss = profile_from_config({"model_type": "gpt_oss"}, name="m")
    assert (oss.sliding_window, oss.layers[:2], oss.quantizes) == (128, ("sliding", "full"), False)


def test_a_remapped_model_type_keeps_its_name_and_has_the_status_of_its_module() -> None:
    """A bare `sliding_window` slides nothing in mlx-lm."""
    config = {**TINY["llama"], "model_type": "mistral", "sliding_window": 8}
    profile = profile_from_config(config, name="m")
    assert (profile.architecture, profile.status) == ("mistral", "registered")
    assert (profile.layers, profile.sliding_window) == (("full", "full"), None)


DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "vocab_size": 129280,
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "n_group": 8,
    "topk_group": 4,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "max_position_embeddings": 163840,
    "torch_dtype": "bfloat16",
}
DBRX = {
    "model_type": "dbrx",
    "vocab_size": 100352,
    "d_model": 6144,
    "n_layers": 40,
    "n_heads": 48,
    "max_seq_len": 32768,
    "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
    "attn_config": {"kv_n_heads": 8, "clip_qkv": 8.0, "rope_theta": 500000.0},
}


@pytest.mark.parametrize("config", [DEEPSEEK_V3, DBRX], ids=["deepseek_v3", "dbrx"])
def test_a_model_of_hundreds_of_gigabytes_is_profiled_in_no_memory(config: dict[str, Any]) -> None:
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    profile = profile_from_config(config, name="large")
    assert mx.get_peak_memory() - before < 50e6
    layers = config.get("num_hidden_layers", config.get("n_layers"))
    assert (len(profile.layers), profile.depth) == (layers, layers)
    if config is DEEPSEEK_V3:
        latent = CacheShape("KVCache", kv_heads=1, key_size=512, value_size=64, item_bytes=2)
        assert profile.caches == (latent,) * 61
        assert (profile.moe, profile.experts, profile.experts_per_token) == (tuple(range(3, 61)), 256, 8)
    else:
        assert profile.caches[-1] == CacheShape("KVCache", 8, 128, 128, 4)
        assert (profile.vocab_size, profile.experts_per_token, profile.quantizes) == (100352, 4, True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": None}, "model_type was needed"),
        ({"model_type": "quantum"}, r"quantum(.|\n)*not supported"),
        ({"hidden_size": None}, "hidden_size"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers of at most 4096"),
        ({"hidden_size": 10**12}, "mlx-lm can build and run"),
        ({"num_attention_heads": 0}, "mlx-lm can build and run"),
        ({"hidden_size": "many"}, "mlx-lm can build and run"),
    ],
)
def test_a_config_that_makes_no_model_is_refused_in_one_message(change: dict[str, Any], said: str) -> None:
    config = {k: v for k, v in {**TINY["llama"], **change}.items() if v is not None}
    with pytest.raises(ModelUnavailable, match=said) as refused:
        profile_from_config(config, name="m")
    assert len(str(refused.value)) < 600


def test_a_module_that_ends_the_process_is_refused() -> None:
    with pytest.raises(ModelUnavailable, match=r"olmo\)(.|\n)*SystemExit"):
        profile_from_config({**TINY["llama"], "model_type": "olmo"}, name="m")


def test_the_config_is_left_as_it_was() -> None:
    """mlx-lm's gemma3 writes into the nested config."""
    before = json.dumps(TINY["gemma3"])
    profile_of("gemma3")
    assert json.dumps(TINY["gemma3"]) == before
