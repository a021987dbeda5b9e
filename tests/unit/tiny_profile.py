"""A model of two full layers, for whoever plans without one."""

from __future__ import annotations

from labkit.core.spec import Profile

PROFILE = Profile(
    name="tiny",
    family="tiny",
    architecture="llama",
    layers=("full", "full"),
    context_length=100,
    vocab_size=1000,
    hidden_size=128,
    heads=2,
    kv_heads=2,
    head_dim=64,
    dtype="float32",
    fingerprint="0123456789abcdef",
)
