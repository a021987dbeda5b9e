"""How many rows run and when: policies, admission and a simulator. Plain numbers only, no mlx."""
