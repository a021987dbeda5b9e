"""Predicted peak of device memory: weights, caches as they grow, and what a layer in flight holds.

Pure: it counts the outputs that mlx allocates for one transformer layer, and measures nothing. The host
queues operations faster than a device runs them, so everything that a layer allocates is held at once, save
what mlx writes in place over an input that nobody needs any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from labkit.core.kv_setting import KVSetting
from labkit.core.spec import Profile
from labkit.model.fit_caches import Held, forwards, held
from labkit.model.fit_matrices import Matrix

# Head sizes whose attention mlx runs as one kernel on a GPU; any other writes its scores out.
FUSED_HEADS = frozenset((64, 80, 128))
# Logits and log-probabilities of the forward that is read and of the one queued behind it.
_ROWS_IN_FLIGHT = 4


@dataclass(frozen=True, slots=True)
class Widths:
    """Numbers per token of a layer's arrays. query: of all heads. kv: of keys, or values, of all heads.

    inner: the widest of the MLP, over the experts that a token is sent to. fused: whether norms, rotation
    and attention are one kernel each, as on a GPU; on a CPU mlx writes out what they are made of.
    """

    hidden: int
    query: int
    kv: int
    inner: int
    heads: int
    vocab: int
    item_bytes: int
    fused: bool

    def layer_bytes(self, tokens: int) -> float:
        """What the operations of a layer allocate for `tokens` tokens, without the scores.

        Hidden: the residual stream, two norms, the outputs of attention and MLP (on a CPU a norm writes the
        squares and the scaled input). Query: projected, rotated, attended to and laid out for the output (on
        a CPU rotation also writes four half products). Keys and values: projected, keys rotated.
        MLP: gate and up, whose product is written over one of them.
        """
        plain = 5 * self.hidden + 4 * self.query + 3 * self.kv
        parts = 0 if self.fused else 2 * self.hidden + 2 * self.query + 2 * self.kv
        # Unfused norms and rotations are computed in f32, whatever the weights are.
        return tokens * ((2 * self.inner + plain) * self.item_bytes + parts * max(self.item_bytes, 4))

    def score_bytes(self, tokens: int, keys: int, *, quantized: bool) -> float:
        """The scores of one layer's attention, `(heads, tokens, keys)`, and a mask of a byte each pair.

        Mask and softmax are written over the scores. mlx-lm's attention over quantized keys is never fused.
        """
        if self.fused and not quantized:
            return 0.0
        return tokens * keys * (self.heads * self.item_bytes + 1)

    def inner_bytes(self, tokens: int) -> int:
        """What the MLP activates for `tokens` tokens."""
        return tokens * self.inner * self.item_bytes

    def row_bytes(self) -> int:
        """Logits of one token."""
        return self.vocab * self.item_bytes


@dataclass(frozen=True, slots=True)
class Peak:
    """Peak device bytes and its parts, at the moment when their sum is largest.

    kv_bytes: room of all caches when the last token is there. working_bytes: the rest of the peak: what a
    layer holds in flight, and what caches hold before they are cut to a window. at_tokens: fed by then.
    """

    peak_bytes: float
    weight_bytes: int
    kv_bytes: float
    working_bytes: float
    at_tokens: int


def widths(profile: Profile, matrices: tuple[Matrix, ...], item_bytes: int, device: str) -> Widths:
    """The widths of a model's layers, from its profile and the shapes of its weights."""
    leaves = [leaf for cache in profile.caches for leaf in cache.leaves() if leaf.kv_heads]
    sizes = {size for leaf in leaves for size in (leaf.key_size, leaf.value_size)}
    inner = [m.rows * max(1, round(m.used)) for m in matrices if m.rows != profile.vocab_size]
    return Widths(
        hidden=profile.hidden_size,
        query=profile.heads * max(sizes, default=0),
        kv=max((leaf.kv_heads * max(leaf.key_size, leaf.value_size) for leaf in leaves), default=0),
        inner=max(inner, default=profile.hidden_size),
        heads=profile.heads,
        vocab=profile.vocab_size,
        item_bytes=item_bytes,
        fused=device != "cpu" and sizes <= FUSED_HEADS,
    )


def predict_peak(
    profile: Profile,
    wide: Widths,
    setting: KVSetting,
    weight_bytes: int,
    *,
    prompt_tokens: int,
    new_tokens: int,
    chunk: int,
    rows: int = 1,
) -> Peak:
    """The peak of `rows` requests that are prefilled one after the other and decoded together."""
    fed = tuple(forwards(prompt_tokens, new_tokens, chunk))
    peak, at_tokens, kv = float(weight_bytes), 0, 0.0
    for index, caches in enumerate(held(profile, setting, iter(fed))):
        decoding = index >= len(fed) - new_tokens
        together = rows if decoding else 1
        # While the last row is prefilled the others hold all of theirs.
        kv = caches.room_bytes * rows
        working = _layer(wide, caches, together)
        if decoding:
            working = max(working, _ROWS_IN_FLIGHT // 2 * wide.row_bytes() * together)
            working += _ROWS_IN_FLIGHT // 2 * wide.row_bytes() * together
        if weight_bytes + kv + working > peak:
            peak, at_tokens = weight_bytes + kv + working, caches.length
    return Peak(peak, weight_bytes, kv, peak - weight_bytes - kv, at_tokens)


def largest_context(fits: Callable[[int], bool], most: int) -> int:
    """The largest context of at most `most` tokens that fits; 0 where none does.

    fits: whether so many tokens fit; where it is true, it is true of fewer.
    """
    if most < 1 or not fits(1):
        return 0
    low, high = 1, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _layer(wide: Widths, caches: Held, rows: int) -> float:
    """What one layer holds beside the caches, while its own cache may be made anew."""
    scores = wide.score_bytes(rows * caches.fed, caches.attended, quantized=caches.coded)
    return wide.layer_bytes(rows * caches.fed) + scores + rows * caches.copied_bytes
