"""KV schemes: the bytes of a row."""
