"""The catalog: every KV scheme and method labkit ships, collected once from their SPECs."""

from __future__ import annotations

from typing import Any

from labkit.core.spec import Catalog
from labkit.engine.autoregressive import Autoregressive
from labkit.engine.engine import Engine
from labkit.engine.method import Method
from labkit.engine.null import NullMethod
from labkit.engine.slowed import Slowed
from labkit.engine.upstream import Upstream
from labkit.engine.upstream_batch import UpstreamBatch
from labkit.kv.catalog import SCHEMES

METHODS: tuple[type[Method], ...] = (Autoregressive, Upstream, UpstreamBatch, Slowed, NullMethod)


def build_engine(
    prefill_chunk: int,
    backend: str,
    schemes: tuple[Any, ...] = SCHEMES,
    methods: tuple[Any, ...] = METHODS,
) -> Engine:
    """Collect classes with a SPEC. prefill_chunk: the default of `backend`, in tokens."""
    by_family = {scheme.SPEC.family: scheme for scheme in schemes}
    by_name = {method.SPEC.name: method for method in methods}
    catalog = Catalog(
        kv={family: scheme.SPEC for family, scheme in by_family.items()},
        methods={name: method.SPEC for name, method in by_name.items()},
        default_prefill_chunk=prefill_chunk,
        backend=backend,
    )
    return Engine(catalog, by_family, by_name)
