"""Where a result comes from: machine class, packages, code. Never a path, host or user name."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

import psutil

import labkit
from labkit.model.backend import Backend

PACKAGES = (
    "mlx",
    "mlx-lm",
    "mlx-cpu",
    "mlx-cuda-13",
    "mlx-metal",
    "mkl",
    "numpy",
    "transformers",
    "tokenizers",
)


def machine_class(backend: Backend) -> dict[str, Any]:
    """The class of this machine; the BLAS is an arm's, in its plan. slug: a folder name made of the rest."""
    fields = {
        "backend": backend.device,
        "chip": backend.chip,
        "cores": psutil.cpu_count() or 1,
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "os": platform.system().lower(),
        "arch": platform.machine(),
    }
    slug = "{os}-{arch}-{backend}-{chip}-{cores}c-{memory_gib}g".format(**fields)
    return {**fields, "slug": re.sub(r"[^a-z0-9.-]+", "-", slug.lower()).strip("-")}


def packages() -> dict[str, str]:
    """Versions of the packages that decide numbers, where installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def code_hash() -> str:
    """Hash over every Python file of the labkit package: what ties a record to the code it measured."""
    root = Path(labkit.__file__).parent
    sha = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        sha.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return sha.hexdigest()[:16]


def git_state(folder: Path) -> dict[str, Any]:
    """Revision of a checkout and whether it has changes; empty where git or a checkout is missing."""
    revision = _git(folder, "rev-parse", "HEAD")
    if not revision:
        return {}
    return {"git_revision": revision, "git_dirty": bool(_git(folder, "status", "--porcelain", "-uno"))}


def provenance(root: Path) -> dict[str, Any]:
    """What made a result: labkit's version and code hash, Python, packages, and the checkout's revision."""
    return {
        "labkit_version": labkit.__version__,
        "code_hash": code_hash(),
        "python": platform.python_version(),
        "packages": packages(),
        **git_state(root),
    }


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", os.fspath(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
