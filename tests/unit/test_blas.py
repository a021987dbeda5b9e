"""Which BLAS is chosen, and that a real process computes with it: each case in an interpreter of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from labkit.core.errors import LabkitError
from labkit.model import blas

ROOT = Path(blas.__file__).parents[2]
MKL, OPENBLAS = blas.mkl_library(), blas.openblas_library() if sys.platform == "linux" else None
PRODUCT = "import mlx.core as mx; a = mx.ones((256, 256)); mx.eval(a @ a)"
BOTH: blas.Finders = {"mkl": lambda: "m", "openblas": lambda: "o"}
NEITHER: blas.Finders = {"mkl": lambda: None, "openblas": lambda: None}
MAPPED = "print(*{word for word in open('/proc/self/maps').read().split() if 'lib' in word})"


def on_cpu_build() -> bool:
    names = {distribution.name for distribution in metadata.distributions()}
    return sys.platform == "linux" and "mlx-cpu" in names


cpu_build = pytest.mark.skipif(not on_cpu_build(), reason="needs mlx's CPU build on Linux")
with_mkl = pytest.mark.skipif(MKL is None, reason="needs the package mkl")


def run(code: str, switch: str | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter with LABKIT_BLAS as given, unset where None."""
    kept = {name: value for name, value in os.environ.items() if name != blas.SWITCH}
    chosen = {blas.SWITCH: switch} if switch is not None else {}
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**kept, **chosen, **environ},
        check=False,
    )


def test_default_takes_what_is_found_first() -> None:
    assert blas.choose(None, BOTH).library == "m"
    assert blas.choose(None, {**BOTH, "mkl": lambda: None}).name == "openblas"


def test_default_without_any_is_reference_and_says_how_to_mend() -> None:
    choice = blas.choose(None, NEITHER)
    assert (choice.name, choice.library) == ("reference", None)
    assert 'pip install "labkit[mkl]"' in choice.reason


def test_explicit_choice_beats_what_is_found() -> None:
    assert blas.choose("openblas", BOTH).library == "o"
    assert blas.choose("reference", BOTH).library is None


@pytest.mark.parametrize(
    ("name", "line"),
    [("mkl", 'pip install "labkit[mkl]"'), ("openblas", "apt-get install libopenblas0-pthread")],
)
def test_missing_explicit_choice_names_the_mending_line(name: blas.BlasName, line: str) -> None:
    with pytest.raises(LabkitError) as caught:
        blas.choose(name, NEITHER)
    assert caught.value.next_step == line
    assert caught.value.options == ("reference",)


@pytest.mark.parametrize("value", ["nonsense", "MKL", " mkl"])
def test_unknown_value_lists_the_options(value: str) -> None:
    with pytest.raises(LabkitError, match="mkl, openblas, reference") as caught:
        blas.requested_name(value)
    assert caught.value.got == value


@pytest.mark.parametrize(("value", "name"), [(None, None), ("", None), ("mkl", "mkl")])
def test_unset_and_known_values(value: str | None, name: str | None) -> None:
    assert blas.requested_name(value) == name


def test_libraries_are_found_by_place(tmp_path: Path) -> None:
    assert blas.mkl_library(tmp_path) is None
    for path in (
        "lib/libmkl_rt.so.2",
        "lib/libmkl_rt.so.3",
        "usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    assert blas.mkl_library(tmp_path) == str(tmp_path / "lib/libmkl_rt.so.3")
    assert (blas.openblas_library(tmp_path) or "").endswith("openblas-pthread/libopenblas.so.0")


def test_unloadable_library_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "libmkl_rt.so.3").write_text("not a library")
    choice = blas.Choice("mkl", str(tmp_path / "libmkl_rt.so.3"), "found")
    with pytest.raises(LabkitError, match="cannot be loaded") as caught:
        blas.load(choice)
    assert "LABKIT_BLAS=reference" in (caught.value.next_step or "")


@cpu_build
@with_mkl
@pytest.mark.parametrize("switch", [None, "mkl"])
def test_products_really_run_in_mkl(switch: str | None) -> None:
    code = f"import labkit; print(labkit.prepare().blas); {MAPPED}; {PRODUCT}; {MAPPED}"
    name, before, after = run(code, switch).stdout.splitlines()
    assert name == "mkl"
    assert "libmkl_rt" in before
    # libmkl_rt is a dispatcher: it maps the kernels only when one of its functions is called.
    assert "libmkl_core" not in before
    assert "libmkl_core" in after


@cpu_build
def test_reference_loads_no_other_library() -> None:
    code = f"import labkit; print(labkit.prepare().blas); {PRODUCT}; {MAPPED}"
    name, mapped = run(code, "reference").stdout.splitlines()
    assert name == "reference"
    assert "libmkl" not in mapped
    assert "openblas" not in mapped


@cpu_build
def test_openblas_is_used_or_its_package_named() -> None:
    answer = run(f"import labkit; print(labkit.prepare().blas); {PRODUCT}; {MAPPED}", "openblas")
    if OPENBLAS is None:
        assert "apt-get install libopenblas0-pthread" in answer.stderr
    else:
        name, mapped = answer.stdout.splitlines()
        assert name == "openblas"
        assert "libopenblas" in mapped


@cpu_build
@with_mkl
def test_late_import_is_said_once() -> None:
    twice = "a = labkit.prepare(); b = labkit.prepare()"
    code = f"import mlx.core, labkit; {twice}; print(a is b, a.blas, a.blas_reason)"
    answer = run(code)
    assert answer.stdout.strip() == "True reference mlx was imported before mkl could be loaded"
    assert answer.stderr.count("BlasTooLate: mlx was imported before labkit could load mkl") == 1
    assert "restart the kernel" in answer.stderr


@cpu_build
def test_late_import_is_fine_where_reference_was_meant() -> None:
    answer = run("import mlx.core, labkit; print(labkit.prepare().blas)", "reference")
    assert (answer.stdout.strip(), answer.stderr) == ("reference", "")


@cpu_build
@with_mkl
@pytest.mark.parametrize(("switch", "expected"), [(None, "mkl"), ("mkl", "mkl"), ("reference", "LD_PRELOAD")])
def test_library_loaded_by_others_is_found_out(switch: str | None, expected: str) -> None:
    load = f"import ctypes; ctypes.CDLL({MKL!r}, ctypes.RTLD_GLOBAL)"
    code = f"{load}; import labkit; print(labkit.prepare().blas)"
    answer = run(code, switch)
    assert expected in answer.stdout + answer.stderr
    assert bool(answer.returncode) == (switch == "reference")


@cpu_build
def test_nonsense_is_refused_before_mlx_is_imported() -> None:
    attempt = "try: labkit.prepare()\nexcept labkit.LabkitError as error: print(error, 'mlx' in sys.modules)"
    code = f"import sys, labkit\n{attempt}"
    assert run(code, "nonsense").stdout.splitlines() == [
        "LABKIT_BLAS must name a BLAS",
        "  got:     nonsense",
        "  options: mkl, openblas, reference",
        "  next:    set LABKIT_BLAS to one of the options, or unset it for the machine's best False",
    ]
