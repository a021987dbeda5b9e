"""Replay: an execution brought to a given number of committed tokens by running again. Knows no session."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence

from labkit.core.errors import SessionFailed
from labkit.core.step import Step
from labkit.engine.method import Branching
from labkit.engine.shield import uninterrupted


def replay(run: Branching, done: int, tokens: Sequence[int], stopped: Callable[[], bool]) -> Branching:
    """Run `run`, which has committed the first `done` of these tokens, until it has committed all of them.

    stopped: asked between two units of work, as is Ctrl-C. Where that ends it, or the method has nothing left
    to do, the execution is closed; SessionFailed is raised for all but Ctrl-C.
    """
    try:
        run.give(tokens)
        while done < len(tokens):
            with uninterrupted(signals=(signal.SIGINT,)):
                step = run.advance()
            if step is None or stopped():
                raise SessionFailed(
                    f"a replay of {len(tokens)} tokens was needed", got=f"it ended after {done}"
                )
            done += len(step.tokens) if isinstance(step, Step) else 0
    except BaseException:
        run.close()
        raise
    return run
