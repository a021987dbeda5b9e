"""Fit: whether a model fits this machine at a context, and how fast it would be, before it is loaded."""

from __future__ import annotations

import html
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.bench.lease import device_lease, lease_path
from labkit.core.arm import Workload
from labkit.core.errors import LabkitError, ModelUnavailable, PlanRefused
from labkit.core.events import Progress, Sink, silent
from labkit.model.backend import prepare
from labkit.model.budget import GIB, Budget, device_budget, stated_budget
from labkit.plan.values import is_number, shown

if TYPE_CHECKING:
    from labkit.engine.model import Model
    from labkit.model.fit import Prediction
    from labkit.plan.plan import Plan

NEW_TOKENS = 32
# More than any machine that labkit knows decodes together, or holds.
MOST_REQUESTS, MOST_GIB = 1024, 1 << 20


@dataclass(frozen=True, slots=True, repr=False)
class Fit:
    """What is predicted of a model at a context of prompt and new tokens. Nothing of it was run.

    peak_bytes: of device memory: weight_bytes, kv_bytes when the context is full, and working_bytes, what a
    layer holds in flight at the peak. decode_tps: over all requests. largest_context: tokens of each request
    that fit the budget, at most context_length, the model's own limit; 0 where none do. unknown_bytes:
    whether the KV scheme is one whose bytes labkit does not know.
    """

    model: str
    kv: str
    context: int
    new_tokens: int
    concurrency: int
    prefill_chunk: int
    backend: str
    peak_bytes: float
    weight_bytes: int
    kv_bytes: float
    working_bytes: float
    decode_tps: float
    prefill_tps: float
    largest_context: int
    context_length: int
    budget_bytes: int
    budget: str
    unknown_bytes: bool = False

    @property
    def fits(self) -> bool:
        """Whether the peak is within the budget."""
        return self.peak_bytes <= self.budget_bytes

    def notes(self) -> tuple[str, ...]:
        """What has to be said beside the numbers."""
        found = []
        if self.concurrency > 1:
            several = "requests at a time are predicted only: labkit bench load measures them"
            found.append(f"{self.concurrency} {several}")
        if self.unknown_bytes:
            found.append(f"kv={self.kv} is predicted as if it kept the model's own dtype")
        return tuple(found)

    def rows(self) -> tuple[tuple[str, str], ...]:
        """What it says, as labels and values."""
        request = "" if self.concurrency == 1 else f" x {self.concurrency} requests"
        limit = "the model's own limit" if self.largest_context == self.context_length else "what fits"
        each = "" if self.concurrency == 1 else f", {self.decode_tps / self.concurrency:.1f} a request"
        return (
            ("model", f"{self.model}, kv={self.kv}, on {self.backend}"),
            ("context", f"{self.context:,} tokens, {self.new_tokens} of them new{request}"),
            ("fits", f"{'yes' if self.fits else 'no'}: {_gib(self.peak_bytes)} of {_gib(self.budget_bytes)}"),
            ("peak", f"{_mb(self.peak_bytes)} MB"),
            ("  weights", f"{_mb(self.weight_bytes)} MB"),
            ("  KV cache", f"{_mb(self.kv_bytes)} MB"),
            ("  in flight", f"{_mb(self.working_bytes)} MB, chunks of {self.prefill_chunk} tokens"),
            ("largest context", f"{self.largest_context:,} tokens, {limit}"),
            ("decode", f"{self.decode_tps:.1f} tok/s{each}"),
            ("prefill", f"{self.prefill_tps:.0f} tok/s"),
            ("budget", self.budget),
        )

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "fits": self.fits, "notes": list(self.notes())}

    def __repr__(self) -> str:
        fits = "fits" if self.fits else "does not fit"
        speed = f"decode {self.decode_tps:.1f} tok/s"
        return f"<Fit {self.model} kv={self.kv} at {self.context}: {fits}, {_gib(self.peak_bytes)}, {speed}>"

    def _repr_html_(self) -> str:
        cells = (f"<tr><th>{html.escape(k)}</th><td>{html.escape(v)}</td></tr>" for k, v in self.rows())
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes())
        return f"<table>{''.join(cells)}</table>{notes}"


