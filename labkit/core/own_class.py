"""OwnClass: a KV scheme or policy of a person's own as data, so that it can travel, be recorded and be named.

A class of a module that can be imported travels by its name, any other by value (cloudpickle). Knows no
schemes, policies or processes.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import inspect
import pickle
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from labkit.core.errors import PlanRefused
from labkit.core.importable import importable, module_importable
from labkit.core.own_source import own_source

_DIGITS = 8


@dataclass(frozen=True, slots=True)
class OwnClass:
    """name: its qualified name. source: its text, with what it reaches in its notebook or script; or the text
    of the whole module where that can be imported. sha256: of the source, 16 digits. in_file: whether an
    import finds it.

    pickled: the class by value, in base64; empty where an import finds it, and in a record. It says nothing
    that the source does not and differs from process to process, so two are equal without it.
    """

    name: str
    module: str
    source: str
    sha256: str
    in_file: bool
    pickled: str = field(default="", compare=False, repr=False)

    @property
    def label(self) -> str:
        """How an arm and a plan name it: `Ring@1a2b3c4d`, `my_schemes:Ring@1a2b3c4d`."""
        name = f"{self.module}:{self.name}" if self.in_file else self.name.rpartition(".")[2]
        return f"{name}@{self.sha256[:_DIGITS]}"

    def load(self) -> type:
        """The class itself, the same at every call in a process.

        Raises PlanRefused where it cannot be made, or its module has changed since.
        """
        return _loaded(self)


def own_class(kind: type) -> OwnClass:
    """A class as data. Raises PlanRefused where its source cannot be read, or it cannot travel."""
    staying = _staying(kind)
    return staying if staying.in_file else replace(staying, pickled=_pickle(kind))


def class_label(kind: type) -> str:
    """The label that `own_class` gives it, which need not travel. Raises PlanRefused without a source."""
    return _staying(kind).label


def named(value: object, known: Sequence[OwnClass] = ()) -> tuple[Any, tuple[OwnClass, ...]]:
    """A class's label, and `known` with that class; anything else, a name too, as it is."""
    if not isinstance(value, type):
        return value, tuple(known)
    own = own_class(value)
    return own.label, tuple(known) if own in known else (*known, own)


def class_of(label: object, classes: Sequence[OwnClass]) -> OwnClass | None:
    """The one of these classes that a label names."""
    return next((own for own in classes if own.label == label), None)


def is_label(text: str) -> bool:
    """Whether text is a label as classes have them, or names one by `module:Name`."""
    path, _, digits = text.partition("@")
    module, colon, name = path.partition(":")
    named = all(part.isidentifier() for part in (*module.split("."), *(name.split(".") if colon else ())))
    hashed = len(digits) == _DIGITS and all(digit in "0123456789abcdef" for digit in digits)
    return named and (hashed or ("@" not in text and bool(colon)))


def import_class(label: str) -> type | None:
    """The class that `module:Name` or `module:Name@hash` names; None for text that names no class.

    `mixed:kv.json` reads as one, so whoever asks looks among the schemes that it knows first. Raises
    PlanRefused where the module cannot be imported, has no such class, or another text than the hash says.
    """
    path = label.partition("@")[0]
    if ":" not in path or not is_label(label):
        return None
    try:
        found = _import(path)
    except Exception as error:  # as in `load`
        got = f"{type(error).__name__}: {error}"
        raise PlanRefused(f"the class {path} was needed", got=got, next_step="module:Name") from error
    if not isinstance(found, type):
        raise PlanRefused(f"the class {path} was needed", got=f"{found!r:.60}, which is no class")
    if "@" in label and class_label(found) != label:
        raise _changed(label, found.__module__)
    return found


@cache
def _loaded(own: OwnClass) -> type:
    try:
        found = _import(f"{own.module}:{own.name}") if own.in_file else _unpickle(own.pickled)
    except Exception as error:  # a module runs when it is imported, and raises what it likes
        got = f"{type(error).__name__}: {error}"
        raise PlanRefused(f"the class {own.label} was needed", got=got) from error
    if own.in_file and _staying(found).sha256 != own.sha256:
        raise _changed(own.label, own.module)
    return found


def _changed(label: str, module: str) -> PlanRefused:
    next_step = "state the class anew, so that what runs is what is named"
    return PlanRefused(f"the class {label} was needed", got=f"another text in {module}", next_step=next_step)


def _staying(kind: type) -> OwnClass:
    """A class as data, without what it takes to travel."""
    in_file = importable(kind)
    source = inspect.getsource(sys.modules[kind.__module__]) if in_file else own_source(kind)
    if not source:
        need = f"a class whose source can be read is needed: {kind.__name__}"
        next_step = "define it in a cell of a notebook, a script or a module"
        raise PlanRefused(need, got="none", next_step=next_step)
    sha256 = hashlib.sha256(source.encode()).hexdigest()[:16]
    return OwnClass(kind.__qualname__, kind.__module__, source, sha256, in_file)


def _import(path: str) -> type:
    module, _, name = path.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _pickle(kind: type) -> str:
    import cloudpickle

    module = None if module_importable(kind.__module__) else sys.modules.get(kind.__module__)
    # A file that runs as an experiment is a module only while it runs: no worker can import it.
    passing = module if module is not sys.modules["__main__"] else None
    try:
        if passing:
            cloudpickle.register_pickle_by_value(passing)
        return base64.b64encode(cloudpickle.dumps(kind)).decode()
    except Exception as error:  # whatever it closes over may refuse
        need = f"a class that can be sent to a worker process is needed: {kind.__name__}"
        next_step = "keep open files, locks and loaded models out of what it reaches"
        raise PlanRefused(need, got=f"{type(error).__name__}: {error}", next_step=next_step) from error
    finally:
        if passing:
            cloudpickle.unregister_pickle_by_value(passing)


def _unpickle(pickled: str) -> type:
    return pickle.loads(base64.b64decode(pickled))
