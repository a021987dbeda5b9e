"""Packages: labkit, Python and what labkit needs, against the bounds that its own metadata states."""

from __future__ import annotations

import importlib.util
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path

import labkit
from labkit.lab.checkup.line import Line
from labkit.model import blas

NAMED = ("mlx", "mlx-lm", "numpy", "duckdb", "pandas")
DRIVER = Path("/proc/driver/nvidia/version")
Versions = Callable[[str], str]


def version_lines(versions: Versions = metadata.version) -> Iterator[Line]:
    """One line for labkit, Python, each package of NAMED and each that is missing or out of bounds."""
    yield Line("versions", "labkit", "ok", labkit.__version__)
    try:
        requirements, python = (
            metadata.requires("labkit") or [],
            metadata.metadata("labkit")["Requires-Python"],
        )
    except metadata.PackageNotFoundError:
        text = f"Python {platform.python_version()}; labkit is not installed, so no bounds are known"
        yield Line("versions", "bounds", "warning", text, "pip install -e . in labkit's folder")
        return
    yield python_line(platform.python_version(), python or "")
    yield from bound_lines(requirements, versions)


def python_line(version: str, bounds: str) -> Line:
    """Whether this Python is one that labkit supports."""
    from packaging.specifiers import SpecifierSet

    inside = SpecifierSet(bounds).contains(version, prereleases=True)
    mend = "" if inside else f"make a new environment with a Python {bounds}"
    return Line("versions", "python", "ok" if inside else "problem", f"{version} (needs {bounds})", mend)


def bound_lines(requirements: Sequence[str], versions: Versions) -> Iterator[Line]:
    """The requirements that hold here without an extra, each against what is installed."""
    from packaging.requirements import Requirement

    parsed = [Requirement(text) for text in requirements]
    needed = [r for r in parsed if r.marker is None or r.marker.evaluate({"extra": ""})]
    quiet = 0
    for requirement in needed:
        line = _bound_line(requirement.name, str(requirement.specifier), versions)
        if line.level == "ok" and requirement.name not in NAMED:
            quiet += 1
        else:
            yield line
    yield Line("versions", "others", "ok", f"{quiet} more packages are within their bounds")


def _bound_line(name: str, bounds: str, versions: Versions) -> Line:
    from packaging.specifiers import SpecifierSet

    mend = f'pip install "{name}{bounds}"'
    try:
        version = versions(name)
    except metadata.PackageNotFoundError:
        return Line("versions", name, "problem", f"not installed (needs {bounds})", mend)
    if not isinstance(version, str):
        return Line("versions", name, "problem", "installed without a version", f"{mend} --force-reinstall")
    if SpecifierSet(bounds).contains(version, prereleases=True):
        return Line("versions", name, "ok", f"{version} (needs {bounds})")
    return Line("versions", name, "problem", f"{version} is out of bounds (needs {bounds})", mend)


def optional_lines(device: str | None, driver: Path = DRIVER) -> Iterator[Line]:
    """What labkit does without, where it would be of use. device: of the backend, None where unknown."""
    yield _mkl_line(device)
    yield _nvml_line(device, driver)
    lab = all(importlib.util.find_spec(name) for name in ("jupyterlab", "ipykernel"))
    mend = "" if lab else "pip install jupyterlab"
    yield Line("optional", "jupyter", "ok" if lab else "warning", "installed" if lab else "missing", mend)


def _mkl_line(device: str | None) -> Line:
    if device != "cpu" or sys.platform != "linux" or platform.machine() != "x86_64":
        return Line("optional", "mkl", "absent", "of use to mlx on an x86-64 Linux CPU only")
    if blas.mkl_library():
        return Line("optional", "mkl", "ok", "installed")
    if blas.openblas_library():
        return Line("optional", "mkl", "ok", "not installed; OpenBLAS takes its place")
    return Line("optional", "mkl", "warning", "f32 products are slow without it", blas.MENDING["mkl"])


def _nvml_line(device: str | None, driver: Path) -> Line:
    if device != "cuda" and not driver.exists():
        return Line("optional", "nvidia-ml-py", "absent", "no NVIDIA driver here")
    if importlib.util.find_spec("pynvml"):
        return Line("optional", "nvidia-ml-py", "ok", "installed")
    text = "the GPU's clocks, heat and processes cannot be judged without it"
    return Line("optional", "nvidia-ml-py", "warning", text, 'pip install "nvidia-ml-py>=13"')