def fit(
    model: str | Path | Model,
    *,
    context: int,
    concurrency: int = 1,
    kv: str | type = "bf16",
    new_tokens: int = NEW_TOKENS,
    prefill_chunk: int | None = None,
    memory_gib: float | None = None,
    sink: Sink = silent,
    lease: Path | None = None,
) -> Fit:
    """Predict peak bytes, the largest context and the speed of a model; its weights are not read.

    context: tokens of a request, prompt and new ones. concurrency: at most 1024. memory_gib: what the model
    may take; None takes what this machine leaves it. lease: the lock file of the device, which is held while
    its speed is measured; None takes that of every measurement on this machine. Raises PlanRefused with the
    planner's reasons where the scheme or the context does not fit the model, ModelUnavailable where it is
    none or has no weights, LabkitError for other arguments.
    """
    _check(context, concurrency, new_tokens, memory_gib)
    backend = prepare()
    from labkit.bench.prediction import load_of, predictor_of

    held = _opened(model, sink)
    workload = Workload(context - new_tokens, new_tokens, concurrency)
    plan = _plan(held, workload, kv, prefill_chunk)
    expected, load = predictor_of(held, plan), load_of(plan, workload)
    budget = device_budget(backend.device) if memory_gib is None else stated_budget(memory_gib)
    largest = expected.largest_context(load, budget.nbytes)
    with device_lease(f"labkit fit {held.name}", lease or lease_path(), sink=sink):
        sink(Progress("fit", 0, None, "measuring what this machine does"))
        rates = expected.calibrate(load)
    return _fit(held, plan, workload, expected.predict(load, rates), largest, budget)


def _check(context: int, concurrency: int, new_tokens: int, memory_gib: float | None) -> None:
    counts = {"context": context, "concurrency": concurrency, "new_tokens": new_tokens}
    for name, value in counts.items():
        if type(value) is not int or value < 1:
            raise LabkitError(f"{name}: a whole number of at least 1 was needed", got=shown(value))
    if concurrency > MOST_REQUESTS:
        need = f"concurrency: at most {MOST_REQUESTS} requests at a time are predicted"
        raise LabkitError(need, got=shown(concurrency))
    if context <= new_tokens:
        need = "a context with room for a prompt before the new tokens was needed"
        step = f"a context of at least {new_tokens + 1}, or fewer new tokens"
        raise LabkitError(need, got=f"{context} with {new_tokens} new", next_step=step)
    if memory_gib is not None and not (is_number(memory_gib) and 0 < memory_gib <= MOST_GIB):
        need = f"memory_gib: a positive number of GiB, at most {MOST_GIB:,}, was needed"
        raise LabkitError(need, got=shown(memory_gib))


def _opened(model: str | Path | Model, sink: Sink) -> Model:
    """The model, without its weights where it is not loaded yet."""
    from labkit.engine.load import load

    held = load(model, sink=sink, lazy=True) if isinstance(model, str | Path) else model
    if held.path is None:
        need = "a model with weights was needed, since a null model takes no memory"
        raise ModelUnavailable(need, got=held.name, next_step="labkit models list")
    return held


def _plan(model: Model, workload: Workload, kv: str | type, prefill_chunk: int | None) -> Plan:
    limit = model.profile.context_length
    context = workload.prompt_tokens + workload.new_tokens
    if context > limit:  # refused before a prompt of any length is made up
        need = f"context: at most {limit} tokens, the limit of {model.name}, are possible"
        raise PlanRefused(need, got=f"{context} tokens")
    request = model.request(
        (0,) * workload.prompt_tokens,
        kv=kv,
        max_tokens=workload.new_tokens,
        prefill_chunk=prefill_chunk,
        stop_tokens=(),
    )
    return model.resolve(request)


def _fit(
    model: Model, plan: Plan, workload: Workload, found: Prediction, largest: int, budget: Budget
) -> Fit:
    return Fit(
        model=model.name,
        kv=plan.kv,
        context=workload.prompt_tokens + workload.new_tokens,
        new_tokens=workload.new_tokens,
        concurrency=workload.concurrency,
        prefill_chunk=plan.prefill_chunk,
        backend=plan.backend,
        peak_bytes=found.peak.peak_bytes,
        weight_bytes=found.peak.weight_bytes,
        kv_bytes=found.peak.kv_bytes,
        working_bytes=found.peak.working_bytes,
        decode_tps=found.decode_tps,
        prefill_tps=found.prefill_tps,
        largest_context=largest,
        context_length=model.profile.context_length,
        budget_bytes=budget.nbytes,
        budget=budget.reason,
        unknown_bytes=not plan.kv_setting.layers and plan.oracle != model.profile.oracle,
    )


def _mb(nbytes: float) -> str:
    return f"{nbytes / 1e6:,.1f}"


def _gib(nbytes: float) -> str:
    return f"{nbytes / GIB:.2f} GiB"
