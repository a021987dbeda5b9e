"""GGUF files: reading them, and making model directories of them."""
