"""Records on disk and the DuckDB index made from them. Imports no mlx."""
