"""Calibration: how fast this process does the kinds of work that a step is made of. Predicts nothing.

Weights, queries, keys and values are made up; only their shapes and packing are a model's. Each rate is the
median of a few runs over more memory than the caches of a processor hold.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from labkit.model.fit_caches import STEP
from labkit.model.fit_matrices import Matrix
from labkit.model.fit_speed import AttentionTime, Rates, Work
from labkit.model.made_attention import attend, made
from labkit.model.stored import Stored

# A kind of work is run _RUNS times, or as often as fits into _SECONDS.
_RUNS, _SECONDS = 7, 0.12
# Larger than the caches of today's processors, and packed weights are slow enough on a CPU to need fewer.
_BYTES, _PACKED_BYTES = 48 << 20, 8 << 20
_CHAIN = 400
# Attention grows in proportion to the keys; beyond this many it is extended from two lengths.
_LONGEST = 4096
# Requests decoded together: what more of them take is extended from two numbers of rows.
_MOST_ROWS = 32
# Rows attend to keys of their own, so that those of some stand for those of all.
_KEPT_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Calibration:
    """What is measured with, of one model and one device.

    chunk: tokens of a prefill step. start: positions of a row when its caches are quantized. rows: requests
    decoded together, of which at most 32 are really made up. clock: seconds.
    """

    dtype: str
    hidden: int
    heads: int
    chunk: int
    start: int = 0
    rows: int = 1
    clock: Callable[[], float] = field(default=time.perf_counter)

    def rates(self, matrices: Sequence[tuple[Matrix, int]], caches: Sequence[Stored], work: Work) -> Rates:
        """The rates for the work of a model. Takes about two seconds for a small model on a CPU."""
        import mlx.core as mx

        operation, view = _extended(self._operation_s, self.rows, _MOST_ROWS), self._view_s()
        body = [(m, n) for m, n in matrices if m.rows != work.vocab]
        found = Rates(
            decode_products_s=sum(n * m.used * self._decoded_s(m) for m, n in matrices),
            prefill_products_s=sum(n * m.used * self._product_s(m, self.chunk) for m, n in body),
            attention=tuple(
                self._attention(c, n, work) for c, n in Counter(caches).items() if c.leaf.kv_heads
            ),
            operation_s=operation,
            view_s=view,
            written_bytes_per_s=self._written_bytes_per_s(lambda chunk: chunk + chunk),
            activated_bytes_per_s=self._written_bytes_per_s(mx.exp),
        )
        mx.clear_cache()
        return found

    def _decoded_s(self, matrix: Matrix) -> float:
        """Seconds of the product of a decode step of all rows with one matrix of a kind."""
        return _extended(lambda rows: self._product_s(matrix, rows, decoding=True), self.rows, _MOST_ROWS)

    def _product_s(self, matrix: Matrix, tokens: int, *, decoding: bool = False) -> float:
        """Seconds of one product of `tokens` inputs with one matrix of a kind.

        decoding: the weights come from memory, as they do where a step meets each of them once.
        """
        import mlx.core as mx

        budget = _PACKED_BYTES if matrix.packing else _BYTES
        rows = max(1, min(matrix.rows, int(budget / (matrix.nbytes / matrix.rows))))
        part = matrix.nbytes * rows / matrix.rows
        copies = max(1, int(budget / part)) if decoding or tokens == 1 else 1
        inputs = mx.full((1, tokens, matrix.columns), 0.01, dtype=self._dtype)
        weights = [self._weights(matrix, rows) for _ in range(copies)]
        mx.eval(inputs, weights)
        seconds = self._median(lambda: mx.eval([_product(inputs, w, matrix) for w in weights]))
        return seconds / copies * matrix.rows / rows

    def _weights(self, matrix: Matrix, rows: int) -> list[Any]:
        """A matrix of a kind, cut to `rows` rows: the weights, or words, scales and biases."""
        import mlx.core as mx

        packing = matrix.packing
        if packing is None:
            return [mx.full((rows, matrix.columns), 0.01, dtype=self._dtype)]
        plain = mx.full((rows, matrix.columns), 0.01, dtype=self._dtype)
        return list(mx.quantize(plain, packing.group_size, packing.bits, mode=packing.mode))

    def _attention(self, cache: Stored, count: int, work: Work) -> AttentionTime:
        """Seconds of one query, and of a chunk of queries, over the keys of one cache.

        A cache is quantized after the forward that reaches the start, so a first chunk attends to plain keys.
        """
        leaf = cache.leaf
        kept = work.tokens if leaf.window is None else min(work.tokens, leaf.window)
        seen = (work.tokens + 1) // 2 if leaf.window is None else kept
        first = Stored(leaf) if work.tokens <= 2 * max(self.chunk, self.start) else cache
        decoded = cache.at(work.tokens, self.start)
        return AttentionTime(
            caches=count,
            decode_s=_extended(lambda keys: self._read_s(decoded, keys), kept, _LONGEST),
            prefill_s=_extended(
                lambda keys: self._attended_s(first, max(keys, self.chunk), self.chunk, 1), seen, _LONGEST
            ),
        )

    def _read_s(self, cache: Stored, keys: int) -> float:
        """Seconds of the queries of a decode step of all rows over `keys` keys of each."""
        row_bytes = keys * cache.token_bytes or 1.0
        few = max(1, min(self.rows, _MOST_ROWS, int(_KEPT_BYTES / row_bytes)))
        return self._attended_s(cache, keys, 1, few) * (self.rows / few)

    def _attended_s(self, cache: Stored, keys: int, queries: int, rows: int) -> float:
        """Seconds of `queries` queries over `keys` keys of a cache that has room in whole steps."""
        import mlx.core as mx

        leaf, kept = cache.leaf, cache.kept
        room = -(-keys // STEP) * STEP
        shape = (rows, leaf.kv_heads, room)
        layer_bytes = 2 * room * rows * cache.token_bytes or 1.0
        copies = 1 if queries > 1 else max(1, min(32, int(_BYTES / 2 / layer_bytes)))
        asked = mx.full((rows, self.heads, queries, leaf.key_size), 0.01, dtype=self._dtype)
        sides = ((leaf.key_size, kept and kept.k_bits), (leaf.value_size, kept and kept.v_bits))
        caches = [
            [made((*shape, size), kept, bits, self._dtype) for size, bits in sides] for _ in range(copies)
        ]
        mx.eval(asked, caches)
        return self._median(lambda: mx.eval([attend(asked, k, v, keys, kept) for k, v in caches])) / copies

    def _operation_s(self, rows: int) -> float:
        """Seconds of one small operation on `rows` rows in a chain, queued and run."""
        import mlx.core as mx

        vector = mx.full((rows, 1, self.hidden), 0.01, dtype=self._dtype)
        mx.eval(vector)

        def chain() -> None:
            value = vector
            for _ in range(_CHAIN):
                value = value + vector
            mx.eval(value)

        return self._median(chain) / _CHAIN

    def _view_s(self) -> float:
        """Seconds of one operation that moves nothing, such as a reshape."""
        import mlx.core as mx

        vector = mx.full((1, 1, self.hidden), 0.01, dtype=self._dtype)
        mx.eval(vector)

        def chain() -> None:
            value = vector
            for axis in range(_CHAIN):
                value = mx.swapaxes(value, axis % 2, 2)
            mx.eval(value)

        return self._median(chain) / _CHAIN

    def _written_bytes_per_s(self, operation: Callable[[Any], Any]) -> float:
        """Bytes a second that an elementwise operation over a chunk writes."""
        import mlx.core as mx

        chunk = mx.full((1, self.chunk, self.hidden), 0.01, dtype=self._dtype)
        mx.eval(chunk)
        return chunk.nbytes / self._median(lambda: mx.eval(operation(chunk)))

    @property
    def _dtype(self) -> Any:
        import mlx.core as mx

        found = getattr(mx, self.dtype, None)
        return found if isinstance(found, mx.Dtype) else mx.float32

    def _median(self, work: Callable[[], None]) -> float:
        work()
        times: list[float] = []
        while len(times) < _RUNS and (sum(times) < _SECONDS or len(times) < 3):
            started = self.clock()
            work()
            times.append(self.clock() - started)
        return max(statistics.median(times), 1e-9)


def _extended(measure: Callable[[int], float], count: int, most: int) -> float:
    """What `measure` gives for `count`, or beyond `most` the straight line through `most` and half of it."""
    if count <= most:
        return measure(max(1, count))
    half, whole = measure(most // 2), measure(most)
    return whole + max(0.0, whole - half) * ((count - most) / (most / 2))


def _product(inputs: Any, weights: list[Any], matrix: Matrix) -> Any:
    """`(1, n, columns)` by the transpose of `(rows, columns)`, as mlx's linear layers do it."""
    import mlx.core as mx

    packing = matrix.packing
    if packing is None:
        return inputs @ weights[0].T
    biases = weights[2] if len(weights) > 2 else None
    return mx.quantized_matmul(
        inputs,
        weights[0],
        scales=weights[1],
        biases=biases,
        transpose=True,
        group_size=packing.group_size,
        bits=packing.bits,
        mode=packing.mode,
    )
