"""Unicode categories of version 15.1 for the patterns of pre-tokenizers, whatever the regex library holds.

llama.cpp's tables are of 15.1; the library's are newer, and a character that became a letter since then would
be split elsewhere. Sources: the Unicode character database (what 16.0 added), Oniguruma's class syntax.
"""

from __future__ import annotations

import re

_CATEGORY = re.compile(r"\\p\{([LNPSM])\}")

# Every letter, mark, number, punctuation and symbol that Unicode 16.0 added.
_ADDED_IN_16 = (
    "897 1B4E-1B4F 1B7F 1C89-1C8A 2427-2429 31E4-31E5 A7CB-A7CD A7DA-A7DC 105C0-105F3 10D40-10D8F "
    "10EC2-10EFC 11380-113E2 116D0-116E3 11BC0-11BF9 11F5A 13460-143FA 16100-16139 16D40-16D79 18CFF "
    "1CC00-1CEB3 1E5D0-1E5FF 1F8B2-1F8C1 1FA89-1FA8F 1FABE 1FAC6 1FADC-1FADF 1FAE9 1FBCB-1FBEF"
)

# The cased letters of Latin, Greek, Cyrillic, Armenian, Georgian, Cherokee ... that DeepSeek LLM lists.
_DEEPSEEK_LETTERS = (
    "41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376-377 37B-37D 37F 386 388-38A 38C "
    "38E-3A1 3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF 1D00-1D2B "
    "1D6B-1D77 1D79-1D9A 1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59 1F5B 1F5D 1F5F-1F7D "
    "1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 "
    "2107 210A-2113 2115 2119-211D 2124 2126 2128 212A-212D 212F-2134 2139 213C-213F 2145-2149 214E "
    "2183-2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2-2CF3 A640-A66D A680-A69B A722-A76F A771-A787 A78B-A78E "
    "AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A 10400-1044F 104B0-104D3 104D8-104FB 10C80-10CB2 "
    "10CC0-10CF2 118A0-118DF 1E900-1E943"
)


def character_class(ranges: str) -> str:
    r"""`41-5A B5` as `\x{41}-\x{5A}\x{B5}`, to stand between brackets."""
    return "".join("-".join(rf"\x{{{c}}}" for c in part.split("-")) for part in ranges.split())


DEEPSEEK_LETTERS = character_class(_DEEPSEEK_LETTERS)


def pin(pattern: str) -> str:
    r"""The pattern with `\p{L}`, `\p{N}`, `\p{P}`, `\p{S}` and `\p{M}` as nested classes of Unicode 15.1."""
    added = character_class(_ADDED_IN_16)
    return _CATEGORY.sub(lambda found: rf"[\p{{{found[1]}}}&&[^{added}]]", pattern)
