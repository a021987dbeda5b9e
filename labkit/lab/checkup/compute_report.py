"""The process behind `compute.ask`: prepares the backend, times a product and prints one line of JSON."""

from __future__ import annotations

import sys
from dataclasses import asdict

from labkit.core.errors import LabkitError
from labkit.lab.checkup.compute import to_json
from labkit.model.backend import prepare, verify_blas


def report() -> str:
    """The answer as JSON; an error is an answer."""
    try:
        backend = asdict(prepare())
    except LabkitError as error:
        return to_json(None, None, **_said(error))
    try:
        return to_json(backend, verify_blas())
    except Exception as error:  # a device that was found may still fail to compute
        got = f"{type(error).__name__}: {error}"
        return to_json(backend, None, need="a product could not be computed", got=got)


def _said(error: LabkitError) -> dict[str, str]:
    got = "" if error.got is None else str(error.got)
    return {"need": error.need, "got": got, "mend": error.next_step or ""}


if __name__ == "__main__":
    sys.stdout.write(report() + "\n")
