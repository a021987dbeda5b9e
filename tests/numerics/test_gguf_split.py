"""A model split over several GGUF files: the same import from any part, and each wrong part by name."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import gguf
import pytest
from safetensors.numpy import load_file

from labkit.core.errors import ModelUnavailable
from labkit.model.gguf.file import model_stem, parts_of
from labkit.model.gguf.header import read_header
from labkit.model.gguf.importer import import_gguf
from labkit.model.origin import read_origin
from tests.numerics.tiny_gguf import add_metadata, make_weights, write_gguf, write_tensors

PARTS = 3


def write_split(folder: Path, *, seed: int = 0, named: str = "tiny") -> list[Path]:
    """The tiny llama in three files, as gguf's own writer splits it."""
    folder.mkdir(exist_ok=True)
    weights = make_weights(seed)
    writer = gguf.GGUFWriter(folder / f"{named}.gguf", "llama", split_max_tensors=-(-len(weights) // PARTS))
    add_metadata(writer)
    write_tensors(writer, weights)
    return sorted(folder.glob("*.gguf"))


@pytest.mark.parametrize("part", range(PARTS))
def test_any_part_imports_what_the_whole_file_does(tmp_path: Path, part: int) -> None:
    parts = write_split(tmp_path / "parts")
    assert [p.name for p in parts] == [f"tiny-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    split = import_gguf(parts[part], tmp_path / "split", dtype="float32")
    whole = import_gguf(write_gguf(tmp_path / "t.gguf"), tmp_path / "whole", dtype="float32")
    got, want = (load_file(folder / "model.safetensors") for folder in (split, whole))
    assert got.keys() == want.keys()
    assert all((got[name] == want[name]).all() for name in want)
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        assert (split / name).read_bytes() == (whole / name).read_bytes()
    digest = hashlib.sha256(b"".join(p.read_bytes() for p in parts)).hexdigest()
    assert read_origin(split)["sha256"] == digest


def test_the_name_is_that_of_the_model(tmp_path: Path) -> None:
    part = tmp_path / "a.b-00002-of-00003.gguf"
    assert model_stem(part) == "a.b"
    assert model_stem(tmp_path / "a.b.gguf") == "a.b"
    assert model_stem(tmp_path / "a-2-of-3.gguf") == "a-2-of-3"
    assert parts_of(tmp_path / "a.gguf") == (tmp_path / "a.gguf",)


def refused(path: Path, home: Path, named: str) -> None:
    with pytest.raises(ModelUnavailable, match=named):
        import_gguf(path, home / "out", dtype="float32")
    assert not home.exists()


def test_wrong_parts_are_refused_by_name(tmp_path: Path) -> None:
    first, second, third = write_split(tmp_path / "parts")
    home, spare = tmp_path / "home", tmp_path / "spare"
    second.rename(spare)
    refused(first, home, r"no tiny-00002-of-00003\.gguf in")
    refused(third, home, r"no tiny-00002-of-00003\.gguf in")
    shutil.copy(third, second)
    refused(first, home, r"tiny-00002-of-00003\.gguf\n.*split\.no 2")
    shutil.copy(first, second)
    refused(first, home, r"tiny-00002-of-00003\.gguf\n.*split\.no 0")
    write_gguf(second.with_name("whole"))
    second.with_name("whole").rename(second)
    refused(first, home, r"tiny-00002-of-00003\.gguf\n.*split\.no 0, split\.count 1")
    spare.rename(second)
    third.write_bytes(third.read_bytes()[:-100])
    refused(first, home, r"complete GGUF file was needed: tiny-00003-of-00003\.gguf")


def test_a_part_under_another_name_is_refused(tmp_path: Path) -> None:
    first, *_ = write_split(tmp_path / "parts")
    alone = first.rename(tmp_path / "alone.gguf")
    refused(alone, tmp_path / "home", r"alone\.gguf\n.*split\.count 3")
    for name in ("t-00004-of-00003.gguf", "t-00000-of-00003.gguf", "t-00001-of-99999.gguf"):
        shutil.copy(alone, tmp_path / name)
        refused(tmp_path / name, tmp_path / "home", r"part \d+ of \d+")


def rewritten(part: Path, key: str, value: int) -> None:
    """Put another number into a part's own metadata, in place."""
    data = part.read_bytes()
    at = data.index(key.encode()) + len(key) + 4
    width = 4 if key == "split.tensors.count" else 2
    part.write_bytes(data[:at] + value.to_bytes(width, "little") + data[at + width :])


def test_parts_of_another_split_are_refused(tmp_path: Path) -> None:
    parts = write_split(tmp_path / "parts")
    first, second, _ = parts
    held = len(make_weights())
    rewritten(first, "split.tensors.count", held - 1)
    refused(first, tmp_path / "home", r"another split\.tensors\.count than tiny-00001")
    for part in parts[1:]:
        rewritten(part, "split.tensors.count", held - 1)
    refused(first, tmp_path / "home", rf"split\.tensors\.count {held - 1}, the parts hold {held}")
    for part in parts:
        rewritten(part, "split.tensors.count", held)
    rewritten(second, "split.count", 4)
    refused(first, tmp_path / "home", r"tiny-00002-of-00003\.gguf\n.*split\.count 4")


def test_the_same_tensor_in_two_parts_is_refused(tmp_path: Path) -> None:
    first, _, third = write_split(tmp_path / "parts")
    name = next(
        n for n in read_header(third).tensors if n.replace("blk.1", "blk.0") in read_header(first).tensors
    )
    third.write_bytes(third.read_bytes().replace(name.encode(), name.replace("blk.1", "blk.0").encode()))
    refused(first, tmp_path / "home", r"1 tensors in more than one part")
