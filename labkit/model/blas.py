"""The CPU's BLAS on Linux: which there is, which is taken, and loading it ahead of mlx.

Knows library files and the dynamic loader, imports no mlx: mlx binds to the first global `cblas_sgemm`.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from labkit.core.errors import LabkitError

BlasName = Literal["mkl", "openblas", "reference"]
Finders = Mapping[BlasName, Callable[[], str | None]]

OPTIONS: tuple[BlasName, ...] = ("mkl", "openblas", "reference")
SWITCH = "LABKIT_BLAS"
MENDING: Mapping[str, str] = {
    "mkl": 'pip install "labkit[mkl]"',
    "openblas": "apt-get install libopenblas0-pthread",
}


class BlasTooLate(UserWarning):
    """mlx was imported before labkit could load the BLAS that was chosen."""


@dataclass(frozen=True, slots=True)
class Choice:
    """name: the BLAS to take. library: what to load for it, None for mlx's own. reason: why it was taken."""

    name: BlasName
    library: str | None
    reason: str
    explicit: bool = False


def mkl_library(prefix: Path | None = None) -> str | None:
    """The newest `libmkl_rt.so.*` under an environment's prefix, where the package `mkl` puts it."""
    found = sorted((prefix or Path(sys.prefix)).glob("lib/libmkl_rt.so.*"))
    return str(found[-1]) if found else None


def openblas_library(root: Path = Path("/")) -> str | None:
    """A system OpenBLAS: Debian's threaded one first, then whatever the loader's cache names."""
    debian = sorted(root.glob("usr/lib/*-linux-gnu/openblas-pthread/libopenblas.so.0"))
    return str(debian[0]) if debian else ctypes.util.find_library("openblas")


FINDERS: Finders = {"mkl": mkl_library, "openblas": openblas_library}


def requested_name(value: str | None) -> BlasName | None:
    """The value of LABKIT_BLAS as a choice, None where unset or empty. Raise LabkitError on any other."""
    if not value:
        return None
    if value not in OPTIONS:
        raise LabkitError(
            f"{SWITCH} must name a BLAS",
            got=value,
            options=OPTIONS,
            next_step=f"set {SWITCH} to one of the options, or unset it for the machine's best",
        )
    return value


def choose(requested: BlasName | None, finders: Finders = FINDERS) -> Choice:
    """The requested BLAS, or the first one found. Raise LabkitError where the requested one is missing."""
    if requested == "reference":
        return Choice("reference", None, f"{SWITCH}=reference", explicit=True)
    if requested:
        return Choice(requested, _required(requested, finders), f"{SWITCH}={requested}", explicit=True)
    for name, find in finders.items():
        if library := find():
            return Choice(name, library, f"{name} was found; {SWITCH} is unset")
    lines = " or ".join(MENDING.values())
    return Choice("reference", None, f"neither mkl nor OpenBLAS was found, f32 products are slow: {lines}")


def _required(name: BlasName, finders: Finders) -> str:
    if library := finders[name]():
        return library
    others = [other for other, find in finders.items() if other != name and find()]
    raise LabkitError(
        f"{SWITCH}={name} needs {name}, which is not installed",
        got="no library of it was found",
        options=(*others, "reference"),
        next_step=MENDING[name],
    )


def load(choice: Choice) -> None:
    """Load the chosen library for the whole process. Raise LabkitError where the loader refuses it."""
    if choice.library is None:
        return
    if choice.name == "openblas":
        _load_fortran()
    try:
        ctypes.CDLL(choice.library, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise LabkitError(
            f"{choice.name} was found but cannot be loaded",
            got=error,
            next_step=f"{MENDING[choice.name]}, or set {SWITCH}=reference",
        ) from error


def _load_fortran() -> None:
    """OpenBLAS's own dependencies, ahead of the renamed copies that mlx brings; absent in some builds."""
    for name in ("libquadmath.so.0", "libgfortran.so.5"):
        with contextlib.suppress(OSError):
            ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)


def global_library() -> str | None:
    """The file whose `cblas_sgemm` every later library binds to, None where the process has none."""
    process = ctypes.CDLL(None)
    symbol = getattr(process, "cblas_sgemm", None)
    if symbol is None:
        return None
    info = _SymbolInfo()
    found = process.dladdr(ctypes.cast(symbol, ctypes.c_void_p), ctypes.byref(info))
    return info.file.decode() if found and info.file else "unknown"


class _SymbolInfo(ctypes.Structure):
    """`Dl_info` of dladdr(3)."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def name_of(library: str | None) -> BlasName:
    """Which BLAS a library file is, by its name; None is the reference BLAS in mlx's CPU build."""
    stem = Path(library).name if library else ""
    return "mkl" if "mkl" in stem else "openblas" if "openblas" in stem else "reference"
