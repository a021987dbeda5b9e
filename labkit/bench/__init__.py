"""Paired measurement and its statistics."""
