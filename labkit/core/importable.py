"""Importable: whether a fresh process would find a module, class or function by its name."""

from __future__ import annotations

import importlib.util
import sys
from functools import reduce
from typing import Any


def module_importable(name: str) -> bool:
    """Whether an import finds a module of this name, beside the one that runs as a script."""
    if name == "__main__":
        return False
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def importable(value: Any) -> bool:
    """Whether the module of a class or function can be imported, and has it by its name."""
    module = sys.modules.get(value.__module__ or "")
    if module is None or not module_importable(value.__module__):
        return False
    return reduce(lambda at, part: getattr(at, part, None), value.__qualname__.split("."), module) is value
