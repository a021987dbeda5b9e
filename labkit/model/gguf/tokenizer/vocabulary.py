"""The vocabulary of a GGUF file: its tokens, and which of them are found in a text before anything is split.

Knows types of tokens; not how text becomes tokens. Source of the rules: llama.cpp's vocabulary loader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Tokenizer

from labkit.model.gguf.tokenizer.controls import CONTROL_TEXTS
from labkit.model.gguf.tokenizer.metadata import read_array, refuse_first

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

# Phi-3 takes the white space behind these away; its file only says what the model is called.
_PHI3_KEEPS_SPACE = ("<unk>", "<s>", "<|endoftext|>")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """tokens: by id. types: GGUF token types. strips: the added tokens that take white space behind them."""

    tokens: tuple[str, ...]
    types: tuple[int, ...]
    strips: frozenset[str] = frozenset()

    def ids(self) -> dict[str, int]:
        """Token -> id."""
        return {token: i for i, token in enumerate(self.tokens)}

    def of(self, *kinds: int) -> tuple[str, ...]:
        """The tokens of some types, in the order of their ids."""
        return tuple(t for t, kind in zip(self.tokens, self.types, strict=True) if kind in kinds)

    def add_to(self, tokenizer: Tokenizer) -> None:
        """Have a tokenizer find control tokens (special) and user-defined ones (not special) as they are.

        Where two of them overlap in a text the left one is taken, then the longer.
        """
        tokenizer.add_special_tokens([self._added(t, True) for t in self.of(UNKNOWN, CONTROL)])
        tokenizer.add_tokens([self._added(t, False) for t in self.of(USER_DEFINED)])

    def _added(self, token: str, special: bool) -> AddedToken:
        return AddedToken(token, special=special, normalized=False, rstrip=token in self.strips)


def read_vocabulary(metadata: Mapping[str, Any]) -> Vocabulary:
    """The tokens and their types. Raises ModelUnavailable where they are no vocabulary."""
    stated = read_array(metadata, "tokens", str)
    tokens = tuple(token or f"[EMPTY_{i}]" for i, token in enumerate(stated))
    types = tuple(read_array(metadata, "token_type", int)) or (NORMAL,) * len(tokens)
    different = len(set(tokens))
    refuse_first(
        {
            "no tokens": not tokens,
            f"{len(tokens)} tokens, {different} of them different": different < len(tokens),
            f"{len(types)} types for {len(tokens)} tokens": len(types) != len(tokens),
        }
    )
    meant = tuple(_type(token, kind) for token, kind in zip(tokens, types, strict=True))
    return Vocabulary(tokens, meant, _stripping(tokens, meant, str(metadata.get("general.name", ""))))


def _type(token: str, kind: int) -> int:
    return CONTROL if token in CONTROL_TEXTS and kind != USER_DEFINED else kind


def _stripping(tokens: Sequence[str], types: Sequence[int], model: str) -> frozenset[str]:
    if not any(name in model.lower() for name in ("phi-3", "phi3")):
        return frozenset()
    added = {t for t, k in zip(tokens, types, strict=True) if k in (UNKNOWN, CONTROL, USER_DEFINED)}
    blank = sorted(t for t in added if t[:1].isspace())
    refuse_first({f"{blank[:1]!a} among tokens that take the white space in front of it": bool(blank)})
    return frozenset(added - {*_PHI3_KEEPS_SPACE})
