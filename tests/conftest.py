"""Fixtures of every tier. The BLAS is chosen here because it must be loaded before anything imports mlx."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import settings

from labkit.engine.load import load
from labkit.engine.model import Model
from labkit.model import backend, registry

backend.prepare()
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what it runs in the background so; the tests of Ctrl-C send it to themselves.
    signal.signal(signal.SIGINT, signal.default_int_handler)
# How long an example takes says nothing on a machine that others use.
settings.register_profile("labkit", deadline=None)
settings.load_profile("labkit")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first, so that no process is left alone with one at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The bundled model's directory in the default models home, imported once."""
    return registry.get("smollm2")


@pytest.fixture(scope="session")
def smollm2(smollm2_path: Path) -> Model:
    """The bundled model, loaded once."""
    return load(smollm2_path)
