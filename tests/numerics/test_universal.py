"""Directories of any architecture load: as registered where the sweep runs on it, else as universal."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from mlx_lm.models import llama

import labkit
from tests.numerics.tiny_configs import TINY
from tests.numerics.tiny_directory import write_tokenizer
from tests.numerics.tiny_models import tiny_graph, tiny_model


class Loopy(llama.Model):
    """An architecture that labkit has never seen: every layer runs twice, with a cache for each time."""

    def __init__(self, args: llama.ModelArgs) -> None:
        super().__init__(args)
        self.model.layers = self.model.layers * 2


@pytest.fixture
def unseen(monkeypatch: pytest.MonkeyPatch) -> str:
    module = ModuleType("mlx_lm.models.loopy")
    vars(module).update(Model=Loopy, ModelArgs=llama.ModelArgs)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return "loopy"


def save_directory(folder: Path, config: dict[str, Any]) -> Path:
    """A model directory as a person would bring it: config, weights and a byte-level tokenizer."""
    weights: Any = tree_flatten(tiny_graph(config).parameters())
    mx.save_safetensors(str(folder / "model.safetensors"), dict(weights))
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder)
    return folder


def test_an_architecture_that_is_not_registered_loads_as_universal(unseen: str, tmp_path: Path) -> None:
    model = labkit.load(save_directory(tmp_path, {**TINY["llama"], "model_type": unseen}))
    assert (model.profile.architecture, model.profile.status) == (unseen, "universal")
    assert model.profile.layers == ("full",) * 4
    session = model.session("hello", max_tokens=4, stop_tokens=())
    session.run()
    assert session.state == "completed"


@pytest.mark.parametrize("name", ["nemotron_h", "qwen3_5", "exaone4", "gemma4"])
def test_a_saved_directory_of_a_registered_one_loads(name: str, tmp_path: Path) -> None:
    model = labkit.load(save_directory(tmp_path, TINY[name]))
    assert model.profile.status == "registered"
    same = tiny_model(TINY[name]).profile
    assert (model.profile.caches, model.profile.moe) == (same.caches, same.moe)
