"""Cache growth: the tokens that mlx-lm's caches make room for as a row is fed. Pure; measures nothing.

mlx-lm 0.32.2, `models/cache.py`: room comes in steps of 256, a rotating cache joins chunks to what it keeps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from labkit.core.kv_setting import KVSetting
from labkit.core.spec import CacheShape, Profile
from labkit.model.stored import Stored, stored

STEP = 256
# (shape, tokens with room, tokens fed before, tokens fed now) -> tokens with room afterwards.
Growth = Callable[[CacheShape, int, int, int], int]


@dataclass(frozen=True, slots=True)
class Held:
    """The caches of one row around one forward of `fed` tokens; `length` tokens have been fed after it.

    room_bytes: of all caches afterwards. copied_bytes: what the largest cache held before it and adds to it
    while it grows, beside what it becomes; 0 where none grows. attended: keys that a query may see, the most.
    coded: whether any of them are codes.
    """

    fed: int
    length: int
    room_bytes: float
    copied_bytes: float
    attended: int
    coded: bool


def forwards(prompt_tokens: int, new_tokens: int, chunk: int) -> Iterator[int]:
    """Tokens of each forward: the prompt but its last token in chunks, then one a new token."""
    rest = prompt_tokens - 1
    while rest > 0:
        yield min(chunk, rest)
        rest -= chunk
    yield from (1 for _ in range(new_tokens))


def held(profile: Profile, setting: KVSetting, fed: Iterator[int]) -> Iterator[Held]:
    """The caches of one row around each of the forwards."""
    caches = Counter(stored(profile, setting))
    room, length = dict.fromkeys(caches, 0), 0
    for count in fed:
        # What a forward reads is as it was settled after the one before.
        read = {cache: cache.at(length, setting.start) for cache in caches}
        before = dict(room)
        room = {cache: _grow(cache.leaf, room[cache], length, count) for cache in caches}
        length += count
        kept = {cache: cache.at(length, setting.start) for cache in caches}
        yield Held(
            fed=count,
            length=length,
            room_bytes=sum(n * _bytes(kept[cache], room[cache]) for cache, n in caches.items()),
            copied_bytes=max((_copied(read[c], before[c], room[c], count) for c in caches), default=0.0),
            attended=max((_attended(c.leaf, room[c], length) for c in caches), default=0),
            coded=any(cache.kept is not None for cache in read.values()),
        )


def _grow(leaf: CacheShape, room: int, before: int, count: int) -> int:
    return _GROWTH.get(leaf.name, _exactly)(leaf, room, before, count)


def _in_steps(leaf: CacheShape, room: int, before: int, count: int) -> int:
    """Whole steps are added where the tokens do not fit, after what was filled of the last step."""
    if before + count <= room:
        return room
    kept = room if before % STEP == 0 else before
    return kept + -(-count // STEP) * STEP


def _rotating(leaf: CacheShape, room: int, before: int, count: int) -> int:
    """A chunk is joined to the newest window - 1 tokens; a single token cuts that to the window again."""
    assert leaf.window is not None
    if count > 1:
        return min(room, leaf.window - 1) + count
    if before >= room < leaf.window:
        room += min(STEP, leaf.window - before)
    return min(room, leaf.window)


def _chunked(leaf: CacheShape, room: int, before: int, count: int) -> int:
    """As in steps, but what lies before the window is dropped when a forward begins."""
    assert leaf.window is not None
    kept = min(before, leaf.window)
    return _in_steps(leaf, min(room, leaf.window + STEP), kept, count)


def _exactly(leaf: CacheShape, room: int, before: int, count: int) -> int:
    return before + count


# Made anew by every chunk, also when as large as before.
_JOINED = frozenset(("RotatingKVCache",))
_GROWTH: Mapping[str, Growth] = {
    "KVCache": _in_steps,
    "RotatingKVCache": _rotating,
    "ChunkedKVCache": _chunked,
}


def _bytes(cache: Stored, room: int) -> float:
    return cache.leaf.state_bytes + room * cache.token_bytes


def _copied(cache: Stored, before: int, after: int, count: int) -> float:
    """What lies beside a cache that is made anew: its old form and, where it grew, the part added."""
    anew = before != after or (count > 1 and cache.leaf.name in _JOINED)
    if not anew or not before:
        return 0.0
    return (before + max(0, after - before)) * cache.token_bytes


def _attended(leaf: CacheShape, room: int, length: int) -> int:
    if not leaf.kv_heads:
        return 0
    return min(length, room if leaf.window else length)
