"""Artifacts, backends, loading, costs and scores."""
