"""Probes of a quiet machine, one file per source: what is read, how it is parsed, its limit and advice."""
