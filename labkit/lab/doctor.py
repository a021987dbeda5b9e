"""Doctor: everything that a run needs of a machine, looked at once, each with the line that mends it.

Puts the checks in order and collects their lines. It reads, writes no file that stays, and never raises:
a check that fails is a line.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.lab.checkup.line import Line, checked

if TYPE_CHECKING:
    from labkit.bench.probes.probe import Probe
    from labkit.lab.checkup.compute import Answer


@dataclass(frozen=True, slots=True)
class Report:
    """What was found. probes: the findings behind the lines of the section `quiet`."""

    lines: tuple[Line, ...]
    probes: tuple[Probe, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing was found that would stop or falsify a run."""
        return not self.count("problem")

    @property
    def quiet(self) -> bool | None:
        """Whether a run would count as quiet now; None where no probe could be read."""
        return all(probe.ok for probe in self.probes) if self.probes else None

    def count(self, level: str) -> int:
        return sum(line.level == level for line in self.lines)

    def sections(self) -> tuple[str, ...]:
        """The sections in their order."""
        return tuple(dict.fromkeys(line.section for line in self.lines))

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "quiet": self.quiet,
            "problems": self.count("problem"),
            "warnings": self.count("warning"),
            "lines": [line.to_json() for line in self.lines],
            "probes": [probe.to_json() for probe in self.probes],
        }


@dataclass(frozen=True, slots=True)
class Doctor:
    """Where to look, and what is asked of the machine. root: the lab.

    Every check is imported when its turn comes, so that a package that is missing costs one section.
    """

    root: Path
    today: date
    environ: Mapping[str, str]
    probe: Callable[[], tuple[Probe, ...]]
    ask: Callable[[Mapping[str, str]], Answer]

    def report(self) -> Report:
        """Look at everything. Quietness comes first in time, before the doctor's own work."""
        probes: list[Probe] = []
        answers: list[Answer] = []
        quiet = checked("quiet", lambda: self._quiet(probes))
        machine = checked("machine", lambda: self._machine(answers))
        answer = answers[0] if answers else None
        lines = [
            *machine,
            *checked("blas", lambda: self._blas(answer)),
            *checked("versions", _versions),
            *checked("optional", lambda: _optional(answer)),
            *self._folders(),
            *checked("lab", self._lab),
            *quiet,
        ]
        return Report(tuple(lines), tuple(probes))

    def _quiet(self, probes: list[Probe]) -> Iterable[Line]:
        from labkit.lab.checkup.quietness import quiet_lines

        probes.extend(self.probe())
        return quiet_lines(probes)

    def _machine(self, answers: list[Answer]) -> Iterable[Line]:
        from labkit.lab.checkup.compute import machine_lines

        answers.append(self.ask(self.environ))
        return machine_lines(answers[0])

    def _blas(self, answer: Answer | None) -> Iterable[Line]:
        from labkit.lab.checkup.compute import blas_lines

        return blas_lines(answer, os.cpu_count() or 1, self.environ) if answer else ()

    def _folders(self) -> Iterator[Line]:
        """Models, room and permissions; the last two go without a home for models that cannot be told."""
        homes: list[Path] = []
        yield from checked("models", lambda: self._models(homes))
        yield from checked("disk", lambda: self._disk(homes))
        yield from checked("permissions", lambda: self._permissions(homes))

    def _models(self, homes: list[Path]) -> Iterable[Line]:
        from labkit.lab.checkup.models import homeless_line, model_lines, models_home

        try:
            homes.append(models_home(self.environ))
        except RuntimeError as error:
            return [homeless_line(error)]
        return model_lines(homes[0])

    def _disk(self, homes: list[Path]) -> Iterable[Line]:
        from labkit.lab.checkup.models import starter_is_missing
        from labkit.lab.checkup.places import disk_lines, places

        missing = any(starter_is_missing(home) for home in homes)
        return disk_lines(places(self.root, *homes), wants_starter=missing)

    def _permissions(self, homes: list[Path]) -> Iterable[Line]:
        from labkit.lab.checkup.places import permission_lines, places

        return permission_lines(places(self.root, *homes))

    def _lab(self) -> Iterable[Line]:
        from labkit.lab.checkup.records import lab_lines

        return lab_lines(self.root, self.today)


def examine(root: Path, today: date, environ: Mapping[str, str] = os.environ) -> Report:
    """Everything about this machine and the lab at `root`; takes a few seconds."""
    return Doctor(root, today, environ, _probe, _ask).report()


def _probe() -> tuple[Probe, ...]:
    from labkit.bench.quiet import all_probes

    return all_probes()


def _ask(environ: Mapping[str, str]) -> Answer:
    from labkit.lab.checkup.compute import ask

    return ask(environ)


def _versions() -> Iterable[Line]:
    from labkit.lab.checkup.packages import version_lines

    return version_lines()


def _optional(answer: Answer | None) -> Iterable[Line]:
    from labkit.lab.checkup.packages import optional_lines

    return optional_lines(answer.backend.device if answer and answer.backend else None)
