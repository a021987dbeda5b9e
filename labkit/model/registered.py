"""The modules of mlx-lm that labkit's oracle tests run on, bit for bit (tests/numerics/test_oracle_sweep.py)."""

from __future__ import annotations

REGISTERED = frozenset({"llama", "gemma3_text"})
