"""From an experiment to its sealed record: the run, its journal, its looks and controls."""
