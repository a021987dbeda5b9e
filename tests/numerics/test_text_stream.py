"""Incremental text on tokenizers in mlx-lm's own wrapper, and beside mlx-lm's own streaming detokenizers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mlx_lm.tokenizer_utils import TokenizerWrapper
from mlx_lm.tokenizer_utils import load as load_tokenizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from labkit.engine.text import TextStream
from tests.text_streams import PIECES, SPACED, check, spm

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
STOPS = st.lists(st.text(alphabet="ab c'n<é", min_size=1, max_size=4), max_size=3).map(tuple)
MARKED = "<|end|>"
TEXTS = (
    "The quick brown fox -- 'tis said -- jumps.\n\n\tOver 13 lazy dogs!  Twice.",
    "Grüße, naïve façade; Ελληνικά, русский, العربية, हिन्दी, 日本語、中文。",
    "🎉👩‍👩‍👧 flags 🇩🇪 and 👍🏽, \ufffd itself, a\u0301 combined, \u200d joined",
    "def f(x):\n    return {'a': [x, 1.5e-3]}  # <0x41> ▁ </s>\r\n",
)


def byte_level() -> TokenizerWrapper:
    """256 bytes, two merges over a border of characters, and a special token: ids 0-257 and 258."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("Ã", "©"), ("Ġ", "a")]
    names = [*alphabet, *("".join(pair) for pair in merges)]
    inner = Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, merges))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([MARKED])
    return TokenizerWrapper(PreTrainedTokenizerFast(tokenizer_object=inner))


def cleaning() -> TokenizerWrapper:
    inner = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(SPACED)}, unk_token="x"))
    inner.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(tokenizer_object=inner, clean_up_tokenization_spaces=True)
    return TokenizerWrapper(fast)


def gemma_like() -> TokenizerWrapper:
    return TokenizerWrapper(PreTrainedTokenizerFast(tokenizer_object=spm(strip=False).inner))


@QUICK
@given(st.lists(st.integers(0, 260) | st.sampled_from([258, *"é👍".encode()]), max_size=90), STOPS)
def test_byte_level(tokens: list[int], stop: tuple[str, ...]) -> None:
    check(byte_level(), tokens, stop)


@QUICK
@given(
    st.lists(st.integers(250, 256 + len(PIECES)) | st.sampled_from(list("é👍".encode())), max_size=90), STOPS
)
def test_byte_fallback(tokens: list[int], stop: tuple[str, ...]) -> None:
    check(gemma_like(), tokens, stop)


@settings(QUICK, max_examples=200)
@given(st.lists(st.integers(0, len(SPACED) - 1), max_size=90), STOPS)
def test_clean_up_of_transformers(tokens: list[int], stop: tuple[str, ...]) -> None:
    tokenizer = cleaning()
    assert tokenizer.decode([SPACED.index("x"), SPACED.index(" "), SPACED.index(".")]) == "x."
    check(tokenizer, tokens, stop, exact=False)


def test_special_tokens_are_shown_as_decode_shows_them() -> None:
    tokenizer = byte_level()
    stream = TextStream(tokenizer, ("d|>!",))
    parts = [stream.push(token) for token in tokenizer.encode("a" + MARKED + "b" + MARKED + "!")]
    assert parts == ["a", "<|en", "d|>b", "<|en", ""]
    assert stream.stopped == "d|>!"


@pytest.mark.parametrize("text", TEXTS)
def test_text_is_given_back(text: str) -> None:
    tokenizer = byte_level()
    stream = TextStream(tokenizer)
    shown = "".join(stream.push(token) for token in tokenizer.encode(text))
    assert shown + stream.finish() == text


def saved(tokenizer: Any, folder: Path) -> TokenizerWrapper:
    """The tokenizer as mlx-lm loads it, with the streaming detokenizer it picks."""
    tokenizer._tokenizer.save_pretrained(folder)
    return load_tokenizer(folder)


@pytest.mark.parametrize("make", [byte_level, gemma_like])
def test_mlx_lm_streams_the_same_text(make: Any, tmp_path: Path) -> None:
    """On whole characters; its text lags behind ours by a space at most, and never runs ahead of it."""
    tokenizer = saved(make(), tmp_path)
    theirs = tokenizer.detokenizer
    assert type(theirs).__name__ != "NaiveStreamingDetokenizer"
    tokens = tokenizer.encode("a an ape") if make is byte_level else [260, 259, 258, 261, 266, 264, 258, 267]
    ours = TextStream(tokenizer)
    theirs.reset()
    for token in tokens:
        ours.push(token)
        theirs.add_token(token)
        assert ours.text.startswith(theirs.text)
        assert ours.text[len(theirs.text) :] in ("", " ")
    ours.finish()
    theirs.finalize()
    assert ours.text == theirs.text == tokenizer.decode(tokens)
