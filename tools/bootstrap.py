"""Make `.venv` and install labkit in it: `python -m tools.bootstrap --stamp FILE [--backend NAME]`.

Knows virtual environments and pip; uses the standard library only. The stamp is written last, so that an
install that failed or was interrupted is taken up again by the next run.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from labkit.model.blas import openblas_library

BACKENDS = ("auto", "cpu", "cuda13")
ENVIRONMENT = Path(".venv")
LIBRARY_OWNERS = {"cpu": "mlx-cpu", "cuda13": "mlx-cuda-13"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Install and return 0, or say what failed and return another exit code."""
    parser = argparse.ArgumentParser(description="Make .venv and install labkit in it.")
    parser.add_argument("--backend", choices=BACKENDS, default="auto")
    parser.add_argument("--stamp", type=Path, required=True)
    options = parser.parse_args(arguments)
    backend = detect_backend() if options.backend == "auto" else options.backend
    try:
        return set_up(backend if sys.platform == "linux" else None, options.stamp)
    except KeyboardInterrupt:
        print("\nInterrupted: run the same command again to go on.", file=sys.stderr)
        return 130


def set_up(backend: str | None, stamp: Path) -> int:
    for old in stamp.parent.glob(".installed*"):
        old.unlink()
    python = make_environment(ENVIRONMENT)
    remove_other_build(python, backend)
    extras = ",".join(pick_extras(backend))
    print(f"Installing labkit[{extras}]: minutes the first time, about 1 GB to download")
    command = [str(python), "-m", "pip", "install", "-e", f".[{extras}]", "-c", "constraints.txt"]
    if code := run_logged([*command, "--progress-bar", "off"], ENVIRONMENT / "install.log"):
        return code
    stamp.write_text(f"{extras}\n")
    return 0


def detect_backend() -> str:
    """`cuda13` where a working NVIDIA driver speaks CUDA 13, else `cpu`."""
    if sys.platform != "linux" or not shutil.which("nvidia-smi"):
        return "cpu"
    answer = subprocess.run(["nvidia-smi"], capture_output=True, text=True, check=False)
    version = re.search(r"CUDA[\w ]* Version:\s*(\d+)", answer.stdout)
    if answer.returncode == 0 and version and int(version[1]) < 13:
        print(f"The NVIDIA driver speaks CUDA {version[1]}, labkit needs 13: taking the CPU build.")
        return "cpu"
    return "cpu" if answer.returncode else "cuda13"


def pick_extras(backend: str | None) -> tuple[str, ...]:
    """The extras of pyproject.toml for a backend; mkl where a CPU would have no fast BLAS otherwise."""
    needs_mkl = backend == "cpu" and platform.machine() == "x86_64" and not openblas_library()
    return (*([backend] if backend else []), *(["mkl"] if needs_mkl else []), "dev")


def make_environment(where: Path) -> Path:
    """The environment's Python; an environment that does not work is made anew."""
    python = where / "bin" / "python"
    if not works(python):
        print(f"Making {where} with Python {platform.python_version()}")
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(where)], check=True)
    return python


def works(python: Path) -> bool:
    """Whether it is a Python that labkit runs on and has pip."""
    test = "import sys, pip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))"
    try:
        return subprocess.run([str(python), "-c", test], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def remove_other_build(python: Path, backend: str | None) -> None:
    """Take every build of mlx out where another one than the wanted is installed: they share a file."""
    listed = subprocess.run(
        [str(python), "-m", "pip", "list", "--format=freeze"], capture_output=True, text=True, check=True
    ).stdout
    found = [name for name in LIBRARY_OWNERS.values() if f"{name}==" in listed]
    if any(name != LIBRARY_OWNERS.get(backend or "") for name in found):
        subprocess.run([str(python), "-m", "pip", "uninstall", "-q", "-y", *found], check=True)


def run_logged(command: Sequence[str], log: Path) -> int:
    """Run a command with its output in a log and a line of progress; show the log's end where it fails."""
    started = time.monotonic()
    with log.open("w+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=pip_environment())
        try:
            watch(process, log, sys.stdout, started)
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if process.returncode:
        tail = "\n".join(log.read_text().splitlines()[-12:])
        print(f"{tail}\nThe install failed; all of its output is in {log}.", file=sys.stderr)
    else:
        print(f"Installed in {clock(time.monotonic() - started)}.")
    return process.returncode


def pip_environment() -> dict[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_USER": "0"}


def watch(process: subprocess.Popen[bytes], log: Path, screen: TextIO, started: float) -> None:
    """Show how far pip is, every second on a terminal and every 30 seconds elsewhere, until it ends."""
    every = 1.0 if screen.isatty() else 30.0
    ended = threading.Event()
    threading.Thread(target=lambda: (process.wait(), ended.set()), daemon=True).start()
    while not ended.wait(every):
        line = f"  {clock(time.monotonic() - started)}  {describe(log.read_text(errors='replace'))}"
        screen.write(f"\r\033[K{line[:78]}" if screen.isatty() else f"{line}\n")
        screen.flush()
    if screen.isatty():
        screen.write("\r\033[K")


def describe(log: str, environment: Path = ENVIRONMENT) -> str:
    """Where pip stands by its log: the package it looks at, or how many of how many are unpacked."""
    if plan := re.search(r"^Installing collected packages: (.+)$", log, re.MULTILINE):
        done = len(list(environment.glob("lib/python3*/site-packages/*.dist-info")))
        total = plan[1].count(",") + 1
        return f"{bar(done, total)} unpacking {min(done, total)} of {total} packages"
    seen = re.findall(r"^Collecting ([\w.-]+)", log, re.MULTILINE)
    total = len(Path("constraints.txt").read_text().split())
    return f"{bar(len(seen), total)} fetching {seen[-1] if seen else ''}"


def bar(done: int, total: int, width: int = 20) -> str:
    filled = min(width, width * done // max(total, 1))
    return f"[{'#' * filled}{'.' * (width - filled)}]"


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


if __name__ == "__main__":
    sys.exit(main())
