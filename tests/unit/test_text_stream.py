"""Incremental text against a reference that decodes everything, on tokenizers of every kind of decoder."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from labkit.core.errors import LabkitError
from labkit.engine.stops import StopStrings
from labkit.engine.text import TextStream
from labkit.model.null import ByteTokenizer
from tests.text_streams import (
    PIECES,
    SPACED,
    WORDS,
    Wrapped,
    check,
    clean_up,
    cleaned,
    cut,
    metaspace,
    spm,
    wordpiece,
)

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
TEXTS = st.sampled_from(["é", "日本語", "👩‍👩‍👧", "a", " ", "stop", "\ufffd", "ÿ", "𝄞", "\r\n"])
STOPS = st.lists(st.text(alphabet="ab c'n�é", min_size=1, max_size=4), max_size=3).map(tuple)


def as_bytes(text: str) -> list[int]:
    return list(text.encode())


RUNS = TEXTS.map(as_bytes) | st.lists(st.integers(0, 255), max_size=12)


def joined(segments: list[list[int]]) -> list[int]:
    return [token for segment in segments for token in segment]


def pieces(*, bytes_too: bool) -> st.SearchStrategy[list[int]]:
    """Tokens of the SPM vocabulary: pieces, byte runs good and bad, ids beyond the vocabulary."""
    first = 256 if bytes_too else 0
    single = st.integers(first, first + len(PIECES) + 2).map(lambda token: [token])
    return st.lists(single | RUNS if bytes_too else single, max_size=60).map(joined)


@QUICK
@given(st.lists(RUNS, max_size=60).map(joined), STOPS)
def test_bytes(tokens: list[int], stop: tuple[str, ...]) -> None:
    check(ByteTokenizer(), tokens, stop)


@QUICK
@given(pieces(bytes_too=True), STOPS, st.booleans())
def test_byte_fallback(tokens: list[int], stop: tuple[str, ...], strip: bool) -> None:
    check(spm(strip=strip), tokens, stop)


@QUICK
@given(pieces(bytes_too=False), STOPS)
def test_metaspace(tokens: list[int], stop: tuple[str, ...]) -> None:
    check(metaspace(), tokens, stop)


@QUICK
@given(st.lists(st.integers(0, len(WORDS) - 1), max_size=120), STOPS)
def test_wordpiece(tokens: list[int], stop: tuple[str, ...]) -> None:
    check(wordpiece(), tokens, stop)


@settings(QUICK, max_examples=300)
@given(st.lists(st.integers(0, len(SPACED) - 1), max_size=120), STOPS)
@example([14, 14, 12, 14, 12], ())
def test_clean_up_of_spaces(tokens: list[int], stop: tuple[str, ...]) -> None:
    """What is cleaned away later must not have been shown; how much waits is checked below."""
    check(cleaned(clean_up), tokens, stop, exact=False)


@QUICK
@given(st.lists(st.integers(0, len(WORDS) - 1), max_size=120), STOPS)
def test_wordpiece_with_clean_up(tokens: list[int], stop: tuple[str, ...]) -> None:
    check(wordpiece(clean_up, cleanup=False), tokens, stop, exact=False)


def test_clean_up_holds_back_no_more_than_an_undecided_space() -> None:
    tokenizer = wordpiece(clean_up, cleanup=False)
    stream = TextStream(tokenizer)
    parts = [stream.push(WORDS.index(word)) for word in ("do", "n't", "x", "n", "t", ".", "do")]
    assert parts == ["do", "n't", " x", "", " n t", ".", " do"]


@settings(QUICK, max_examples=300)
@given(
    st.lists(st.text(alphabet="ab", max_size=5), max_size=12),
    st.lists(st.text(alphabet="ab", min_size=1, max_size=5), max_size=4),
)
def test_stop_strings_do_not_depend_on_the_parts(parts: list[str], stop: list[str]) -> None:
    stops, text, shown = StopStrings(stop), "", ""
    for part in parts:
        text, shown = text + part, shown + stops.feed(part)
        assert (shown, stops.found) == cut(text, stop, whole=False)
    assert (shown + stops.finish(), stops.found) == cut(text, stop, whole=True)


@pytest.mark.parametrize(
    ("stop", "parts", "shown", "found"),
    [
        (("abcd", "bc"), ["abc", "d"], ["", ""], "abcd"),
        (("abcd", "bc"), ["abc", "x"], ["", "a"], "bc"),
        (("abc", "ab"), ["ab", "x"], ["", ""], "ab"),
        (("ab", "abc"), ["ab"], [""], "ab"),
        (("b", "ab"), ["xab"], ["x"], "ab"),
        (("\n\n",), ["one\n", "two\n", "\n!"], ["one", "\ntwo", ""], "\n\n"),
        (("stop",), ["st", "o", "ne st"], ["", "", "stone "], None),
    ],
)
def test_which_stop_string(stop: tuple, parts: list[str], shown: list[str], found: str | None) -> None:
    stops = StopStrings(stop)
    assert [stops.feed(part) for part in parts] == shown
    assert stops.found == found


def test_the_beginning_of_a_stop_string_is_shown_when_the_text_ends() -> None:
    stream = TextStream(ByteTokenizer(), ("stop", "to"))
    for token in b"no sto":
        stream.push(token)
    assert stream.text == "no "
    assert stream.finish() == "s"
    assert (stream.text, stream.stopped) == ("no s", "to")


def test_half_a_character_is_shown_as_broken_only_when_the_text_ends() -> None:
    stream = TextStream(ByteTokenizer())
    assert [stream.push(byte) for byte in "é👍".encode()] == ["", "é", "", "", "", "👍"]
    assert [stream.push(byte) for byte in "👍".encode()[:3]] == ["", "", ""]
    assert stream.finish() == "\ufffd"
    assert stream.push(97) == "" and stream.text == "é👍\ufffd"


def test_a_stop_string_in_half_a_character_is_found_at_the_end() -> None:
    stream = TextStream(ByteTokenizer(), ("\ufffd",))
    parts = [stream.push(byte) for byte in b"ab\xf0\x9f"]
    assert (parts, stream.stopped) == (["a", "b", "", ""], None)
    assert (stream.finish(), stream.stopped) == ("", "\ufffd")


def test_a_valid_run_of_byte_pieces_waits_for_its_end() -> None:
    """Gemma's decoder breaks the whole run where a later byte does not fit."""
    stream = TextStream(spm(strip=False))
    assert [stream.push(token) for token in (0xC3, 0xA9, 0xC3, 260)] == ["", "", "", "\ufffd\ufffd\ufffda"]
    assert [stream.push(token) for token in (0xC3, 0xA9, 260)] == ["", "", "éa"]


