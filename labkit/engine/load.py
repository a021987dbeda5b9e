"""Load: from a name to a Model. Fetches and imports a model that is not here yet.

The catalog is imported inside the functions: it imports mlx, and the BLAS must be loaded before that.
"""

from __future__ import annotations

from pathlib import Path

from labkit.core.events import Sink, silent
from labkit.engine.model import Model
from labkit.model.artifact import Artifact, measure
from labkit.model.backend import Backend, prepare
from labkit.model.experts import check_experts
from labkit.model.graph import load_graph
from labkit.model.null import is_null, parse_null
from labkit.model.profile import read_profile
from labkit.model.registry import get


def load(source: str | Path, *, home: Path | None = None, sink: Sink = silent, lazy: bool = False) -> Model:
    """A model from a bundled name, directory, .gguf file, hub id or `null:...`.

    home: where imported models lie; None takes the default. lazy: read no weights until a step needs them,
    to plan and predict what may not fit. Raises ModelUnavailable for what is no model
    or does not load, BackendMissing without a working mlx.
    """
    backend = prepare()
    if is_null(str(source)):
        return null_model(str(source))
    from labkit.engine.catalog import build_engine

    path = get(source, home=home, sink=sink)
    graph, tokenizer = load_graph(path, lazy=lazy)
    if backend.device == "cpu":
        check_experts(graph, path.name)
    artifact = measure(path, sink=sink)  # after all that may be refused, since it may write labkit.json
    engine = build_engine(backend.default_prefill_chunk, _backend_name(backend))
    return Model(artifact.name, artifact.path, read_profile(artifact), tokenizer, graph, artifact, engine)


def null_model(spec: str) -> Model:
    """The null model of a spec such as `null:decode_tps=100,sd=0.03`; its clock is its own."""
    from labkit.engine.catalog import build_engine

    null = parse_null(spec)
    profile = null.profile
    artifact = Artifact(
        name=null.name,
        family=profile.family,
        path=Path(),
        fingerprint=profile.fingerprint,
        dtype=profile.dtype,
        artifact_bytes=0,
        parameters=0,
        effective_bpw=0.0,
    )
    engine = build_engine(prefill_chunk=256, backend="null")
    return Model(null.name, None, profile, null.tokenizer, null, artifact, engine, null.clock)


def _backend_name(backend: Backend) -> str:
    return f"{backend.device}/{backend.blas}" if backend.blas else backend.device
