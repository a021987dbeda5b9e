"""Turning a request into an immutable, hashed plan. Pure; imports no mlx."""
