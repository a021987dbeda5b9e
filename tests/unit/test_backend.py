"""Which build of mlx there is and what a backend is on each; broken installs are stand-in packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from labkit.core.errors import BackendMissing
from labkit.model import backend

ROOT = Path(backend.__file__).parents[2]
CPU_LINE, CUDA_LINE = 'pip install "labkit[cpu]"', 'pip install "labkit[cuda13]"'
linux = pytest.mark.skipif(sys.platform != "linux", reason="the stand-ins are Linux builds")
GPU_CORE = """
class metal:
    is_available = staticmethod(lambda: False)
class Device:
    type = gpu = "gpu"
gpu, default_device = "gpu", Device
def device_info(): return {"device_name": "NVIDIA Test"}
"""


def environment(where: Path, *distributions: str, core: str | None = None) -> Path:
    """A folder of installed-looking distributions, with `mlx/core.py` of the given text."""
    for name in distributions:
        folder = where / f"{name.replace('-', '_')}-0.32.4.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: 0.32.4\n")
    (where / "mlx").mkdir()
    if core is not None:
        (where / "mlx" / "core.py").write_text(core)
    return where


def prepare_in(where: Path, **environ: str) -> str:
    """What `prepare` returns or raises, as text, where only the packages of a folder are installed."""
    code = (
        "import labkit\n"
        "try: print(labkit.prepare())\n"
        "except labkit.LabkitError as error: print(type(error).__name__, error)"
    )
    answer = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{where}", **environ},
        check=True,
    )
    return answer.stdout


@pytest.mark.parametrize(
    ("installed", "platform", "build"),
    [
        (["mlx", "mlx-cpu"], "linux", "cpu"),
        (["mlx", "mlx-cuda-13"], "linux", "cuda"),
        (["mlx", "mlx-cuda-12"], "linux", "cuda"),
        (["mlx", "mlx-metal"], "darwin", "metal"),
        (["mlx"], "linux", "source"),
    ],
)
def test_build_follows_the_distributions(installed: list[str], platform: str, build: str) -> None:
    assert backend.find_build(installed, platform) == build


def test_two_builds_are_refused_with_the_mending_lines() -> None:
    with pytest.raises(BackendMissing, match="mlx-cpu and mlx-cuda-13") as caught:
        backend.find_build(["mlx", "mlx-cpu", "mlx-cuda-13"], "linux")
    assert "pip uninstall -y mlx-cpu mlx-cuda-13" in (caught.value.next_step or "")
    assert CPU_LINE in (caught.value.next_step or "")


def test_lines_are_the_platforms_own() -> None:
    assert CPU_LINE in backend.install_lines("linux")
    assert CUDA_LINE in backend.install_lines("linux")
    assert "never both" in backend.install_lines("linux")
    assert "labkit[" not in backend.install_lines("darwin")


def test_no_mlx_at_all(tmp_path: Path) -> None:
    said = prepare_in(tmp_path)
    assert said.startswith("BackendMissing labkit needs mlx, which is not installed")


@linux
def test_mlx_without_a_backend(tmp_path: Path) -> None:
    said = prepare_in(environment(tmp_path, "mlx"))
    assert said.startswith("BackendMissing mlx is installed without a backend that works here")
    assert CPU_LINE in said
    assert CUDA_LINE in said


@linux
def test_cuda_build_without_a_driver(tmp_path: Path) -> None:
    core = "raise ImportError('libcuda.so.1: cannot open shared object file')"
    said = prepare_in(environment(tmp_path, "mlx", "mlx-cuda-13", core=core))
    assert said.startswith("BackendMissing mlx's CUDA build needs an NVIDIA driver")
    assert CPU_LINE in said


@linux
def test_gpu_keeps_the_checkpoints_dtype_and_takes_long_chunks(tmp_path: Path) -> None:
    where = environment(tmp_path, "mlx", "mlx-cuda-13", core=GPU_CORE)
    said = prepare_in(where, LABKIT_BLAS="mkl")
    assert "device='cuda', blas=None" in said
    assert "LABKIT_BLAS=mkl has no effect here" in said
    assert "chip='NVIDIA Test', default_dtype=None, default_prefill_chunk=2048" in said


@linux
def test_cpu_is_float32_in_short_chunks(tmp_path: Path) -> None:
    core = GPU_CORE.replace('type = gpu = "gpu"', 'type = "cpu"')
    said = prepare_in(environment(tmp_path, "mlx", "mlx-cpu", core=core), LABKIT_BLAS="reference")
    assert "device='cpu', blas='reference', blas_reason='LABKIT_BLAS=reference'" in said
    assert "default_dtype='float32', default_prefill_chunk=256" in said


def test_verify_blas_counts_two_operations_a_multiply_add() -> None:
    clock = iter([0.0, 1.0, 1.0, 1.5, 2.0, 4.0])
    fastest_s = 0.5
    measured = backend.verify_blas(size=64, repeats=3, clock=lambda: next(clock))
    assert measured == pytest.approx(2 * 64**3 / fastest_s / 1e9, rel=1e-12)  # exact but for rounding
