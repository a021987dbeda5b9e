"""Rows that decode together beside the same rows alone, so that every logit of both can be compared."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import make_prompt_cache

from labkit.core.kv_setting import KVSetting, LayerKV
from labkit.kv.affine import Affine
from labkit.kv.base import Scheme
from labkit.kv.plain import Plain
from labkit.kv.together import Together
from labkit.model.backend import prepare
from labkit.model.dry_run import trace
from labkit.model.positions import why_even

CHUNK = 16
# Padded rows, and all rows under a BLAS that sums a batch in another order: sums of tens of products of
# numbers near one, an ulp of f32 (1.2e-7) each, through a few layers.
ENVELOPE = 1e-4
# Codes of numbers an ulp apart: one step, and the scale's own ulps over up to 255 steps.
STEP = 1.1


def plain(graph: Any) -> Scheme:
    return Plain(KVSetting("bf16"))


def codes(
    k_bits: int, v_bits: int | None = None, *, start: int = 0, short: bool = False
) -> Callable[[Any], Scheme]:
    """What makes an affine scheme of all layers of a graph."""
    kept = LayerKV(k_bits, v_bits or k_bits, 32, short)
    return lambda graph: Affine(KVSetting("affine", (kept,) * len(make_prompt_cache(graph)), start))


def exact(dtype: mx.Dtype) -> bool:
    """Whether a row's numbers are the same in any batch here."""
    return dtype != mx.float32 or prepare().blas == "reference"


def filled(graph: Any, scheme: Scheme, length: int, salt: int = 0) -> list[Any]:
    """The caches of a row that has read a prompt in chunks."""
    caches, prompt = scheme.make(graph), [(7 * length + 3 * i + 31 * salt) % 50 + 1 for i in range(length)]
    for start in range(0, length, CHUNK):
        mx.eval(graph(mx.array([prompt[start : start + CHUNK]]), cache=caches))
        scheme.settle(caches)
    return caches


@dataclass
class Row:
    """A row as it goes on alone. gap: the largest difference of a logit of its own from the batch's."""

    caches: list[Any]
    scheme: Scheme
    salt: int
    gap: float = 0.0


class Beside:
    """The same rows twice: together, and each alone. The two take the same tokens."""

    def __init__(self, graph: Any, *, by_name: bool | None = None) -> None:
        self.graph = graph
        by_name = trace(graph).quantizes if by_name is None else by_name
        self.together = Together(by_name=by_name, why_even=why_even(graph))
        self.rows: list[Row] = []
        self._made = 0

    def add(self, *rows: tuple[int, Callable[[Any], Scheme]]) -> None:
        """More rows, each a length of its prompt and what makes its scheme."""
        new = []
        for length, make in rows:
            self._made += 1
            scheme = make(self.graph)
            new.append(Row(filled(self.graph, scheme, length, self._made), scheme, self._made))
        self.together.add([copy.deepcopy(row.caches) for row in new], [row.scheme for row in new])
        self.rows += new

    def step(self, count: int = 1) -> None:
        """Tokens, other ones in every row."""
        for turn in range(count):
            tokens = [(11 * turn + 5 * row.salt) % 50 + 1 for row in self.rows]
            logits = self.graph(mx.array(tokens)[:, None], cache=self.together.caches)[:, -1]
            self.together.settle()
            for row, token, its in zip(self.rows, tokens, logits, strict=True):
                row.gap = max(row.gap, self.gap(row, token, its))

    def keep(self, indices: Sequence[int]) -> None:
        self.together.keep(indices)
        self.rows = [self.rows[index] for index in indices]

    def take(self, index: int, steps: int = 3) -> float:
        """The largest gap between a row that was taken out and the row alone, both going on by themselves."""
        taken, row, gap = self.together.take(index), copy.deepcopy(self.rows[index]), 0.0
        for token in range(1, steps + 1):
            logits = self.graph(mx.array([[token]]), cache=taken)[0, -1]
            row.scheme.settle(taken)
            gap = max(gap, self.gap(row, token, logits))
        return gap

    def codes_that_differ(self) -> tuple[float, float]:
        """The share of the rows' codes that are not those of the row alone, and how far apart what they stand
        for is at most, in steps of the code. A scale may change its sign by an ulp: the codes turn about, and
        stand for the same.
        """
        shares, furthest = list[np.ndarray](), 0.0
        for index, row in enumerate(self.rows):
            for mine, its in zip(self.together.take(index), row.caches, strict=True):
                for (words, shown, _), (other, those, step) in zip(_codes(mine), _codes(its), strict=True):
                    shares.append((words != other).ravel())
                    furthest = max(furthest, float((np.abs(shown - those) / step).max()))
        return float(np.concatenate(shares).mean()), furthest

    def layouts(self) -> list[str]:
        """The classes that the graph is given."""
        return [type(cache).__name__ for cache in self.together.caches]

    def gaps(self) -> list[float]:
        return [row.gap for row in self.rows]

    def gap(self, row: Row, token: int, logits: mx.array) -> float:
        alone = self.graph(mx.array([[token]]), cache=row.caches)[0, -1]
        row.scheme.settle(row.caches)
        return float(mx.abs(alone.astype(mx.float32) - logits.astype(mx.float32)).max().item())  # type: ignore[arg-type]


def _codes(cache: Any) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Codes of keys and of values, of 8 or 4 bits; what they stand for; the step between two.

    Nothing where a cache has no codes.
    """
    if not isinstance(cache.keys, (tuple, list)):
        return []
    bits = getattr(cache, "k_bits", None) or cache.bits, getattr(cache, "v_bits", None) or cache.bits
    found = []
    for held, width in zip((cache.keys, cache.values), bits, strict=True):
        words, *steps = (leaf[:, :, : min(cache.offset, leaf.shape[2])] for leaf in held)
        bytes_of = np.array(mx.contiguous(words)).view(np.uint8)
        codes = bytes_of if width == 8 else np.stack([bytes_of % 16, bytes_of // 16], axis=-1)
        scale, bias = (step.astype(mx.float32) for step in steps)
        shown = mx.dequantize(words, scale, bias, group_size=cache.group_size, bits=width)
        found.append((codes, np.array(shown), np.repeat(np.abs(np.array(scale)), cache.group_size, axis=-1)))
    return found
