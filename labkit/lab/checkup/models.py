"""Models: what is installed, what is damaged, and whether the bundled model of the examples is there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from labkit.lab.checkup.line import Line
from labkit.model import registry
from labkit.model.fetch import BUNDLED
from labkit.model.wording import first_names, one_line

STARTER = "smollm2"


def models_home(environ: Mapping[str, str]) -> Path:
    """Where models lie. Raises RuntimeError where neither LABKIT_HOME nor the home folder can be told."""
    return registry.default_models_home(environ)


def homeless_line(error: RuntimeError) -> Line:
    """There is no place for models."""
    text = f"no folder for models: {one_line(error)}"
    return Line("models", "folder", "problem", text, "set LABKIT_HOME to a folder of yours")


def starter_is_missing(home: Path) -> bool:
    """Whether the bundled model of the examples has yet to be fetched."""
    try:
        return not any(found.name == STARTER for found in registry.installed(home))
    except OSError:
        return False


def model_lines(home: Path) -> Iterator[Line]:
    """Installed models in a line, then one for each damaged one and one where the starter is missing."""
    names = [found.name for found in registry.installed(home)]
    told = f"{len(names)} installed: {first_names(dict.fromkeys(names))}" if names else "none installed"
    yield Line("models", "installed", "ok", f"{told} ({home})")
    for bad in registry.damaged(home):
        bundled = bad.name in BUNDLED or "/" in bad.name
        mend = f"labkit models get {bad.name}" if bundled else f"rm -r '{bad.path}', then get it again"
        yield Line("models", bad.name, "warning", f"damaged: {bad.reason}", mend)
    if starter_is_missing(home):
        text = "not installed; demo, notebooks and shipped experiments use it"
        yield Line("models", STARTER, "warning", text, f"labkit models get {STARTER}")
