"""Backend: the device that mlx computes on, with the BLAS loaded ahead of mlx on a Linux CPU.

The one place that decides how mlx is imported. Knows no model; imports no mlx until `prepare` is called.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any, Literal

from labkit.core.errors import BackendMissing, LabkitError
from labkit.model import blas

Device = Literal["cpu", "metal", "cuda"]
Build = Literal["cpu", "metal", "cuda", "source"]

BUILDS: Mapping[str, Build] = {
    "mlx-cpu": "cpu",
    "mlx-cuda-12": "cuda",
    "mlx-cuda-13": "cuda",
    "mlx-metal": "metal",
}
_CPU_LINE = 'pip install "labkit[cpu]"'
_CUDA_LINE = 'pip install "labkit[cuda13]"'


@dataclass(frozen=True, slots=True)
class Backend:
    """What this process computes on.

    blas: what f32 products on a CPU go through, None where there is no choice. blas_reason: why that one.
    default_dtype: the dtype that models are imported in, None keeps the checkpoint's.
    default_prefill_chunk: tokens per prefill step where a request names none.
    """

    device: Device
    blas: Literal["mkl", "openblas", "reference", "accelerate"] | None
    blas_reason: str
    chip: str
    default_dtype: str | None
    default_prefill_chunk: int


def prepare(environ: Mapping[str, str] = os.environ) -> Backend:
    """Load the BLAS, import mlx and say what it computes on; later calls repeat nothing.

    Raise BackendMissing without a working mlx, LabkitError where LABKIT_BLAS cannot be honoured. Warn
    BlasTooLate, once, where mlx was imported before and so computes with another BLAS than the chosen one.
    """
    return _prepare(environ.get(blas.SWITCH) or None)


@cache
def _prepare(value: str | None) -> Backend:
    requested = blas.requested_name(value)
    build = installed_build()
    if build == "cpu" and sys.platform == "linux":
        name, reason = _settle_blas(blas.choose(requested))
        return _describe(_import_mlx(), name, reason)
    core = _import_mlx()
    if sys.platform == "darwin":
        return _describe(core, "accelerate", _unused(requested, "mlx's macOS build uses Accelerate"))
    return _describe(core, None, _unused(requested, f"mlx's {build} build brings its own"))


def _unused(requested: str | None, reason: str) -> str:
    return f"{reason}; {blas.SWITCH}={requested} has no effect here" if requested else reason


def installed_build() -> Build:
    """Which build of mlx this environment holds, found without importing it; raises as `find_build`."""
    return find_build(_installed(), sys.platform)


def _installed() -> set[str]:
    return {name for name in ("mlx", *BUILDS) if _has_distribution(name)}


def _has_distribution(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def find_build(installed: Collection[str], platform: str) -> Build:
    """Which build of mlx the installed distributions make; `source` where mlx came without a backend wheel.

    Raise BackendMissing without mlx, and where two builds overwrite one another's library file.
    """
    if "mlx" not in installed:
        raise BackendMissing("labkit needs mlx, which is not installed", next_step=install_lines(platform))
    found = [name for name in BUILDS if name in installed]
    if len(found) > 1:
        raise BackendMissing(
            "one build of mlx is needed: two bring the same library file",
            got=" and ".join(found),
            next_step=f"pip uninstall -y {' '.join(found)}; then {install_lines(platform)}",
        )
    return BUILDS[found[0]] if found else "source"


def install_lines(platform: str) -> str:
    """The line that installs a backend on a platform as `sys.platform` names it."""
    if platform == "darwin":
        return "pip install labkit (Apple silicon, macOS 14 or later)"
    return f"{_CPU_LINE} or, on an NVIDIA machine, {_CUDA_LINE}; never both"


def _settle_blas(choice: blas.Choice) -> tuple[blas.BlasName, str]:
    """Load the chosen BLAS where that is still possible; return the one in effect and why."""
    if "mlx.core" not in sys.modules and blas.global_library() is None:
        blas.load(choice)
        return choice.name, choice.reason
    actual = blas.name_of(blas.global_library())
    if actual == choice.name:
        return actual, choice.reason
    if "mlx.core" in sys.modules:
        _warn_too_late(actual, choice)
        return actual, f"mlx was imported before {choice.name} could be loaded"
    return _already_loaded(actual, choice)


def _already_loaded(actual: blas.BlasName, choice: blas.Choice) -> tuple[blas.BlasName, str]:
    """The first library loaded wins, so another explicit choice can no longer be honoured."""
    library = blas.global_library()
    if choice.explicit:
        raise LabkitError(
            f"{choice.reason} needs a process that has loaded no other BLAS",
            got=library,
            next_step="start without it (see LD_PRELOAD), or unset LABKIT_BLAS",
        )
    return actual, f"{library} was loaded in this process already"


def _warn_too_late(actual: str, choice: blas.Choice) -> None:
    warnings.warn(
        f"mlx was imported before labkit could load {choice.name}: f32 products use the {actual} BLAS. "
        "Call labkit.prepare() or labkit.load() before importing mlx (in a notebook, restart the kernel).",
        blas.BlasTooLate,
        stacklevel=5,
    )


def _import_mlx() -> Any:
    try:
        return importlib.import_module("mlx.core")
    except (ImportError, OSError) as error:
        raise _broken(error) from error


def _broken(error: Exception) -> BackendMissing:
    if "libcuda" in str(error):
        return BackendMissing(
            "mlx's CUDA build needs an NVIDIA driver, which was not found",
            got=error,
            next_step=f"install the driver, or: pip uninstall -y mlx-cuda-12 mlx-cuda-13; then {_CPU_LINE}",
        )
    return BackendMissing(
        "mlx is installed without a backend that works here",
        got=error,
        next_step=install_lines(sys.platform),
    )


def _describe(
    core: Any, name: Literal["mkl", "openblas", "reference", "accelerate"] | None, reason: str
) -> Backend:
    device = _device(core)
    on_cpu = device == "cpu"
    return Backend(
        device=device,
        blas=name,
        blas_reason=reason,
        chip=str(core.device_info().get("device_name", "unknown")),
        default_dtype="float32" if on_cpu else None,
        default_prefill_chunk=256 if on_cpu else 2048,
    )


def _device(core: Any) -> Device:
    if core.default_device().type != core.gpu:
        return "cpu"
    return "metal" if core.metal.is_available() else "cuda"


def verify_blas(size: int = 1024, repeats: int = 3, clock: Callable[[], float] = time.perf_counter) -> float:
    """GFLOP/s of the fastest of `repeats` f32 products of two size x size matrices, after one to warm up."""
    core = _import_mlx()
    left = core.random.normal((size, size), key=core.random.key(0))
    right = core.random.normal((size, size), key=core.random.key(1))
    core.eval(left, right, left @ right)
    return 2 * size**3 / min(_timed_product(core, left, right, clock) for _ in range(repeats)) / 1e9


def _timed_product(core: Any, left: Any, right: Any, clock: Callable[[], float]) -> float:
    start = clock()
    core.eval(left @ right)
    return clock() - start
