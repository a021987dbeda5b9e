"""Non-dominated points with intervals. Imports no mlx."""
