"""Probe: one finding about a machine, and the data that says how it is read, parsed and judged.

Parsing is pure, from a text to a reading, so that every system's probes are tested on recorded outputs.
Knows no system, file or command.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any, Literal

from labkit.bench.probes.source import Source

# judges: beyond the limit the machine is not quiet. warns: worth mending, says nothing about a run.
# shows: a fact that has no limit of its own.
Role = Literal["judges", "warns", "shows"]
Bound = Literal["most", "least"]


@dataclass(frozen=True, slots=True)
class Probe:
    """One finding. available: whether this machine can tell at all; ok is true where it cannot.

    ok: whether a run may count as quiet, so it is true of a probe that does not judge. within: whether the
    value keeps to the limit. shown: the value in words, where the number alone says too little.
    """

    name: str
    available: bool
    value: float
    limit: float
    ok: bool
    advice: str = ""
    role: Role = "judges"
    within: bool = True
    shown: str = ""
    bound: Bound = "most"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Machine:
    """What limits are scaled by. memory_bytes: of the whole machine. pid: the process that measures.

    gpu: the NVIDIA GPU that mlx computes on, None where it does not, as `CUDA_VISIBLE_DEVICES` names it: an
    index or a UUID. gpu_by_bus: whether CUDA numbers its cards by their PCI bus, not the fastest first.
    """

    cores: int
    memory_bytes: int
    pid: int
    gpu: str | None = None
    gpu_by_bus: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """A value that was read. limit: the source's own, where it names one instead of the spec."""

    value: float
    shown: str = ""
    limit: float | None = None


Parse = Callable[[str, Machine], Reading | None]


@dataclass(frozen=True, slots=True)
class ProbeSpec:
    """A probe as data. parse: text and machine to a reading, None where the text does not say.

    bound: whether the limit is the `most` or the `least` that the value may be.
    """

    name: str
    source: Source
    parse: Parse
    limit: Callable[[Machine], float]
    advice: str = ""
    bound: Bound = "most"
    role: Role = "judges"


def fixed(limit: float) -> Callable[[Machine], float]:
    """The same limit on every machine."""
    return lambda _machine: limit


def find(spec: ProbeSpec, text: str | None, machine: Machine) -> Probe:
    """The finding of a text, `not available` where there is none or it cannot be understood. Never raises."""
    reading = _read(spec, text, machine) if text is not None else None
    limit = spec.limit(machine) if reading is None or reading.limit is None else reading.limit
    if reading is None:
        return Probe(spec.name, False, 0.0, limit, True, spec.advice, spec.role, bound=spec.bound)
    within = reading.value <= limit if spec.bound == "most" else reading.value >= limit
    within |= spec.role == "shows"
    ok = within or spec.role != "judges"
    said = (spec.advice, spec.role, within, reading.shown, spec.bound)
    return Probe(spec.name, True, reading.value, limit, ok, *said)


def _read(spec: ProbeSpec, text: str, machine: Machine) -> Reading | None:
    """A text of another shape than expected is one that does not say."""
    try:
        reading = spec.parse(text, machine)
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
        return None
    return reading if reading is not None and isfinite(reading.value) else None


def number(text: str) -> float:
    """A number as any locale writes it: a decimal point or comma. Raise ValueError where it is none."""
    return float(text.replace(",", "."))
