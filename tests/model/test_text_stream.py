"""Incremental text on the bundled models' own tokenizers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mlx_lm.tokenizer_utils import load as load_tokenizer

from labkit.engine.text import TextStream
from labkit.model import registry
from labkit.model.fetch import BUNDLED
from tests.text_streams import check

NAMES = ("smollm2", "gemma3-270m")
TEXTS = (
    "The quick brown fox jumps over 1,234 lazy dogs; it's don't -- 'quoted'.\n\n\tNext  line.\r\n",
    "Grüße, naïve façade; Ελληνικά, русский, العربية, हिन्दी, 日本語、中文。한국어",
    "🎉👩‍👩‍👧 flags 🇩🇪 and 👍🏽 \ufffd a\u0301 \u200d 𝄞 🜀🜁",
    "def f(x):\n    return {'a': [x, 1.5e-3]}  # <0x41> </s> <|im_start|> <start_of_turn>",
    "   leading, and trailing   ",
)
SETTINGS = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(scope="session", params=NAMES)
def tokenizer(request: pytest.FixtureRequest) -> Any:
    if request.param not in BUNDLED:
        pytest.skip(f"{request.param} is not bundled yet")
    return load_tokenizer(registry.get(request.param))


def halves(tokenizer: Any) -> list[int]:
    """The tokens that are no whole character by themselves."""
    return [token for token in range(len(tokenizer)) if "\ufffd" in tokenizer.decode([token])]


@pytest.fixture(scope="session")
def broken(tokenizer: Any) -> list[int]:
    found = halves(tokenizer)
    assert len(found) >= 128
    return found


@SETTINGS
@given(data=st.data())
def test_equals_decode_of_everything(tokenizer: Any, broken: list[int], data: st.DataObject) -> None:
    """Random tokens, broken characters, special tokens, ids beyond the vocabulary and ordinary text."""
    special = sorted({*tokenizer.all_special_ids, *range(20)})
    anything = st.integers(0, len(tokenizer) + 9)
    single = anything | st.sampled_from(broken) | st.sampled_from(special)
    text = st.sampled_from(TEXTS).map(lambda text: tokenizer.encode(text, add_special_tokens=False))
    segment = single.map(lambda token: [token]) | text
    tokens = [token for part in data.draw(st.lists(segment, max_size=40)) for token in part]
    whole = tokenizer.decode(tokens)
    starts = st.integers(0, max(0, len(whole) - 1))
    places = data.draw(st.lists(st.tuples(starts, st.integers(1, 12)), max_size=3))
    check(tokenizer, tokens, tuple(filter(None, (whole[at : at + size] for at, size in places))))


@pytest.mark.parametrize("text", TEXTS)
def test_text_is_given_back_and_mlx_lm_agrees(tokenizer: Any, text: str) -> None:
    tokens = tokenizer.encode(text, add_special_tokens=False)
    ours, theirs = TextStream(tokenizer), tokenizer.detokenizer
    theirs.reset()
    for token in tokens:
        ours.push(token)
        theirs.add_token(token)
    ours.finish()
    theirs.finalize()
    assert ours.text == text == tokenizer.decode(tokens)
    # mlx-lm's detokenizer for byte-level BPE drops a leading space, which decode keeps.
    assert theirs.text in (text, text.removeprefix(" "))


class Counted:
    """A tokenizer that counts the tokens it decodes."""

    def __init__(self, tokenizer: Any) -> None:
        self.convert_ids_to_tokens = tokenizer.convert_ids_to_tokens
        self.tokenizer, self.decoded = tokenizer, 0

    def decode(self, tokens: list[int]) -> str:
        self.decoded += len(tokens)
        return self.tokenizer.decode(tokens)


def test_ten_thousand_tokens_cost_ten_thousand_windows(tokenizer: Any) -> None:
    """At most twice the 64 tokens of the longest window for each, where one decode of all costs 10,000."""
    tokens = (tokenizer.encode("".join(TEXTS), add_special_tokens=False) * 100)[:10_000]
    counted = Counted(tokenizer)
    stream = TextStream(counted)
    for token in tokens:
        stream.push(token)
    stream.finish()
    assert stream.text == tokenizer.decode(tokens)
    assert counted.decoded <= 128 * len(tokens)
