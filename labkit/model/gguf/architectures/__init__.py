"""The tables of the GGUF architectures that labkit imports, a family in each module."""
