"""Experiments, from hypothesis to record."""
