"""Experiment: a hypothesis with two arms, a workload and an expiry; and the file it lives in."""

from __future__ import annotations

import contextlib
import hashlib
import runpy
import sys
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from labkit.bench.pairs import ROLES
from labkit.bench.statistics import MIN_UNITS
from labkit.core.arm import Arm, Workload
from labkit.core.canonical import plain
from labkit.core.errors import ExperimentInvalid
from labkit.core.hypothesis import Hypothesis
from labkit.core.metrics import METRICS
from labkit.core.shape import misfits
from labkit.evals.text import Split
from labkit.kv.config_file import pinned_arm
from labkit.lab.problems import Design, problems
from labkit.schedule.of_workload import with_trace


@dataclass(frozen=True, slots=True)
class ScoreText:
    """The text that quality is scored on: windows of window_tokens, whose second half is scored.

    name: `prose` (bundled) or a path. split: decisions use `promote`; `tune` is for looking.
    """

    name: str = "prose"
    split: Split = "promote"
    windows: int = 8
    window_tokens: int = 512


@dataclass(frozen=True, slots=True)
class Experiment:
    """What is claimed, between which arms, on what work, until when.

    expects: metric -> the verdict that its author expects, stated before the run.
    pairs: pairs of visits (at least 8 for a verdict). score: None where no quality metric is claimed.
    design: `process-pair` keeps one process per arm; `fresh` starts a new one for each visit, for cold
    numbers and for models of which two do not fit. looks: at how many equally spaced points of the run the
    verdicts are looked at; it stops at the first where every axis that visits measure is decided.
    control: both arms have a known difference (none, or a method `slowed`), so that the bench itself is
    measured; it decides nothing.
    """

    name: str
    hypothesis: Hypothesis
    baseline: Arm
    candidate: Arm
    workload: Workload
    expires: str
    expects: Mapping[str, str] = field(default_factory=dict)
    score: ScoreText | None = field(default_factory=ScoreText)
    pairs: int = MIN_UNITS
    seed: int = 0
    design: Design = "process-pair"
    looks: int = 1
    control: bool = False

    def validate(self) -> None:
        """Raise ExperimentInvalid with every contradiction found."""
        found = tuple(problems(self))
        if found:
            need = f"experiment {self.name!r} is not valid:\n" + "\n".join(f"- {p}" for p in found)
            raise ExperimentInvalid(need)

    def with_files(self) -> Experiment:
        """The experiment with the hashes of the files that it names. Raises as reading a trace does."""
        arms = {role: pinned_arm(getattr(self, role)) for role in ROLES}
        return replace(self, workload=with_trace(self.workload), **arms)

    def expiry(self) -> date:
        return date.fromisoformat(self.expires)

    def days_left(self, today: date) -> int:
        """Days until the expiry; negative once it has passed."""
        return (self.expiry() - today).days

    def wants_quality(self) -> bool:
        return any(m in METRICS and METRICS[m].source == "score" for m in self.hypothesis.margins())

    def to_json(self) -> dict[str, Any]:
        """Flat, as a record holds it: the hypothesis' parts beside the rest, the arms left to the record."""
        data = asdict(self)
        hypothesis = data.pop("hypothesis")
        return {k: v for k, v in data.items() if k not in ("baseline", "candidate")} | hypothesis

    def identity(self) -> dict[str, Any]:
        """Everything as plain JSON data, the arms too; `from_identity` reads it back."""
        arms = {role: getattr(self, role).identity() for role in ROLES}
        return {**plain(self.to_json()), **arms}

    @classmethod
    def from_identity(cls, data: Mapping[str, Any]) -> Experiment:
        """The experiment of an `identity`. Raise ExperimentInvalid where a field is missing or misshapen.

        Its claims are not validated again: what they may be changes between versions.
        """
        need = "the data of an experiment was needed"
        try:
            experiment = cls(**_parts(data))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ExperimentInvalid(need, got=f"{type(error).__name__}: {error}") from error
        wrong = next(misfits(experiment, cls, "experiment"), "")
        unknown = (
            [name for name in experiment.hypothesis.margins() if name not in METRICS] if not wrong else []
        )
        if wrong or unknown:
            raise ExperimentInvalid(need, got=wrong or f"{unknown[0]!r}, which is no metric")
        return experiment


@dataclass(frozen=True, slots=True)
class ExperimentFile:
    """An experiment and the file that holds it. source_hash: SHA-256 of the file, first 16 digits."""

    experiment: Experiment
    path: Path
    source_hash: str


def _parts(data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an experiment from its flat form."""
    rest = dict(data)
    statement, improves, holds = (rest.pop(key) for key in ("statement", "improves", "holds"))
    score, workload = rest.pop("score"), rest.pop("workload")
    return {
        "hypothesis": Hypothesis(statement, improves, holds),
        "workload": Workload(**workload),
        "score": ScoreText(**score) if score is not None else None,
        **{role: Arm.from_identity(rest.pop(role)) for role in ROLES},
        **rest,
    }


def load_experiment(path: Path) -> ExperimentFile:
    """Run an experiment file and take its one Experiment. Raises ExperimentInvalid with the line at fault.

    What the file prints goes to stderr: stdout is for answers.
    """
    next_step = "see experiments/ for working ones"
    meant = path.parent / "experiments" / f"{path.stem}.py"
    if not path.is_file():
        next_step = f"did you mean {meant}?" if meant.is_file() else next_step
        what = "a folder" if path.is_dir() else "no such file"
        raise ExperimentInvalid("an experiment file is needed", got=f"{path}: {what}", next_step=next_step)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            names = runpy.run_path(str(path))
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        where = _where(error, path)
        got = f"{type(error).__name__}: {error}"
        raise ExperimentInvalid(
            f"{path.name}{where} cannot be loaded", got=got, next_step=next_step
        ) from None
    found = {id(v): v for v in names.values() if isinstance(v, Experiment)}
    if len(found) != 1:
        got = f"{len(found)} of them in {path.name}"
        raise ExperimentInvalid("exactly one Experiment is needed in a file", got=got, next_step=next_step)
    (experiment,) = found.values()
    experiment.validate()
    experiment = experiment.with_files()
    return ExperimentFile(experiment, path, hashlib.sha256(path.read_bytes()).hexdigest()[:16])


def _where(error: BaseException, path: Path) -> str:
    if isinstance(error, SyntaxError) and error.lineno:
        return f", line {error.lineno},"
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    return f", line {lines[-1]}," if lines else ""
