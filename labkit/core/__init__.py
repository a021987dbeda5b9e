"""What several layers speak of: requests, steps, arms, workloads, metrics, records, errors. No mlx."""
