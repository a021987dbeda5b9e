"""Tokenizers of GGUF files on synthetic vocabularies: llama.cpp's ids, its rule spelled out, and refusals."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.tokenizer_utils import load as load_tokenizer
from tokenizers import Regex, Tokenizer
from tokenizers.pre_tokenizers import Split

from labkit.core.errors import ModelUnavailable
from labkit.model.gguf.tokenizer.build import build_tokenizer, plan_tokenizer, write_tokenizer
from labkit.model.gguf.tokenizer.patterns import PRE_TOKENIZERS
from labkit.model.gguf.tokenizer.unicode import pin
from tests.numerics.tiny_vocabularies import (
    BYTES,
    CONTROLS,
    SPACE,
    UNUSED,
    merge_by_score,
    pairs_metadata,
    pieces_metadata,
)

# What llama.cpp 0.3.36 (llama-cpp-python) makes of the texts with the vocabularies of `pairs_metadata`.
LLAMA_CPP = json.loads(Path(__file__).with_name("pre_tokenizers.json").read_text(encoding="utf-8"))
PIECES = ["ab", "abc", "bc", "cab", f"{SPACE}a", f"a{SPACE}", f"{SPACE}{SPACE}", "aa", "aaa", "ba", "abab"]
LETTERS = ["a", "b", "c", SPACE]


def build(metadata: Mapping[str, Any]) -> Tokenizer:
    return build_tokenizer(plan_tokenizer(metadata))


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


def decode(tokenizer: Tokenizer, ids: list[int]) -> str:
    return tokenizer.decode(ids, skip_special_tokens=False)


@pytest.mark.parametrize("pre", LLAMA_CPP["tokens"])
def test_every_pre_tokenizer_cuts_as_llama_cpp_does(pre: str) -> None:
    metadata = pairs_metadata(pre)
    tokenizer = build(metadata)
    tokens = metadata["tokenizer.ggml.tokens"]
    ids = [encode(tokenizer, text) for text in LLAMA_CPP["texts"]]
    assert [" | ".join(tokens[i] for i in found) for found in ids] == LLAMA_CPP["tokens"][pre]
    assert [decode(tokenizer, found) for found in ids] == LLAMA_CPP["texts"]


def test_every_group_of_names_has_a_name_that_was_compared() -> None:
    compared = {PRE_TOKENIZERS[name] for name in LLAMA_CPP["tokens"]}
    assert set(PRE_TOKENIZERS.values()) == compared


@pytest.mark.parametrize(
    ("category", "members"), [("L", 136_726), ("N", 1_831), ("P", 842), ("S", 7_775), ("M", 2_450)]
)
def test_the_categories_are_those_of_unicode_15_1(category: str, members: int) -> None:
    everything = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)
    others = Split(Regex(pin(rf"\p{{{category}}}")), "removed").pre_tokenize_str(everything)
    assert len(everything) - sum(len(text) for text, _ in others) == members


@st.composite
def scored_vocabularies(draw: st.DrawFn) -> dict[str, Any]:
    words = draw(st.lists(st.text("ab" + SPACE, min_size=2, max_size=6), max_size=40, unique=True))
    parts = {w[:i] for w in words for i in range(2, len(w))} | {w[i:] for w in words for i in range(len(w))}
    chosen = [p for p in sorted(parts) if len(p) > 1 and draw(st.booleans())]
    pieces = draw(st.permutations(sorted({*words, *chosen})))
    return {**pieces_metadata([*pieces, "a", "b", SPACE], added=()), "tokenizer.ggml.add_space_prefix": False}


@settings(max_examples=150, deadline=None)
@given(scored_vocabularies(), st.lists(st.text("ab é", max_size=60), min_size=5, max_size=5))
def test_merges_do_what_the_scores_do(metadata: dict[str, Any], texts: list[str]) -> None:
    tokenizer = build(metadata)
    texts = [*texts, "a" * 41, "ab" * 20, " " * 23, "ba a" * 9]
    for text in texts:
        assert encode(tokenizer, text) == merge_by_score(text, metadata)
        assert decode(tokenizer, encode(tokenizer, text)) == text


@settings(max_examples=150, deadline=None)
@given(st.text())
def test_any_text_comes_back_from_pieces_and_bytes(text: str) -> None:
    tokenizer = build(pieces_metadata([*PIECES, *LETTERS]))
    assert decode(tokenizer, encode(tokenizer, text)) == text.replace(SPACE, " ")


def test_a_space_stands_in_front_of_a_text_and_behind_added_tokens() -> None:
    metadata = pieces_metadata([*PIECES, *LETTERS])
    tokens = metadata["tokenizer.ggml.tokens"]

    def pieces(text: str, **more: Any) -> list[str]:
        return [tokens[i] for i in encode(build({**metadata, **more}), text)]

    without = {"tokenizer.ggml.add_space_prefix": False}
    assert pieces("ab") == [SPACE, "ab"]
    assert pieces("ac") == [f"{SPACE}a", "c"]
    assert pieces("ab", **without) == ["ab"]
    assert pieces("<s>b[X]b") == ["<s>", SPACE, "b", "[X]", SPACE, "b"]
    assert pieces("<s>b[X]b", **without) == ["<s>", "b", "[X]", "b"]
    assert pieces("") == []
    assert pieces("\u00e9\0", **without) == ["<0xC3>", "<0xA9>", "<0x00>"]


def test_what_one_text_spells_is_not_what_bytes_mean() -> None:
    tokenizer = build({**pieces_metadata(["a", SPACE]), "tokenizer.ggml.add_space_prefix": False})
    text = "<0x61> a <unk"
    ids = encode(tokenizer, text)
    assert 3 + 0x61 not in ids
    assert decode(tokenizer, ids) == text


def test_added_tokens_are_found_from_the_left_and_the_longer_first() -> None:
    metadata = pieces_metadata([*LETTERS], added=["  ", "   ", "\n\n", "<a>", "<a><b>"])
    tokenizer = build({**metadata, "tokenizer.ggml.add_space_prefix": False})
    texts = ["       a", "\n\n\n", "<a><b><a>", "<a>a"]
    tokens = metadata["tokenizer.ggml.tokens"]
    assert [[tokens[i] for i in encode(tokenizer, text)] for text in texts] == [
        ["   ", "   ", SPACE, "a"],
        ["\n\n", "<0x0A>"],
        ["<a><b>", "<a>"],
        ["<a>", "a"],
    ]
    assert [decode(tokenizer, encode(tokenizer, text)) for text in texts] == texts


def test_control_tokens_are_special_and_user_defined_ones_are_not() -> None:
    tokenizer = build(pieces_metadata([*LETTERS]))
    ids = encode(tokenizer, "<s>a[X]</s><unk>")
    assert tokenizer.decode(ids, skip_special_tokens=True).strip() == "a[X]"


def test_a_control_token_that_is_typed_as_normal_is_one() -> None:
    metadata = pieces_metadata([*LETTERS, "<|im_end|>"])
    assert 3 + 256 + len(LETTERS) in encode(build(metadata), "a<|im_end|>")


def test_phi_3_takes_white_space_behind_its_control_tokens() -> None:
    metadata = {**pieces_metadata([*LETTERS, "<|endoftext|>"]), "general.name": "Phi 3"}
    assert len(encode(build(metadata), "</s> \n a")) == 6
    phi = {**metadata, "general.name": "Phi-3-mini"}
    assert [phi["tokenizer.ggml.tokens"][i] for i in encode(build(phi), "</s> \n a")] == ["</s>", SPACE, "a"]
    assert len(encode(build(phi), "<s> \n a")) == 6


def test_a_piece_that_is_a_token_needs_no_merges_where_the_model_says_so() -> None:
    whole = {pre: encode(build(pairs_metadata(pre)), "hello") for pre in ("llama-bpe", "tekken", "qwen2")}
    hello = pairs_metadata("qwen2")["tokenizer.ggml.tokens"].index("hello")
    assert (whole["llama-bpe"], whole["tekken"]) == ([hello], [hello])
    assert len(whole["qwen2"]) == 3


def test_a_byte_without_a_token_is_dropped_and_keeps_its_neighbours_apart() -> None:
    metadata = pairs_metadata("gpt-2")
    tokens = ["a", "b", "ab"]
    metadata |= {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": ["a b"]}
    metadata = {k: v for k, v in metadata.items() if not k.endswith(("_type", "_id"))}
    tokenizer = build(metadata)
    assert encode(tokenizer, "abxa]b-^\\b") == [2, 0, 1, 1]


def test_bos_and_eos_are_added_as_the_file_says() -> None:
    pieces, pairs = pieces_metadata([*LETTERS]), pairs_metadata("llama-bpe")
    bos = pairs["tokenizer.ggml.bos_token_id"]
    a = encode(build(pairs), "a")
    no, yes = {"tokenizer.ggml.add_bos_token": False}, {"tokenizer.ggml.add_bos_token": True}
    eos = {"tokenizer.ggml.add_eos_token": True}
    assert build(pairs).encode("a").ids == [bos, *a]
    assert build(pairs | no).encode("a").ids == a
    assert build(pairs | eos).encode("a").ids == [bos, *a, bos + 1]
    qwen = pairs_metadata("qwen2")
    assert build(qwen).encode("a").ids == a
    assert build(qwen | yes).encode("a").ids == [bos, *a]
    assert build(pieces).encode("a").ids[0] == 1
    assert build(pieces | no | eos).encode("a").ids[-1] == 2
    assert build(pieces | {"tokenizer.ggml.bos_token_id": 0}).encode("").ids == [0]


def test_every_id_that_ends_a_turn_stands_in_the_config() -> None:
    metadata = pieces_metadata([*LETTERS])
    assert plan_tokenizer(metadata).config_ids() == {"bos_token_id": 1, "eos_token_id": 2}
    ends = {"tokenizer.ggml.eot_token_id": 5, "tokenizer.ggml.eom_token_id": 6}
    assert plan_tokenizer(metadata | ends).config_ids()["eos_token_id"] == [2, 5, 6]
    same = {"tokenizer.ggml.eot_token_id": 2, "tokenizer.ggml.padding_token_id": 0}
    assert plan_tokenizer(metadata | same).config_ids() == {
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }


def test_the_written_files_are_loaded_as_they_are(tmp_path: Path) -> None:
    metadata = pieces_metadata([*PIECES, *LETTERS]) | {
        "tokenizer.chat_template": "plain {{ messages[0]['content'] }}",
        "tokenizer.chat_template.tool_use": "tools {{ messages[0]['content'] }}",
    }
    write_tokenizer(plan_tokenizer(metadata), tmp_path, 99)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    loaded: Any = load_tokenizer(tmp_path, eos_token_ids=2)
    chosen = random.Random(3)
    texts = ["".join(chosen.choice("abc é<[X\n") for _ in range(40)) for _ in range(20)]
    tokenizer = build(metadata)
    assert loaded.encode("<s>a[X]b") == tokenizer.encode("<s>a[X]b").ids
    assert [loaded.encode(text) for text in texts] == [tokenizer.encode(text).ids for text in texts]
    assert [loaded.decode(encode(tokenizer, text)) for text in texts] == texts
    messages = [{"role": "user", "content": "hi"}]
    assert loaded.apply_chat_template(messages, tokenize=False) == "plain hi"
    assert loaded.apply_chat_template(messages, tokenize=False, chat_template="tool_use") == "tools hi"
    assert (loaded.bos_token, loaded.eos_token, loaded.unk_token) == ("<s>", "</s>", "<unk>")
    assert loaded.model_max_length == 99


def test_an_empty_token_has_a_name_and_unused_ones_stay() -> None:
    metadata = pieces_metadata(["", "ab", *LETTERS])
    metadata["tokenizer.ggml.token_type"][3 + 256 + 1] = UNUSED
    assert plan_tokenizer(metadata).tokens[3 + 256] == "[EMPTY_259]"
    prefix = {"tokenizer.ggml.add_space_prefix": False}
    assert encode(build(metadata | prefix), "ab") == [3 + 256 + 1]


def changed(key: str, value: Any) -> dict[str, Any]:
    return pieces_metadata([*PIECES, *LETTERS]) | {f"tokenizer.ggml.{key}": value}


@pytest.mark.parametrize(
    ("metadata", "named"),
    [
        ({}, r"tokenizer model(.|\n)*none stated(.|\n)*options: gpt2, llama"),
        ({"tokenizer.ggml.model": "bert"}, r"tokenizer model(.|\n)*bert"),
        ({"tokenizer.ggml.model": ["llama"]}, "tokenizer model"),
        ({"tokenizer.ggml.model": "llama"}, "no tokens"),
        (pairs_metadata("qwen9"), r"pre-tokenizer(.|\n)*qwen9(.|\n)*qwen2"),
        ({**pairs_metadata("qwen2"), "tokenizer.ggml.pre": None}, r"pre-tokenizer(.|\n)*none stated"),
        ({**pairs_metadata("qwen2"), "tokenizer.ggml.merges": None}, "no merges"),
        ({**pairs_metadata("qwen2"), "tokenizer.ggml.merges": ["a Zebra"]}, "merges of unknown tokens"),
        ({**pairs_metadata("qwen2"), "tokenizer.ggml.merges": ["ab"]}, "merges of unknown tokens"),
        ({**pairs_metadata("llama-bpe"), "tokenizer.ggml.bos_token_id": None}, "no .*bos_token_id"),
        ({**pairs_metadata("qwen2"), "tokenizer.ggml.merges": ["a b"] * 70_000}, "70000 merges of"),
        (pieces_metadata(["a" * 27 + str(i) for i in range(110_000)]), r"pieces of 35\d{5} characters"),
        (changed("precompiled_charsmap", [1]), r"normalizer(.|\n)*precompiled_charsmap"),
        (changed("remove_extra_whitespaces", True), r"normalizer(.|\n)*remove_extra_whitespaces"),
        (changed("scores", None), "0 scores for"),
        (changed("scores", [1.0]), "1 scores for"),
        (changed("scores", ["x"]), r"tokenizer\.ggml\.scores"),
        (changed("tokens", [1, 2]), r"tokenizer\.ggml\.tokens"),
        (changed("tokens", "abc"), r"tokenizer\.ggml\.tokens"),
        (changed("tokens", [*CONTROLS, *BYTES, "a", "a"]), "261 tokens, 260 of them different"),
        (changed("token_type", [1, 2]), "2 types for"),
        (changed("add_space_prefix", "no"), r"add_space_prefix(.|\n)*no(.|\n)*true, false"),
        (changed("bos_token_id", 10**6), r"the id 1000000 of 275 tokens in tokenizer\.ggml\.bos_token_id"),
        (changed("eot_token_id", -1), "the id -1"),
        (changed("eos_token_id", 1.5), r"eos_token_id(.|\n)*1\.5"),
        ({**changed("pre", "x"), "tokenizer.chat_template": 3}, r"tokenizer\.chat_template"),
        (pieces_metadata(["ab", "aé", "a", "b"]), r"1 pieces with characters that are no pieces.*'a\\xe9"),
        (pieces_metadata(["ab", "ba", "a", "b"], scores=[-1.0, -1.0, -2.0, -3.0]), r"scores .*'ab' and 'ba'"),
        (pieces_metadata(["a", "b"], scores=[float("nan"), 0.0]), "not finite"),
        (pieces_metadata(["a", "b" * 40_000]), "pieces of 4.* characters, 40000 in one"),
        (
            {**pieces_metadata(["a"], added=[" x"]), "general.name": "phi-3"},
            r"' x'.* among tokens that take the white space",
        ),
    ],
)  # fmt: skip
def test_what_would_come_out_wrong_is_refused_by_name(metadata: dict[str, Any], named: str) -> None:
    with pytest.raises(ModelUnavailable, match=named):
        plan_tokenizer(metadata)


def test_missing_byte_pieces_are_refused() -> None:
    metadata = pieces_metadata(["a"])
    keep = [i for i, t in enumerate(metadata["tokenizer.ggml.tokens"]) if t != "<0x41>"]
    cut = {k: [v[i] for i in keep] if isinstance(v, list) else v for k, v in metadata.items()}
    with pytest.raises(ModelUnavailable, match="1 of 256 byte pieces missing"):
        plan_tokenizer(cut)


def test_equal_scores_of_pieces_that_no_text_makes_are_no_fault() -> None:
    pieces = pieces_metadata(["ab", "a", "b", "x"], added=["[X]", "[Y]"])
    assert encode(build(pieces), "[X][Y]") == [3 + 256 + 4, 3 + 256 + 5]
