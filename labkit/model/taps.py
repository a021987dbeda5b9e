"""Taps: hidden states and attention of chosen layers, recorded beside a forward whose bits stay the same.

Knows mlx-lm's modules; no sessions, no steps. What is recorded are nodes of the lazy graph: the caller
evaluates them, and dropping them drops all there is.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx

from labkit.core.errors import LabkitError
from labkit.model.attention_weights import attention_weights, oldest_first
from labkit.model.tap_points import listening_to_attention, listening_to_layer

SPARSE = "indexer"


@dataclass(frozen=True, slots=True)
class Recorded:
    """hidden: layer -> `(n, hidden)`, its output. attention: layer -> `(heads, n, keys)` in f32.

    Keys from the oldest that the cache holds to the newest. Rows sum to 1, less what attention sinks take.
    """

    hidden: dict[int, mx.array] = field(default_factory=dict)
    attention: dict[int, mx.array] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tappable:
    """Why a layer's hidden state or attention cannot be recorded, by layer; None where it can."""

    hidden: tuple[str | None, ...]
    attention: tuple[str | None, ...]


@contextmanager
def recording(graph: Any, hidden: Sequence[int], attention: Sequence[int]) -> Iterator[Recorded]:
    """Record one forward of one row: `graph(tokens, cache=caches)`, made in the block by the same thread.

    hidden, attention: indices of `graph.layers`. Where a layer runs more than once in the block, its last run
    is kept. Raises LabkitError for layers that are not there, and after the forward for what it did not give;
    ask `tappable` before. The graph is as it was in any case.
    """
    layers = _layers(graph)
    for index in (*hidden, *attention):
        _check_index(layers, index)
        _check_layer(layers, index)
    recorder = _Recorder(frozenset(hidden), frozenset(attention))
    with _tapped(layers, recorder, sorted({*hidden, *attention})):
        yield recorder.recorded
    refused = [(index, why) for index in hidden if (why := recorder.why_not_hidden(index))]
    refused += [(index, why) for index in attention if (why := recorder.why_not_attention(index))]
    if refused:
        raise LabkitError(f"layer {refused[0][0]} cannot be recorded", got=refused[0][1])


def tappable(graph: Any) -> Tappable:
    """What can be recorded of a graph, from two forwards that are built and never evaluated.

    Raises LabkitError for a graph without layers.
    """
    layers = _layers(graph)
    there = frozenset(i for i, layer in enumerate(layers) if _why_not_layer(layers, layer) is None)
    recorders = (_Recorder(there, there), _Recorder(there, there))
    caches = _caches(graph)
    for recorder, tokens in zip(recorders, ([[0, 0]], [[0]]), strict=True):
        with _tapped(layers, recorder, sorted(there)):
            graph(mx.array(tokens), cache=caches)
    reasons = [_why_not_layer(layers, layer) for layer in layers]
    hidden, attention = list(reasons), list(reasons)
    for index in there:
        hidden[index] = next(filter(None, (r.why_not_hidden(index) for r in recorders)), None)
        calls = (r.why_not_attention(index) for r in recorders)
        attention[index] = _why_sparse(layers[index]) or next(filter(None, calls), None)
    return Tappable(tuple(hidden), tuple(attention))


def can_tap_attention(graph: Any, layer: int) -> bool:
    """Whether the attention of a layer can be recorded; `tappable` says why not."""
    _check_index(_layers(graph), layer)
    return tappable(graph).attention[layer] is None


