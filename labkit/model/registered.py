"""The modules of mlx-lm whose models labkit equals bit for bit: tests/numerics/test_oracle_sweep.py runs them."""

from __future__ import annotations

REGISTERED = frozenset({"llama", "gemma3_text"})
