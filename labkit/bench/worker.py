"""The worker process of one arm: answers commands until its pipe closes.

Run as `python -m labkit.bench.worker COMMAND_FD ANSWER_FD LIFELINE_FD`. The commands are imported after the
BLAS is loaded, since they import mlx.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from labkit.bench.wire import WireClosed, receive, send
from labkit.core.arm import Arm
from labkit.core.errors import BackendMissing, LabkitError
from labkit.model.backend import prepare

Answer = dict[str, Any]


def serve(commands: int, answers: int) -> None:
    """Answer commands until the other side closes. An error is an answer, never the end of the worker."""
    table: Mapping[str, Callable[[Answer], Answer]] | None = None
    while True:
        try:
            message = receive(commands)
        except WireClosed:
            return
        try:
            table = table or _open_arm(message["arm"])
            answer = table[message["do"]](message)
        except LabkitError as error:
            answer = {"error": str(error), "kind": "refused"}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}", "kind": "failed"}
        try:
            send(answers, answer)
        except WireClosed:
            return


def end_with_bench(lifeline: int) -> None:
    """End this process, even in the middle of a command, once the bench's end of the lifeline is gone."""

    def wait() -> None:
        os.read(lifeline, 1)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _open_arm(data: dict[str, Any]) -> Mapping[str, Callable[[Answer], Answer]]:
    arm = Arm.from_identity(data)
    backend = prepare()
    if arm.blas and arm.blas != backend.blas:
        need = f"the {arm.blas} BLAS is needed by the arm {arm.label()}"
        raise BackendMissing(need, got=backend.blas or backend.device, next_step=backend.blas_reason)
    from labkit.bench.commands import ArmCommands

    return ArmCommands(arm).table()


if __name__ == "__main__":
    end_with_bench(int(sys.argv[3]))
    serve(int(sys.argv[1]), int(sys.argv[2]))
    os._exit(0)
