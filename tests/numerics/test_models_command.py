"""`labkit models show` of real directories: what it says, and that it refuses what does not load."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.model.origin import read_origin, write_origin
from tests.numerics.damaged_directory import pack_soundly
from tests.numerics.tiny_directory import write_directory
from tests.numerics.tiny_gguf import write_gguf
from tests.unit.command_line import labkit


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path / "home" / "models"


def facts(text: str) -> dict[str, str]:
    """The two columns of the table; a label is at most two words and ends at two spaces."""
    rows = (line.strip().split("  ", 1) for line in text.splitlines() if line.strip())
    return {row[0]: row[-1].strip() for row in rows}


def test_show_says_what_is_packed_and_where_it_came_from(tmp_path: Path) -> None:
    directory = pack_soundly(write_directory(tmp_path / "m"))
    write_origin(
        directory,
        {
            "source": {"kind": "wheel", "package": "p", "version": "1", "terms": "Some Terms"},
            "labkit_version": "1",
        },
    )
    found = facts(labkit("models", "show", directory).out)
    assert found["quantization"] == "1 matrices in 4 bits, groups of 32"
    assert (found["source"], found["licence"]) == ("wheel: p 1", "Some Terms")
    assert (found["layers"], found["context"], found["sliding window"]) == ("2 full", "512 tokens", "none")
    assert "experts" not in found
    data = json.loads(labkit("models", "show", directory, "--json").out)
    assert data["packing"] == [{"bits": 4, "group_size": 32, "layers": 1}]
    assert data["source"]["terms"] == "Some Terms"


def test_a_kept_import_says_so(tmp_path: Path, home: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf")
    ended = labkit("models", "get", file, "--dtype", "float32", "--keep-quantized")
    assert ended.code == 0, ended.err
    assert "tiny-q float32" in ended.out
    found = facts(labkit("models", "show", "tiny-q").out)
    assert "in 8 bits, groups of 32" in found["quantization"]
    assert found["source"] == f"gguf: {file}"
    assert read_origin(home / "tiny-q-float32")["keep_quantized"] is True


def test_what_does_not_load_is_refused_and_not_listed_as_whole(tmp_path: Path, home: Path) -> None:
    whole, torn = write_directory(home / "whole"), write_directory(home / "torn")
    (torn / "model.safetensors").write_bytes((torn / "model.safetensors").read_bytes()[:-7])
    (whole / "tokenizer.json").unlink()
    assert "a tokenizer that mlx-lm can load" in labkit("models", "show", "whole").message()
    assert "not damaged was needed: torn" in labkit("models", "show", "torn").message()
    listed = json.loads(labkit("models", "list", "--json").out)
    assert [m["name"] for m in listed["installed"]] == ["whole"]
    assert [(m["name"], "fewer than its header" in m["reason"]) for m in listed["damaged"]] == [
        ("torn", True)
    ]
    assert "torn is damaged: a complete safetensors file" in labkit("models", "list").err


def test_show_in_a_process_of_its_own_says_nothing_else(tmp_path: Path) -> None:
    """The BLAS is loaded ahead of mlx, and nobody else has a word on stderr."""
    line = [sys.executable, "-m", "labkit.cli.main", "models", "show", str(write_directory(tmp_path / "m"))]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "fingerprint ...\n")


def test_a_copy_keeps_the_terms_of_its_source(tmp_path: Path, home: Path) -> None:
    directory = write_directory(tmp_path / "m")
    (directory / "LICENSE").write_text("the text")
    source = {"kind": "wheel", "terms": "Some Terms"}
    write_origin(directory, {"name": "own", "source": source, "labkit_version": "1"})
    assert labkit("models", "get", directory, "--dtype", "float16").code == 0
    assert facts(labkit("models", "show", "own-float16").out)["licence"] == "Some Terms"
    assert (home / "own-float16" / "LICENSE").read_text() == "the text"


def test_a_listed_name_is_never_cut(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    names = ("m", "a-model-with-a-name-that-is-longer-than-any-terminal-" + "is-wide-" * 8 + "4bit")
    for name in names:
        write_directory(home / name)
    listed = [line.split() for line in labkit("models", "list").out.splitlines()]
    assert [name for name in names if name not in [words[0] for words in listed if words]] == []
