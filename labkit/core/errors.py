"""Errors that a person reads: what was needed, what was got, the valid options and the next step."""

from __future__ import annotations

from collections.abc import Sequence


class LabkitError(Exception):
    """One clear message. `need` says what was needed; the other parts are optional.

    The rendered text is `need`, then `got: ...`, `options: ...` and `next: ...` on lines of their own.
    """

    exit_code = 1

    def __init__(
        self,
        need: str,
        *,
        got: object = None,
        options: Sequence[object] = (),
        next_step: str | None = None,
    ) -> None:
        self.need = need
        self.got = got
        self.options = tuple(str(o) for o in options)
        self.next_step = next_step
        super().__init__(self._render())

    def _render(self) -> str:
        lines = [self.need]
        if self.got is not None:
            lines.append(f"  got:     {self.got}")
        if self.options:
            lines.append(f"  options: {', '.join(self.options)}")
        if self.next_step:
            lines.append(f"  next:    {self.next_step}")
        return "\n".join(lines)


class BackendMissing(LabkitError):
    """mlx is not installed, or has no backend on this machine."""


class ModelUnavailable(LabkitError):
    """A model name, directory, hub id or file that cannot be resolved, imported or loaded."""


class PlanRefused(LabkitError):
    """The planner refused a request; the message lists every refusal."""


class SessionFailed(LabkitError):
    """A session that cannot go on: wrong state, or caches that are not what the plan said."""


class DeviceBusy(LabkitError):
    """Another measurement holds the machine-wide device lease."""


class WorkerFailed(LabkitError):
    """A bench worker died, hung or answered with an error."""


class ExperimentInvalid(LabkitError):
    """An experiment file that cannot be loaded, or an experiment that contradicts itself."""


class RecordInvalid(LabkitError):
    """A record that cannot be read, or records that must not be compared."""


class DecisionRefused(LabkitError):
    """A promotion, deletion or renewal that the state of an experiment or its evidence does not allow."""


class RecipeInvalid(LabkitError):
    """A file of decisions that cannot be read, or a recipe that does not apply where it was asked for."""


class JournalInvalid(LabkitError):
    """A journal that cannot be read, or that is not of the work it should go on with."""


class ScoreInvalid(LabkitError):
    """Windows, logits or stored references that cannot be scored against each other."""


class TextUnusable(LabkitError):
    """Evaluation text that cannot be read, or is too short for the windows asked for."""


class NoRecords(LabkitError):
    """A question about results where nothing has been recorded yet."""
