"""Mathematics on mlx arrays; knows no models."""
