"""Choice of the record that a promotion rests on: the newest complete one of the machine class at hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from labkit.core.errors import DecisionRefused
from labkit.lab.runs import Run


def choose_run(runs: Sequence[Run], run_id: str | None, here: Callable[[], str], file: str) -> Run:
    """One of the runs of an experiment, oldest first. here: the slug of this machine class, asked if needed.

    run_id: takes that one, whatever it is. Else the newest complete one of this machine class, or of the only
    other class that has any; a partial one where none is complete. file: the experiment's, for the next step.
    Raises DecisionRefused where there is none, or several other classes have some.
    """
    if run_id is not None:
        return _named(runs, run_id)
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


def _named(runs: Sequence[Run], run_id: str) -> Run:
    found = next((run for run in runs if run.run_id == run_id), None)
    if found is None:
        options = [run.run_id for run in reversed(runs)][:8]
        raise DecisionRefused(
            "record: the id of a record of this experiment is needed", got=run_id, options=options
        )
    return found
