"""The process of the command line: signals, the one message of an error, exit codes.

| exit code | when |
|---|---|
| 0 | done |
| 1 | refused or failed: any LabkitError but those below, or a file or folder that cannot be used |
| 2 | wrong usage: an unknown command or option, a missing argument, a lab folder that does not exist |
| 130 | interrupted by Ctrl-C, SIGTERM or SIGHUP: `Interrupted`, or `RunStopped` with what was measured |
| 141 | nobody reads the output on, as after `head -1` in a pipe; what was to be done is done |

Results go to stdout; progress and the message of an error to stderr. The commands are imported once signals
are in hand, so that Ctrl-C during their imports is one message too.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    """Run the command line on `sys.argv`; end with a SystemExit whose codes the module documents."""
    _open_standard_streams()
    _set_handlers(_interrupt)
    try:
        code = _run()
    except KeyboardInterrupt:
        sys.stderr.write("labkit: interrupted\n")
        code = INTERRUPTED
    finally:
        _set_handlers(signal.SIG_IGN)  # the command is over; its clean-up is not to be torn
    sys.exit(code)


def _run() -> int:
    from labkit.cli.app import app
    from labkit.cli.unusable import unusable
    from labkit.core.errors import LabkitError

    # That its cache folder cannot be written costs a moment, not a picture.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    for stream in (sys.stdout, sys.stderr):
        # A name may hold what the terminal's encoding lacks: shown escaped rather than refused.
        if stream is not None:
            stream.reconfigure(errors="backslashreplace")  # pyright: ignore[reportAttributeAccessIssue]
    try:
        app()
    except LabkitError as error:
        _say(f"labkit: {error}")
        return error.exit_code
    except OSError as error:
        _say(f"labkit: {unusable(error)}")
        return 1
    return 0


def _open_standard_streams() -> None:
    """Give the three standard numbers to the null device where they are closed, before a file gets them."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, this one


def _say(text: str) -> None:
    from labkit.cli.console import Console

    console = Console(stderr=True)
    console.print(text, style="red", highlight=False, markup=False, emoji=False, soft_wrap=True)


def _set_handlers(handler: signal.Handlers | object) -> None:
    """Handle what stops a command; a signal that the caller had ignored (nohup, a script's &) stays so."""
    for number in _STOPS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)  # pyright: ignore[reportArgumentType]


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
