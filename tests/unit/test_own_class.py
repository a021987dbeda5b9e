"""OwnClass: a class of a cell, script or module as data: its name, source, hash, and the way back."""

from __future__ import annotations

import json
import linecache
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from labkit.core.canonical import plain
from labkit.core.errors import PlanRefused
from labkit.core.own_class import OwnClass, class_of, import_class, is_label, named, own_class

CELL = """
STEP = 4
def twice(x):
    return 2 * x
class Base:
    def more(self):
        return STEP
class Mine(Base):
    SPEC = "mine"
    def give(self):
        return twice(self.more())
"""


class InFile:
    SPEC = "in file"

    def give(self) -> int:
        return 3


def cell(text: str, monkeypatch: pytest.MonkeyPatch, name: str = "<ipython-input-1>") -> dict[str, Any]:
    """What a notebook's kernel does with a cell: compiled under a name that only linecache knows."""
    module = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text, name, "exec"), vars(module))
    return vars(module)


def as_json(own: OwnClass) -> OwnClass:
    return OwnClass(**json.loads(json.dumps(plain(own))))


def test_a_class_of_a_cell_travels_by_value_with_all_that_it_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    own = own_class(cell(CELL, monkeypatch)["Mine"])
    assert not own.in_file and own.label == f"Mine@{own.sha256[:8]}"
    for part in ("class Mine(Base):", "class Base:", "def twice(x):", "STEP = 4"):
        assert part in own.source
    assert own.source.startswith("class Mine")
    assert as_json(own).load()().give() == 8


def test_the_hash_follows_the_text_and_what_it_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    first = own_class(cell(CELL, monkeypatch)["Mine"])
    same = own_class(cell(CELL, monkeypatch, "<ipython-input-2>")["Mine"])
    assert first == same and first.label == same.label
    other = own_class(cell(CELL.replace("STEP = 4", "STEP = 5"), monkeypatch, "<ipython-input-3>")["Mine"])
    assert first != other and first.label != other.label


def test_what_the_body_of_a_class_is_made_of_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    body = "    bits = BITS\n    def give(self, more=BITS):\n        local = more\n"
    text = f"BITS = 4\nlocal = 1\nclass Made:\n{body}"
    first = own_class(cell(text, monkeypatch)["Made"])
    assert "BITS = 4" in first.source and "local = 1" not in first.source
    other = own_class(cell(text.replace("BITS = 4", "BITS = 8"), monkeypatch, "<ipython-input-4>")["Made"])
    assert first.label != other.label
    bare = "BITS = 4\nclass Bare:\n    bits = BITS\n"
    assert "BITS = 4" in own_class(cell(bare, monkeypatch, "<ipython-input-5>")["Bare"]).source


@pytest.mark.parametrize(
    ("text", "whether"),
    [
        ("Ring@1a2b3c4d", True),
        ("my_schemes:Ring", True),
        ("a.b:Ring.Inner@1a2b3c4d", True),
        ("Ring", False),
        ("affine:8", False),
        ("Ring@1a2b", False),
        ("Ring@1A2B3C4D", False),
        ("", False),
    ],
)
def test_what_reads_as_a_label(text: str, whether: bool) -> None:
    assert is_label(text) is whether


def test_a_class_without_functions_is_found_too(monkeypatch: pytest.MonkeyPatch) -> None:
    text = CELL + "class Bare(Mine):\n    SPEC = 'bare'\n"
    names = cell(text, monkeypatch, "<ipython-input-6>")
    own = own_class(names["Bare"])
    # A cell that ran, another version of it, and the first again, whose file is known already.
    names["In"] = ["", text, text.replace("'bare'", "'other'"), text]
    cell(text.replace("'bare'", "'other'"), monkeypatch, "<ipython-input-7>")
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(**names))
    assert own_class(names["Bare"]) == own
    assert own.source.startswith("class Bare(Mine):") and "class Mine(Base):" in own.source


def test_a_class_of_a_module_travels_by_name() -> None:
    own = own_class(InFile)
    assert own.in_file and own.label == f"{__name__}:InFile@{own.sha256[:8]}"
    assert own.source == Path(__file__).read_text() and own.pickled == ""
    assert as_json(own).load() is InFile
    assert import_class(own.label) is InFile and import_class(f"{__name__}:InFile") is InFile


def test_a_module_that_changed_is_refused() -> None:
    own = own_class(InFile)
    changed = replace(own, sha256="0" * 16)
    with pytest.raises(PlanRefused, match="another text"):
        changed.load()


def test_a_class_inside_a_function_travels_by_value() -> None:
    class Inner:
        def give(self) -> str:
            return InFile.SPEC

    own = own_class(Inner)
    assert not own.in_file and own.label.startswith("Inner@")
    assert own.source.startswith("class Inner:") and "class InFile" not in own.source
    assert as_json(own).load()().give() == "in file"


def test_an_experiment_file_s_class_outlives_its_run(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(f"from labkit.core.own_class import own_class\n{CELL}\nown = own_class(Mine)\n")
    names = runpy.run_path(str(file))
    assert names["own"] == own_class(names["Mine"]) and not names["own"].in_file
    assert as_json(names["own"]).load()().give() == 8


def test_another_process_makes_the_same_of_a_script_s_class(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    end = (
        "import json\nfrom labkit.core.canonical import plain\nfrom labkit.core.own_class import own_class\n"
    )
    file.write_text(f"{CELL}\n{end}print(json.dumps(plain(own_class(Mine))))\n")
    out = [subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=True).stdout] * 2
    first, second = (OwnClass(**json.loads(text)) for text in out)
    assert first == second and first.load()().give() == 8


def test_what_has_no_source_is_refused() -> None:
    with pytest.raises(PlanRefused, match="whose source can be read"):
        own_class(type("Made", (), {}))


def test_what_cannot_travel_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "import threading\nlock = threading.Lock()\nclass Mine:\n    def give(self):\n        return lock\n"
    )
    with pytest.raises(PlanRefused, match="can be sent to a worker"):
        own_class(cell(text, monkeypatch)["Mine"])


def test_names_and_classes_together() -> None:
    label, classes = named(InFile)
    assert named("affine:8", classes) == ("affine:8", classes) and named(InFile, classes) == (label, classes)
    assert class_of(str(label), classes) == own_class(InFile) and class_of("affine:8", classes) is None


@pytest.mark.parametrize("text", ["affine:8", "mixed:a/kv.json", "bf16", "a b:C", ""])
def test_text_that_names_no_class(text: str) -> None:
    assert import_class(text) is None


@pytest.mark.parametrize("text", ["no_such_module_here:Mine", f"{__name__}:Nothing", f"{__name__}:CELL"])
def test_text_that_names_a_class_that_is_not_there(text: str) -> None:
    with pytest.raises(PlanRefused):
        import_class(text)
