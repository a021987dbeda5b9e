"""Tap points: where a listener can be put into a graph and taken out again. Knows no recordings.

A layer gets a subclass of its own class for as long as somebody listens, so that attributes, parameters and
isinstance are unchanged; an architecture's module gets a stand-in for mlx-lm's attention function, which it
holds by name. Listeners may come and go in any order; the last one to go leaves everything as it was.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

ATTENTION = "scaled_dot_product_attention"
ARGUMENTS = ("queries", "keys", "values", "cache", "scale", "mask", "sinks")
# Two threads that tap one architecture must not restore under each other's hands.
_CHANGING = threading.Lock()


class LayerListener(Protocol):
    """Hears of the calls of one layer."""

    def enter(self) -> None: ...

    def leave(self, output: Any) -> None:
        """output: what the layer returned, None where it raised."""
        ...


AttentionListener = Callable[[dict[str, Any]], None]


class _Attention:
    """Stands in for an attention function: calls the listeners with its arguments, then the function."""

    def __init__(self, original: Callable[..., Any]) -> None:
        self.original = original
        self.listeners: list[AttentionListener] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # mlx-lm's quantized attention scales the queries in place: the listeners must come first.
        for listener in tuple(self.listeners):
            listener(dict(zip(ARGUMENTS, args, strict=False)) | kwargs)
        return self.original(*args, **kwargs)


def wrap_attention(layers: Iterable[Any], wrapper: type[Any]) -> None:
    """Put a wrapper around mlx-lm's attention function where these layers' modules hold it, to stay there.

    Nothing is done where one of its class is there already; listeners stay outside of it.
    """
    with _CHANGING:
        for namespace in _namespaces(layers):
            held = namespace[ATTENTION]
            inner = held.original if isinstance(held, _Attention) else held
            if type(inner) is wrapper:
                continue
            if isinstance(held, _Attention):
                held.original = wrapper(inner)
            else:
                namespace[ATTENTION] = wrapper(inner)


@contextmanager
def listening_to_layer(layer: Any, listener: LayerListener) -> Iterator[None]:
    """Tell the listener of every call of a layer made in the block.

    Raises TypeError for an object whose class cannot be replaced.
    """
    with _CHANGING:
        if "tap_listeners" not in vars(type(layer)):
            object.__setattr__(layer, "__class__", _tapped(type(layer)))
        listeners: list[LayerListener] = type(layer).tap_listeners
        listeners.append(listener)
    try:
        yield
    finally:
        with _CHANGING:
            listeners.remove(listener)
            if not listeners:
                object.__setattr__(layer, "__class__", type(layer).__base__)


@contextmanager
def listening_to_attention(layers: Iterable[Any], listener: AttentionListener) -> Iterator[None]:
    """Tell the listener of every call that these layers' modules make of mlx-lm's attention function."""
    with ExitStack() as stack:
        for namespace in _namespaces(layers):
            stack.enter_context(_listening_in(namespace, listener))
        yield


@contextmanager
def _listening_in(namespace: dict[str, Any], listener: AttentionListener) -> Iterator[None]:
    with _CHANGING:
        if not isinstance(namespace[ATTENTION], _Attention):
            namespace[ATTENTION] = _Attention(namespace[ATTENTION])
        attention: _Attention = namespace[ATTENTION]
        attention.listeners.append(listener)
    try:
        yield
    finally:
        with _CHANGING:
            attention.listeners.remove(listener)
            if not attention.listeners and namespace[ATTENTION] is attention:
                namespace[ATTENTION] = attention.original


def _namespaces(layers: Iterable[Any]) -> list[dict[str, Any]]:
    """The modules that define the classes of these layers and of their parts, where they hold the name."""
    parts = [part for layer in layers if hasattr(layer, "modules") for part in layer.modules()]
    classes = dict.fromkeys(kind for part in parts for kind in type(part).__mro__)
    names = dict.fromkeys(kind.__module__ for kind in classes)
    modules = [vars(sys.modules[name]) for name in names if name in sys.modules]
    return [module for module in modules if ATTENTION in module]


def _tapped(base: type[Any]) -> type[Any]:
    """A subclass that tells its listeners of every call."""
    listeners: list[LayerListener] = []

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        heard = tuple(listeners)
        for listener in heard:
            listener.enter()
        output = None
        try:
            output = base.__call__(self, *args, **kwargs)
        finally:
            for listener in reversed(heard):
                listener.leave(output)
        return output

    names = ("__module__", "__qualname__", "__doc__")
    same = {name: getattr(base, name) for name in names}
    return type(base.__name__, (base,), {**same, "__call__": __call__, "tap_listeners": listeners})