def test_nothing_follows_a_stop_string() -> None:
    stream = TextStream(ByteTokenizer(), ("b",))
    assert [stream.push(byte) for byte in b"abc"] == ["a", "", ""]
    assert stream.finish() == "" and stream.text == "a" and stream.stopped == "b"


@pytest.mark.parametrize("stop", [("a", ""), "ab"])
def test_unusable_stop_strings(stop: tuple[str, ...]) -> None:
    with pytest.raises(LabkitError, match="at least one character"):
        TextStream(ByteTokenizer(), stop)


def repeated(tokens: list[int], count: int) -> list[int]:
    return (tokens * count)[:count]


@pytest.mark.parametrize(
    ("tokenizer", "tokens"),
    [
        (spm(strip=True), [257, 258, 259]),
        (spm(strip=True), [0xC3]),
        (spm(strip=True), [0xF0, 0x9F, 0x91, 0x8D, 259]),
        (spm(strip=True), [256 + PIECES.index("")]),
        (spm(strip=True), [9999]),
        (spm(strip=True), [256 + PIECES.index("�")]),
        (cleaned(clean_up), [SPACED.index("  ")]),
        (cleaned(clean_up), [SPACED.index("n")]),
        (cleaned(clean_up), [SPACED.index(" n"), SPACED.index("x")]),
        (wordpiece(), [0, 1]),
    ],
    ids=["text", "run", "emoji", "empty", "unknown", "broken", "spaces", "letters", "words", "wordpiece"],
)
def test_a_token_costs_the_same_at_any_length(tokenizer: Wrapped, tokens: list[int]) -> None:
    """A window of some 64 tokens, decoded once and now and then again: at most 200 tokens for each."""
    stream, count = TextStream(tokenizer), 3000
    tokenizer.decoded = 0
    for token in repeated(tokens, count):
        stream.push(token)
    stream.finish()
    assert tokenizer.decoded <= 200 * count
    assert stream.text == tokenizer.decode(repeated(tokens, count))


def test_replay_decodes_a_few_times_only() -> None:
    tokenizer = spm(strip=True)
    tokens = repeated([257, 258, 0xC3, 0xA9, 259], 3000)
    tokenizer.decoded = 0
    stream = TextStream.replay(tokenizer, tokens)
    # Every byte piece is told from a literal by a decode of its own: none of these is at the end.
    assert tokenizer.decoded <= 1.1 * len(tokens)
    assert stream.text == tokenizer.decode(tokens)