class _Recorder:
    """Keeps what the tapped layers give, called on the thread that made it."""

    def __init__(self, hidden: frozenset[int], attention: frozenset[int]) -> None:
        self.recorded = Recorded()
        self._hidden, self._attention = hidden, attention
        self._thread = threading.get_ident()
        self._running: list[int] = []
        self._calls: dict[int, int] = {}
        self._shapes: dict[int, Any] = {}
        self._caches: list[tuple[Any, Any]] = []

    @property
    def elsewhere(self) -> bool:
        """Whether another thread's forward is what is heard."""
        return threading.get_ident() != self._thread

    def enter(self, layer: int) -> None:
        self._running.append(layer)
        self._calls[layer] = 0

    def leave(self, layer: int, output: Any) -> None:
        self._running.pop()
        if layer not in self._hidden:
            return
        first = output[0] if isinstance(output, (tuple, list)) else output
        self._shapes[layer] = getattr(first, "shape", None)
        if isinstance(first, mx.array) and first.ndim == 3 and first.shape[0] == 1:
            self.recorded.hidden[layer] = first[0]

    def attend(self, given: dict[str, Any]) -> None:
        """One call of the attention function, before it runs."""
        if self.elsewhere:
            return
        keys, cache = given["keys"], self._owner(given["keys"], given.get("cache"))
        layer = self._running[-1] if self._running else None
        if layer is None or layer not in self._attention:
            return
        self._calls[layer] += 1
        named = {name: given.get(name) for name in ("mask", "sinks")}
        weights = attention_weights(given["queries"], keys, cache, given.get("scale", 1.0), **named)
        self.recorded.attention[layer] = oldest_first(weights, cache)[0]

    def why_not_hidden(self, layer: int) -> str | None:
        if layer in self.recorded.hidden:
            return None
        if layer not in self._shapes:
            return "the model does not call it as a layer"
        return f"its output is not one row (1, n, hidden): {self._shapes[layer]}"

    def why_not_attention(self, layer: int) -> str | None:
        calls = self._calls.get(layer)
        if calls is None:
            return "the model does not call it as a layer"
        if calls == 0:
            return "it has no attention, or computes it without mlx-lm's scaled_dot_product_attention"
        return f"it attends {calls} times" if calls > 1 else None

    def _owner(self, keys: Any, cache: Any) -> Any:
        """The cache that these keys come from; layers that share another's keys are called without one."""
        if cache is not None:
            self._caches.append((keys, cache))
            return cache
        return next((owner for known, owner in self._caches if known is keys), None)


@dataclass(frozen=True, slots=True)
class _Listener:
    """One layer's ear."""

    recorder: _Recorder
    layer: int

    def enter(self) -> None:
        if not self.recorder.elsewhere:
            self.recorder.enter(self.layer)

    def leave(self, output: Any) -> None:
        if not self.recorder.elsewhere:
            self.recorder.leave(self.layer, output)


@contextmanager
def _tapped(layers: Sequence[Any], recorder: _Recorder, chosen: Sequence[int]) -> Iterator[None]:
    with ExitStack() as stack:
        for index in chosen:
            stack.enter_context(listening_to_layer(layers[index], _Listener(recorder, index)))
        stack.enter_context(listening_to_attention(layers, recorder.attend))
        yield


def _layers(graph: Any) -> list[Any]:
    layers = getattr(graph, "layers", None)
    if not isinstance(layers, (list, tuple)) or not layers:
        need = "a graph with a list of layers was needed to record them"
        raise LabkitError(need, got=f"{type(graph).__name__}.layers: {type(layers).__name__}")
    return list(layers)


def _check_index(layers: Sequence[Any], index: Any) -> None:
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(layers):
        raise LabkitError(f"a layer from 0 to {len(layers) - 1} was needed to record it", got=repr(index))


def _check_layer(layers: Sequence[Any], index: int) -> None:
    why = _why_not_layer(layers, layers[index])
    if why is not None:
        raise LabkitError(f"layer {index} cannot be recorded", got=why)


def _why_not_layer(layers: Sequence[Any], layer: Any) -> str | None:
    if layer is None:
        return "another rank of the pipeline holds it"
    if not callable(layer):
        return f"it cannot be called: {type(layer).__name__}"
    return "it stands at several places" if sum(layer is other for other in layers) > 1 else None


def _why_sparse(layer: Any) -> str | None:
    """An indexer hands over only the keys it picked, without their places, once there are enough of them."""
    sparse = any(hasattr(part, SPARSE) for part in layer.modules()) if hasattr(layer, "modules") else False
    return "an indexer picks its keys (sparse attention)" if sparse else None


def _caches(graph: Any) -> list[Any]:
    from mlx_lm.models.cache import make_prompt_cache

    return make_prompt_cache(graph)
