"""SentencePiece BPE of a GGUF file (`tokenizer.ggml.model = llama`): pieces with scores, no merges stated.

llama.cpp joins the neighbours whose joint piece has the highest score, the leftmost first. Merges ranked by
the score of what they make do the same as long as no two scores are equal: a piece is only ever made from the
two parts into which it falls on its own, so each score stands for one merge. Equal scores are refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers

from labkit.core.errors import ModelUnavailable
from labkit.model.gguf.tokenizer.metadata import INSTEAD, PREFIX, read_array, read_flag, refuse_first
from labkit.model.gguf.tokenizer.vocabulary import BYTE, NORMAL, UNUSED, Vocabulary

_SPACE = "\u2581"
_DEFAULT_IDS = {"bos": 1, "eos": 2, "unk": 0}
# What SentencePiece may do to a text beforehand; the file does not hold enough to do it exactly.
_NORMALIZERS = ("precompiled_charsmap", "remove_extra_whitespaces", "treat_whitespace_as_suffix")
# Of all pieces, and of one. Gemma's 262,144 pieces, the most of any, have 1.5 million and at most 31.
_MAX_CHARACTERS = 3 << 20
_LONGEST = 1 << 9

Merges = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Pieces:
    """merges: by rank. prefix: whether a text, and what follows an added token, gets a space in front."""

    merges: Merges
    prefix: bool

    @property
    def add_bos(self) -> bool:
        """Whether a text begins with BOS where the file does not say."""
        return True

    def default_ids(self) -> Mapping[str, int]:
        """Role -> id where the file states none."""
        return _DEFAULT_IDS

    def build(self, vocabulary: Vocabulary) -> Tokenizer:
        """The tokenizer less its added tokens and its BOS: one BPE over the whole text, then bytes."""
        merges = list(self.merges)
        tokenizer = Tokenizer(models.BPE(vocab=vocabulary.ids(), merges=merges, byte_fallback=True))
        escape = normalizers.Replace(" ", _SPACE)
        before = [normalizers.Prepend(_SPACE), escape]
        tokenizer.normalizer = normalizers.Sequence(before) if self.prefix else escape
        steps = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
        steps += [decoders.Strip(" ", 1, 0)] if self.prefix else []
        tokenizer.decoder = decoders.Sequence(steps)
        return tokenizer

    def post_processors(self) -> list[Any]:
        """What follows the model, before BOS: nothing."""
        return []


def read_pieces(metadata: Mapping[str, Any], vocabulary: Vocabulary) -> Pieces:
    """Derive the merges. Raises ModelUnavailable where they would not do exactly what the scores do."""
    _refuse_normalizers(metadata)
    scores = read_array(metadata, "scores", float)
    tokens = vocabulary.tokens
    characters, longest = sum(map(len, tokens)), max(map(len, tokens))
    absurd = characters > _MAX_CHARACTERS or longest > _LONGEST
    refuse_first({f"pieces of {characters} characters, {longest} in one of them": absurd})
    known = set(tokens)
    bytes_missing = sum(f"<0x{i:02X}>" not in known for i in range(256))
    refuse_first(
        {
            f"{len(scores)} scores for {len(tokens)} tokens": len(scores) != len(tokens),
            "a score that is not finite": not all(map(math.isfinite, scores)),
            f"{bytes_missing} of 256 byte pieces missing": bytes_missing > 0,
            **_unreachable(vocabulary, known),
        }
    )
    cuts = _cuts(tokens, known - {*vocabulary.of(BYTE)})
    refuse_first(_ties(vocabulary, scores, cuts))
    return Pieces(_merges(tokens, scores, cuts), read_flag(metadata, "add_space_prefix", True))


def _cuts(tokens: Sequence[str], parts: set[str]) -> dict[int, list[int]]:
    """Id -> where the piece can be cut into two parts, of every piece that can.

    Byte pieces are no parts: they stand for bytes that are left when everything is merged.
    """
    found = {
        i: [at for at in range(1, len(t)) if t[:at] in parts and t[at:] in parts]
        for i, t in enumerate(tokens)
    }
    return {i: cuts for i, cuts in found.items() if cuts}


def _merges(tokens: Sequence[str], scores: Sequence[float], cuts: Mapping[int, Sequence[int]]) -> Merges:
    ranked = sorted(cuts, key=lambda i: (-scores[i], i))
    return tuple((tokens[i][:at], tokens[i][at:]) for i in ranked for at in cuts[i])


def _made(vocabulary: Vocabulary, i: int) -> bool:
    """Whether text can become this piece by merges; added tokens are found first, as they are written."""
    kind = vocabulary.types[i]
    return kind in (NORMAL, UNUSED) or (kind != BYTE and _SPACE in vocabulary.tokens[i])


def _unreachable(vocabulary: Vocabulary, known: set[str]) -> dict[str, bool]:
    """Pieces that llama.cpp merges from a character that is no piece, which a BPE over pieces cannot."""
    rows = zip(vocabulary.tokens, vocabulary.types, strict=True)
    found = [t for t, kind in rows if kind == NORMAL and not known.issuperset(t) and _joins(t, known)]
    return {f"{len(found)} pieces with characters that are no pieces, as {found[:1]!a}": bool(found)}


def _joins(piece: str, known: set[str]) -> bool:
    """Whether the piece is a character that is no piece beside a piece or another character."""
    ends = ((piece[:1], piece[1:]), (piece[-1:], piece[:-1]))
    return any(c not in known and rest and (rest in known or len(rest) == 1) for c, rest in ends)


def _ties(
    vocabulary: Vocabulary, scores: Sequence[float], cuts: Mapping[int, Sequence[int]]
) -> dict[str, bool]:
    owners: dict[float, int] = {}
    for i in cuts:
        other = owners.setdefault(scores[i], i) if _made(vocabulary, i) else i
        if other != i:
            pair = f"{vocabulary.tokens[other]!a} and {vocabulary.tokens[i]!a}"
            return {f"equal scores of the pieces {pair}, whose order labkit cannot keep": True}
    return {}


def _refuse_normalizers(metadata: Mapping[str, Any]) -> None:
    stated = [key for key in _NORMALIZERS if metadata.get(f"{PREFIX}{key}")]
    if stated:
        raise ModelUnavailable(
            "a tokenizer without a normalizer was needed",
            got=f"{PREFIX}{stated[0]}",
            next_step=INSTEAD,
        )
