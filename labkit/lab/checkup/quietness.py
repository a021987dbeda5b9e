"""Quietness: whether this machine is quiet and why not, from every probe that it has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from labkit.bench.probes.probe import Probe
from labkit.lab.checkup.line import Level, Line


def quiet_lines(probes: Sequence[Probe]) -> Iterator[Line]:
    """The verdict, then a line per probe; what this machine cannot tell is absent."""
    loud = [f"{probe.name} {_value(probe)}" for probe in probes if not probe.ok]
    if loud:
        text = f"not quiet: {', '.join(loud)}. A run is recorded, and labelled as noisy"
        yield Line("quiet", "verdict", "warning", text, "mend what is marked below, then: labkit doctor")
    else:
        judging = sum(probe.available and probe.role == "judges" for probe in probes)
        yield Line("quiet", "verdict", "ok", f"this machine is quiet ({judging} probes judge it)")
    for probe in probes:
        yield _line(probe)


def _line(probe: Probe) -> Line:
    if not probe.available:
        return Line("quiet", probe.name, "absent", "not available here")
    level: Level = "ok" if probe.within else "warning"
    return Line("quiet", probe.name, level, probe_text(probe), "" if probe.within else probe.advice)


def probe_text(probe: Probe) -> str:
    """The value with its limit, and whether it judges."""
    if probe.role == "shows":
        return f"{_value(probe)} (not judged)"
    side = "at most" if probe.bound == "most" else "at least"
    note = "" if probe.role == "judges" else ", not judged"
    return f"{_value(probe)} ({side} {_amount(probe.name, probe.limit)}{note})"


def _value(probe: Probe) -> str:
    return probe.shown or _amount(probe.name, probe.value)


def _amount(name: str, value: float) -> str:
    """A number in the unit that its name ends with."""
    if name.endswith("_share"):
        return f"{value:.0%}"
    if name.endswith("_mib"):
        return f"{value / 1024:.1f} GiB" if value >= 1024 else f"{value:.0f} MiB"
    if name.endswith("_percent"):
        return f"{value:.0f}%"
    return f"{value:.0f} C" if name.endswith("_c") else f"{value:.2f}".rstrip("0").rstrip(".")
