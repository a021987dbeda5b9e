"""Predicted speed: measured rates times the work of a step. Pure; the rates are measured elsewhere.

Where the roofline bounds a step from above, this adds up what the step does: the products with the weights at
their own sizes, attention over the caches as the plan stores them, and every other operation of the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from labkit.core.spec import Profile

# Primitives of mlx that make another view of an array and run nothing.
VIEWS = frozenset(
    ("Broadcast", "Transpose", "Flatten", "Unflatten", "Slice", "Reshape", "ExpandDims", "Squeeze", "Split")
)
# Primitives that are measured at their own sizes, so that they do not count as small ones.
PRODUCTS = frozenset(("Matmul", "QuantizedMatmul", "GatherMM", "GatherQMM", "AddMM"))


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be done. tokens: held by the caches. vocab: rows of the output matrix.

    primitives: of one decode step, name -> how many.
    """

    tokens: int
    vocab: int
    primitives: Mapping[str, int]

    @property
    def views(self) -> int:
        return sum(n for name, n in self.primitives.items() if name in VIEWS)

    @property
    def operations(self) -> int:
        """Small operations: neither views nor products."""
        return sum(n for name, n in self.primitives.items() if name not in VIEWS | PRODUCTS)


@dataclass(frozen=True, slots=True)
class AttentionTime:
    """Seconds of attention over one cache: of a decode step, and of a chunk of prefill in the middle.

    caches: how many of a row's are like it.
    """

    caches: int
    decode_s: float
    prefill_s: float


@dataclass(frozen=True, slots=True)
class Rates:
    """Measured in one process. products: with all matrices of a step.

    written: by sums of arrays, activated: by functions such as the exponential in an MLP.
    """

    decode_products_s: float
    prefill_products_s: float
    attention: tuple[AttentionTime, ...]
    operation_s: float
    view_s: float
    written_bytes_per_s: float
    activated_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of one step and what they are spent on."""

    products_s: float
    attention_s: float
    other_s: float

    @property
    def seconds(self) -> float:
        return self.products_s + self.attention_s + self.other_s


def decode_step(rates: Rates, work: Work) -> StepTime:
    """One decode step of all rows that the rates were measured for."""
    return StepTime(
        products_s=rates.decode_products_s,
        attention_s=sum(a.caches * a.decode_s for a in rates.attention),
        other_s=work.operations * rates.operation_s + work.views * rates.view_s,
    )


def prefill_chunk(profile: Profile, rates: Rates, layer_bytes: float, activated_bytes: float) -> StepTime:
    """A chunk in the middle of the prompt; of the last layer only keys and values are computed.

    layer_bytes: what a layer writes for a chunk, without the scores. activated_bytes: what its MLP activates.
    """
    depth = max(1, profile.depth)
    share = (depth - 1) / depth
    written_s = layer_bytes / rates.written_bytes_per_s + activated_bytes / rates.activated_bytes_per_s
    return StepTime(
        products_s=share * rates.prefill_products_s,
        attention_s=share * sum(a.caches * a.prefill_s for a in rates.attention),
        other_s=share * depth * written_s,
    )
