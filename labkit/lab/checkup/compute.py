"""Compute: the machine class, the backend and its speed, found in a process of their own.

An mlx that is missing, broken, hangs or kills its process is a line here, and never the doctor's end.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import psutil

from labkit.lab.checkup.line import Line
from labkit.lab.measuring.provenance import machine_class
from labkit.model import blas
from labkit.model.backend import Backend, install_lines
from labkit.model.wording import one_line

LIMIT_S = 30.0
# Least GFLOP/s of f32 products: an AVX2 core does about 80, a hyperthread or a busy container far less.
LEAST_A_CORE = 12.0
COUNTED_CORES = 8
LEAST_ON_GPU = 500.0
_SLOW = "see the section quiet; a container's CPU quota or OMP_NUM_THREADS=1 has this effect too"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the process said. backend: None where there is none, with `need`, `got` and `mend` why not."""

    backend: Backend | None = None
    gflops: float | None = None
    need: str = ""
    got: str = ""
    mend: str = ""


def ask(environ: Mapping[str, str] | None = None, limit_s: float = LIMIT_S) -> Answer:
    """Prepare the backend and time a product in a fresh interpreter; its end is an answer too."""
    command = [sys.executable, "-m", "labkit.lab.checkup.compute_report"]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit_s,
            env=dict(os.environ if environ is None else environ),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Answer(need=f"mlx gave no answer in {limit_s:g} s", mend=install_lines(sys.platform))
    return parse(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def parse(code: int, out: str, err: str) -> Answer:
    """The answer in the last line of stdout, or how the process ended without one."""
    try:
        said = json.loads(out.strip().splitlines()[-1])
        backend = Backend(**said["backend"]) if said["backend"] else None
        return Answer(backend, said["gflops"], said["need"], said["got"], said["mend"])
    except (ValueError, LookupError, TypeError):
        ended = signal.Signals(-code).name if -code in set(signal.Signals) else f"exit code {code}"
        last = err.strip().splitlines()[-1:] or ["no message"]
        got = f"{ended}: {one_line(last[0])}"
        return Answer(need="importing mlx ended its process", got=got, mend=install_lines(sys.platform))


def machine_lines(answer: Answer) -> Iterator[Line]:
    """Backend, class, cores and memory."""
    memory = psutil.virtual_memory().total / 2**30
    if answer.backend is None:
        got = f"; got {answer.got}" if answer.got else ""
        yield Line("machine", "backend", "problem", answer.need + got, answer.mend)
    else:
        yield Line("machine", "class", "ok", machine_class(answer.backend)["slug"])
        yield Line("machine", "backend", "ok", _backend(answer.backend))
    yield Line("machine", "cores", "ok", str(psutil.cpu_count() or 1))
    yield Line("machine", "memory", "ok", f"{memory:.1f} GiB")


def _backend(backend: Backend) -> str:
    dtype = backend.default_dtype or "its checkpoint's dtype"
    return f"{backend.device} ({backend.chip}); imports in {dtype}"


def blas_lines(answer: Answer, cores: int, environ: Mapping[str, str]) -> Iterator[Line]:
    """Which BLAS, why, and what a product of two 1024 x 1024 f32 matrices reached."""
    backend = answer.backend
    if backend is None:
        yield Line("blas", "blas", "absent", "not known without a backend")
        return
    reference = backend.blas == "reference"
    name = backend.blas or f"{backend.device}, its own"
    level, mend = ("warning", _mending(environ)) if reference else ("ok", "")
    yield Line("blas", "library", level, f"{name}: {backend.blas_reason}", mend)
    yield _speed_line(answer, backend, cores)


def _mending(environ: Mapping[str, str]) -> str:
    if environ.get(blas.SWITCH) == "reference":
        return f"unset {blas.SWITCH}"
    return " or ".join(blas.MENDING.values())


def _speed_line(answer: Answer, backend: Backend, cores: int) -> Line:
    if answer.gflops is None:
        return Line("blas", "f32 products", "problem", f"{answer.need}; got {answer.got}", answer.mend)
    said = f"{answer.gflops:,.0f} GFLOP/s"
    if backend.blas == "reference":
        return Line("blas", "f32 products", "ok", f"{said}; about 3 a core is all that this BLAS does")
    least = LEAST_ON_GPU if backend.device != "cpu" else LEAST_A_CORE * min(cores, COUNTED_CORES)
    expected = f"{said}; at least {least:,.0f} expected"
    slow = answer.gflops < least
    return Line("blas", "f32 products", "warning" if slow else "ok", expected, _SLOW if slow else "")


def to_json(backend: Mapping[str, Any] | None, gflops: float | None, **said: str) -> str:
    """The one line that the process prints, as `parse` reads it."""
    empty = {"need": "", "got": "", "mend": ""}
    return json.dumps({"backend": backend, "gflops": gflops, **empty, **said})
