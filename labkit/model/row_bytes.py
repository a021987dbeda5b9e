"""Row bytes: what the caches of one row have allocated, for whoever admits rows. Pure; runs no model.

In closed form, where `fit_caches` goes through every forward. mlx-lm 0.32.2, `models/cache.py`: a cache makes
room in steps of 256; a ring joins a chunk to what it keeps and is cut to its window by the next single token.
"""

from __future__ import annotations

import math
from collections import Counter

from labkit.core.kv_setting import KVSetting
from labkit.core.spec import CacheShape, Profile
from labkit.model.fit_caches import STEP
from labkit.model.stored import Stored, stored


def row_bytes_at(profile: Profile, setting: KVSetting, tokens: int, chunk: int = STEP) -> int:
    """Bytes that a row's caches have allocated once `tokens` positions are filled and its prompt is read.

    chunk: of the prefill. Exact for full layers where it is a multiple of 256; else, and on sliding layers
    that are not full, at most 255 positions too many, since room depends on where the prompt ended.
    """
    return _total(profile, setting, tokens, tokens, chunk, reading=False)


def row_bytes_most(
    profile: Profile, setting: KVSetting, prompt_tokens: int, new_tokens: int, chunk: int
) -> int:
    """The most that a row's caches have allocated at any moment between its first chunk and its last token.

    More than at the end where the first chunk, or what comes before `start`, lies there unquantized, and
    where a chunk stands beside a window.
    """
    read, length = prompt_tokens - 1, prompt_tokens + new_tokens - 1
    plain = _first_quantized(setting.start, read, length, chunk)
    reading = [(read, read, True)] + ([(plain, 0, True)] if plain <= read else [])
    later = row_bytes_later(profile, setting, prompt_tokens, new_tokens, chunk)
    return max(later, *(_total(profile, setting, at, by, chunk, reading=now) for at, by, now in reading))


def row_bytes_later(
    profile: Profile, setting: KVSetting, prompt_tokens: int, new_tokens: int, chunk: int
) -> int:
    """The most from the first token on, when its prompt is read: the length that it ends with, or `start`."""
    read, length = prompt_tokens - 1, prompt_tokens + new_tokens - 1
    plain = _first_quantized(setting.start, read, length, chunk)
    moments = [(length, length)] + ([(plain, 0)] if plain > read else [])
    return max(_total(profile, setting, at, by, chunk, reading=False) for at, by in moments)


def _first_quantized(start: int, read: int, length: int, chunk: int) -> int:
    """Positions after the forward that reaches `start`, when caches are plain for the last time."""
    if start <= read:
        return min(read, max(1, -(-start // chunk)) * chunk) or 1
    return min(start, length)


def _total(
    profile: Profile, setting: KVSetting, tokens: int, as_of: int, chunk: int, *, reading: bool
) -> int:
    """Bytes at a length. as_of: the length by which caches are quantized. reading: the prompt still."""
    if not tokens:
        return 0
    caches = Counter(stored(profile, setting))
    held = (
        count * _bytes(cache.at(as_of, setting.start), _room(cache.leaf, tokens, chunk, reading=reading))
        for cache, count in caches.items()
    )
    return math.ceil(sum(held))


def _bytes(cache: Stored, room: int) -> float:
    return cache.leaf.state_bytes + room * cache.token_bytes


def _room(leaf: CacheShape, tokens: int, chunk: int, *, reading: bool) -> int:
    """Positions that a cache has room for, the most there can be."""
    match leaf.name:
        case "KVCache":
            return _in_steps(tokens, chunk)
        case "RotatingKVCache":
            assert leaf.window is not None
            return min(tokens, leaf.window - 1 + chunk) if reading else min(tokens + STEP - 1, leaf.window)
        case "ChunkedKVCache":
            assert leaf.window is not None
            return min(_in_steps(tokens, chunk), leaf.window + _in_steps(chunk if reading else 1, STEP))
    return tokens


def _in_steps(tokens: int, chunk: int) -> int:
    """Whole steps; where chunks are none, a chunk that did not fit left a step that is partly used."""
    return -(-tokens // STEP) * STEP if chunk % STEP == 0 else tokens + STEP - 1
