"""Evaluation text."""
