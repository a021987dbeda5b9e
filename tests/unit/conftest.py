"""Fixtures of the unit tier."""

from __future__ import annotations

import pytest

from labkit.lab.deciding import promotion
from tests.unit.decided_lab import CODE


@pytest.fixture
def sample_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checked-out code is what the sample records name."""
    monkeypatch.setattr(promotion, "code_hash", lambda: CODE)
