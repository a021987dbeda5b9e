"""Choice of the record that a promotion rests on: the newest complete one of the machine class at hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from labkit.core.errors import DecisionRefused
from labkit.lab.reading.runs import Run


def choose_run(runs: Sequence[Run], run_id: str | None, here: Callable[[], str], file: str) -> Run:
    """One of the runs of an experiment, oldest first. here: the slug of this machine class, asked if needed.

    run_id: takes that one, of this machine class where several have it. Else the newest complete one of this
    class, or of the only other class that has any; a partial one where none is complete. file: the
    experiment's, for the next step. Raises DecisionRefused where there is none, or several classes have some.
    """
    if run_id is not None:
        return _named(runs, run_id, here)
    if not runs:
        step = f"labkit run experiments/{file}"
        raise DecisionRefused("record: a complete one is needed, got none", next_step=step)
    complete = [run for run in runs if run.state == "complete"] or list(runs)
    machines = sorted({run.machine for run in complete})
    if len(machines) == 1:
        return complete[-1]
    mine = [run for run in complete if run.machine == here()]
    if mine:
        return mine[-1]
    newest = [next(r for r in reversed(complete) if r.machine == machine) for machine in machines]
    raise DecisionRefused(
        f"record: one of this machine class, {here()}, is needed, got those of {len(machines)} others",
        options=[f"--record {run.run_id} ({run.machine})" for run in newest],
    )


def _named(runs: Sequence[Run], run_id: str, here: Callable[[], str]) -> Run:
    """The run of an id; where several machine classes have one of that id, the one of this class."""
    found = [run for run in runs if run.run_id == run_id]
    if not found:
        options = [run.run_id for run in reversed(runs)][:8]
        raise DecisionRefused(
            "record: the id of a record of this experiment is needed", got=run_id, options=options
        )
    mine = found if len(found) == 1 else [run for run in found if run.machine == here()]
    if len(mine) != 1:
        raise DecisionRefused(
            f"record: an id that one machine class has is needed, got {run_id}, which {len(found)} have",
            options=[run.path for run in found],
            next_step="promote on one of these machine classes, or take the copy away",
        )
    return mine[0]
