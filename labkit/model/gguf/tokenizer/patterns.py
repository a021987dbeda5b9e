"""Pre-tokenizers of byte-level BPE by the name a GGUF file gives them: how text is cut before merging.

A name stands for patterns that are applied one behind the other, each to the pieces that the last one left.
They are the patterns of the models' own tokenizers in the form in which llama.cpp applies them; where it
simplifies (letter case in `tekken` and `gpt-4o`, no NFC in `qwen2`), it is followed, since it is the oracle.
Every one was compared with llama.cpp over all of Unicode. A name that is not here is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from labkit.model.gguf.tokenizer.unicode import DEEPSEEK_LETTERS

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTION = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_MARKED_WORDS = r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_SIGNS_OR_SLASH = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_LOWER, _UPPER = r"[\p{L}&&[^A-Z]]", r"[\p{L}&&[^a-z]]"
_CASED = r"[^\r\n\p{L}\p{N}]?"
_DIGIT, _THREE_DIGITS = r"\p{N}", r"\p{N}{1,3}"
# Up to U+4E00 the range holds white space, which no class but \s matches in llama.cpp.
_EAST_ASIAN = r"[[\x{800}-\x{9FA5}\x{AC00}-\x{D7FF}]&&\S]+"


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    r"""patterns: Oniguruma syntax with `\p{..}`, in the order of application; matches and gaps are pieces.

    ignore_merges: a piece that is a token is not built by merges. add_bos: where the file does not say.
    """

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False


def _llama3(*, ignore_merges: bool = False, add_bos: bool = False) -> PreTokenizer:
    pattern = "|".join((_CONTRACTION, _WORDS, _THREE_DIGITS, _SIGNS, _SPACES))
    return PreTokenizer((pattern,), ignore_merges, add_bos)


def _cased(digits: str, suffix: str = "") -> str:
    """Words cut at a change of case: `tekken` and, with contractions behind the word, `gpt-4o`."""
    words = (f"{_CASED}{_UPPER}*{_LOWER}+{suffix}", f"{_CASED}{_UPPER}+{_LOWER}*{suffix}")
    return "|".join((*words, digits, _SIGNS_OR_SLASH, _SPACES))


def _patterns(*patterns: str) -> PreTokenizer:
    return PreTokenizer(patterns)


_SINGLE_DIGITS = _patterns(_DIGIT, _GPT2)
_PLAIN = _patterns(_GPT2)
_LLAMA3 = _llama3(ignore_merges=True, add_bos=True)
_QWEN2 = _patterns("|".join((_CONTRACTION, _WORDS, _DIGIT, _SIGNS, _SPACES)))
_QWEN35 = _patterns(
    "|".join((_CONTRACTION, _MARKED_WORDS, _DIGIT, r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*", _SPACES))
)
_SEED = _patterns("|".join((_CONTRACTION, _WORDS, _DIGIT, r" ?[^\s\p{L}\p{N}\r\n]+", _SPACES)))
_TEKKEN = PreTokenizer((_cased(_DIGIT),), ignore_merges=True, add_bos=True)
_GPT4O = _patterns(_cased(_THREE_DIGITS, f"{_CONTRACTION}?"))
_FALCON = _patterns(r"[\p{P}$+<=>^~|`]+", _GPT2, "[0-9][0-9][0-9]")
_DEFAULT = _patterns(r"[\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")
_DEEPSEEK_CODER = _patterns(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _EAST_ASIAN, _DIGIT)
_DEEPSEEK = _patterns(
    r"[\r\n]",
    rf"\s?[{DEEPSEEK_LETTERS}]+",
    r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3001}\x{3002}]+",
    r"\s+\z",
    _EAST_ASIAN,
    r"\p{N}+",
)
_DEEPSEEK3_WORDS = (
    r"[!-/:-@\[-`{-~][A-Za-z]+",
    r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
    r" ?[\p{P}\p{S}]+[\r\n]*",
    _SPACES,
)
_DEEPSEEK3 = _patterns(
    _THREE_DIGITS,
    r"[\x{4E00}-\x{9FA5}\x{3040}-\x{30FF}]+",
    "|".join(_DEEPSEEK3_WORDS),
)

_GROUPS: tuple[tuple[PreTokenizer, tuple[str, ...]], ...] = (
    (_SINGLE_DIGITS, ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b")),
    (_PLAIN, ("gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "gigachat", "mellum", "a.x-4.0")),
    (_PLAIN, ("exaone4", "granite-docling")),
    (_LLAMA3, ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2")),
    (_llama3(), ("dbrx", "smaug-bpe", "chatglm-bpe")),
    (_llama3(ignore_merges=True), ("glm4",)),
    (_QWEN2, ("qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez", "kormo", "grok-2")),
    (_QWEN35, ("qwen35",)),
    (_SEED, ("seed-coder",)),
    (_TEKKEN, ("tekken",)),
    (_GPT4O, ("gpt-4o", "llama4", "kanana2")),
    (_FALCON, ("falcon",)),
    (_DEFAULT, ("default",)),
    (_DEEPSEEK_CODER, ("deepseek-coder",)),
    (_DEEPSEEK, ("deepseek-llm",)),
    (_DEEPSEEK3, ("deepseek-v3", "hunyuan-dense", "joyai-llm")),
)

PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {
    name: pre_tokenizer for pre_tokenizer, names in _GROUPS for name in names
}
