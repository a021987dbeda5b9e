"""Quantizers: from a model and a recipe to an artifact that is measured as it lies on disk."""
