"""Pages that are made of the package: commands, modules, exit codes, and copies of the notebooks.

Files are written below docs/ before Sphinx looks for its sources; git ignores them.
"""

from __future__ import annotations

import pkgutil
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from commands import commands_page, exit_codes

if TYPE_CHECKING:
    from sphinx.application import Sphinx

# The layers, from the top down; one that is not there is left out.
LAYERS = (
    *("lab", "bench", "evals", "trace", "serve", "engine", "quant", "kv", "schedule", "model", "numerics"),
    *("plan", "store", "frontier", "plots", "core"),
)
EXIT_CODES, PUBLIC_NAMES = "<!-- exit codes -->", "<!-- public names -->"


def write_pages(docs: Path) -> None:
    """Write every generated page anew; those of a module that is gone go too."""
    for folder in (docs / "reference" / "api", docs / "notebooks"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    _write(docs / "reference" / "commands.md", commands_page())
    present = {name for _, name, package in pkgutil.iter_modules([str(docs.parent / "labkit")]) if package}
    for layer in LAYERS:
        if layer in present:
            _write(docs / "reference" / "api" / f"{layer}.md", layer_page(docs.parent, layer))
    for name in shown_notebooks(docs):
        shutil.copyfile(docs.parent / "notebooks" / name, docs / "notebooks" / name)


def shown_notebooks(docs: Path) -> list[str]:
    """The file names of the notebooks that the guide lists; others in notebooks/ are the reader's own."""
    page = (docs / "guide" / "notebooks.md").read_text(encoding="utf-8")
    return [f"{name}.ipynb" for name in re.findall(r"^\.\./notebooks/(\w+)$", page, re.MULTILINE)]


def layer_page(root: Path, layer: str) -> str:
    """One page for the modules of a layer, in the order of their names."""
    folder = root / "labkit" / layer
    found = pkgutil.walk_packages([str(folder)], prefix=f"labkit.{layer}.")
    modules = sorted(module.name for module in found if not module.ispkg)
    parts = [f"# labkit.{layer}", f"```{{eval-rst}}\n.. automodule:: labkit.{layer}\n   :no-index:\n```"]
    for module in modules:
        parts.append(f"## {module.removeprefix('labkit.')}")
        parts.append(f"```{{eval-rst}}\n.. automodule:: {module}\n   :ignore-module-all:\n```")
    return "\n\n".join(parts) + "\n"


def public_names() -> str:
    """A section per name of `labkit.__all__`, documented where it is defined."""
    import labkit

    parts = []
    for name in labkit.__all__:
        value = getattr(labkit, name)
        if not isinstance(value, str):
            kind = "autoclass" if isinstance(value, type) else "autofunction"
            home = f"{value.__module__}.{value.__name__}"
            parts.append(f"## {name}\n\n```{{eval-rst}}\n.. {kind}:: {home}\n   :no-index:\n```")
    return "\n\n".join(parts)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _before_reading(app: Sphinx) -> None:
    write_pages(Path(app.srcdir))


def _fill_in(app: Sphinx, docname: str, source: list[str]) -> None:
    source[0] = source[0].replace(EXIT_CODES, exit_codes()).replace(PUBLIC_NAMES, public_names())


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("builder-inited", _before_reading)
    app.connect("source-read", _fill_in)
    return {"parallel_read_safe": True}
