"""Byte-level BPE of a GGUF file (`tokenizer.ggml.model = gpt2`): merges that the file states, over bytes.

Knows the model and its pre-tokenizer; tokens that are found first are `vocabulary`'s.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors

from labkit.model.gguf.tokenizer.metadata import read_array, read_choice, refuse_first
from labkit.model.gguf.tokenizer.patterns import PRE_TOKENIZERS, PreTokenizer
from labkit.model.gguf.tokenizer.unicode import pin
from labkit.model.gguf.tokenizer.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class ByteLevel:
    """merges: by rank."""

    merges: tuple[tuple[str, str], ...]
    pre: PreTokenizer

    @property
    def add_bos(self) -> bool:
        """Whether a text begins with BOS where the file does not say."""
        return self.pre.add_bos

    def default_ids(self) -> Mapping[str, int]:
        """Role -> id where the file states none."""
        return {}

    def build(self, vocabulary: Vocabulary) -> Tokenizer:
        """The tokenizer less its added tokens and its BOS."""
        merges, ignore = list(self.merges), self.pre.ignore_merges
        tokenizer = Tokenizer(models.BPE(vocab=vocabulary.ids(), merges=merges, ignore_merges=ignore))
        steps = [_split(pin(pattern), "isolated") for pattern in self.pre.patterns]
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*steps, *_drop_unknown_bytes(vocabulary)])
        tokenizer.decoder = decoders.ByteLevel()
        return tokenizer

    def post_processors(self) -> list[Any]:
        """What follows the model, before BOS."""
        return [processors.ByteLevel(trim_offsets=True)]


def read_byte_level(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> ByteLevel:
    """Read merges and pre-tokenizer. Raises ModelUnavailable for an unknown pre-tokenizer, by name.

    A merge makes a token from two parts: there are no more merges than places to cut a token at.
    """
    pre = read_choice(metadata, "pre", "pre-tokenizer", tuple(PRE_TOKENIZERS))
    stated = read_array(metadata, "merges", str)
    cuts = sum(map(len, vocabulary.tokens)) - len(vocabulary.tokens)
    refuse_first({f"{len(stated)} merges of tokens with {cuts} cuts": len(stated) > cuts})
    merges = tuple(map(_merge, stated))
    known = set(vocabulary.tokens)
    unknown = any(not {a, b, a + b} <= known for a, b in merges)
    refuse_first({"no merges": not merges, "merges of unknown tokens": unknown})
    return ByteLevel(merges, PRE_TOKENIZERS[pre])


def _drop_unknown_bytes(vocabulary: Vocabulary) -> list[Any]:
    """Bytes without a token are dropped; nothing merges across the place where one was."""
    missing = sorted(set(pre_tokenizers.ByteLevel.alphabet()) - set(vocabulary.tokens))
    return [_split(f"[{re.escape(''.join(missing))}]", "removed")] if missing else []


def _split(pattern: str, behavior: str) -> Any:
    return pre_tokenizers.Split(Regex(pattern), behavior)


def _merge(text: str) -> tuple[str, str]:
    at = text.find(" ", 1)
    return (text[:at], text[at + 1 :]) if at > 0 else (text, "")
