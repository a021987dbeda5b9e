"""The tokenizer of a GGUF file, as tokenizer.json."""
