"""What `kv=` was given, as a request holds it: a name, the file in it, or a class. Reads files."""

from __future__ import annotations

from typing import Any, NamedTuple

from labkit.core.importable import module_importable
from labkit.core.kv_file import KVFile, file_of
from labkit.core.own_class import OwnClass, class_label, import_class
from labkit.core.spec import Catalog
from labkit.kv.config_file import read_kv_file


class KVArgument(NamedTuple):
    """name: of the scheme, or the label of kv_class. file: what the file in the name holds."""

    name: Any
    file: KVFile | None = None
    kv_class: type | None = None

    def content(self) -> dict[str, Any]:
        """It as fields of a Request."""
        return {"kv": self.name, "kv_file": self.file, "kv_class": self.kv_class}


def read_argument(kv: object, catalog: Catalog, known: tuple[type, ...] = ()) -> KVArgument:
    """Take apart what was asked for; what is no scheme at all is left to the planner to refuse.

    known: classes of the catalog, which go by their names. Raises PlanRefused for a class that has no source,
    cannot be imported or has changed.
    """
    if isinstance(kv, OwnClass):
        return KVArgument(kv.label, None, kv.load())
    if isinstance(kv, type):
        return KVArgument(_family(kv), None, None) if kv in known else KVArgument(class_label(kv), None, kv)
    if not isinstance(kv, str):
        return KVArgument(kv)
    family, _, rest = kv.partition(":")
    if family not in catalog.kv:
        return _imported(kv) if rest and module_importable(family) else KVArgument(kv)
    path = file_of(kv) if catalog.kv[family].file else None
    return KVArgument(kv) if path is None else KVArgument(kv, read_kv_file(path))


def _imported(name: str) -> KVArgument:
    found = import_class(name)
    return KVArgument(name) if found is None else KVArgument(class_label(found), None, found)


def _family(kind: Any) -> str:
    return kind.SPEC.family
