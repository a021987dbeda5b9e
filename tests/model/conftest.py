"""Fixtures of the tier with real models; the first model's are in tests/conftest.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from labkit.engine.load import load
from labkit.engine.model import Model
from labkit.model import registry

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with llama.cpp's results and the texts they are about."""
    folder = Path(os.environ.get("LABKIT_SHARED_DATA", ROOT / "../shared/data")).resolve()
    if not (folder / "oracle").is_dir():
        pytest.skip("LABKIT_SHARED_DATA (default ../shared/data), with llama.cpp's results, is not there")
    return folder


@pytest.fixture(scope="session")
def gemma3_path() -> Path:
    """The second bundled model's directory in the default models home, imported once."""
    return registry.get("gemma3-270m")


@pytest.fixture(scope="session")
def gemma3(gemma3_path: Path) -> Model:
    """The second bundled model, loaded once."""
    return load(gemma3_path)
