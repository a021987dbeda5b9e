"""Names that two sources share: neither model silently becomes the other."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from labkit.core.errors import ModelUnavailable
from labkit.model import registry, sources
from labkit.model.artifact import measure
from labkit.model.hub import repository as hub
from labkit.model.origin import read_entries, read_origin, write_origin
from tests.numerics.tiny_directory import write_directory
from tests.numerics.tiny_gguf import make_weights, write_gguf


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def gguf(file: Path, seed: int = 0) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    return write_gguf(file, edit=lambda _, weights: weights.update(make_weights(seed)))


def get(source: Path | str, home: Path, dtype: str = "float32", *, keep: bool = False) -> Path:
    return registry.get(source, home=home, dtype=dtype, keep_quantized=keep)


def snapshot(folder: Path, repository: str) -> Path:
    return write_directory(folder / f"models--{repository.replace('/', '--')}" / "snapshots" / "c0ffee")


def test_an_import_is_of_the_dtype_it_was_made_for_and_never_converted_onto_itself(
    tmp_path: Path, home: Path
) -> None:
    kept = get(gguf(tmp_path / "k.gguf"), home, "bfloat16", keep=True)
    before = {f.name: f.read_bytes() for f in kept.iterdir()}
    assert get("k-q", home, "bfloat16") == kept
    assert {f.name: f.read_bytes() for f in kept.iterdir()} == before
    odd = write_directory(home / "x-bfloat16")
    write_origin(odd, {"name": "x", "dtype": "float32", "labkit_version": "1"})
    with pytest.raises(ModelUnavailable, match="another name was needed"):
        get("x", home, "bfloat16")
    assert measure(odd).dtype == "float32"


def test_two_files_of_one_name_are_told_apart(tmp_path: Path, home: Path) -> None:
    first, second = gguf(tmp_path / "a/m.gguf"), gguf(tmp_path / "b/m.gguf", 2)
    path = get(first, home)
    before = measure(path).fingerprint
    with pytest.raises(ModelUnavailable, match="from another source") as caught:
        get(second, home)
    assert str(first) in str(caught.value)
    assert str(second) in str(caught.value)
    assert caught.value.next_step == f"rename the new one, or remove {path}"
    assert measure(path).fingerprint == before
    gguf(first, 3)  # the same path with other content is the same source
    assert measure(get(first, home)).fingerprint != before
    assert [f.name for f in home.iterdir()] == ["m-float32"]


@pytest.mark.parametrize("keeps_times", [True, False])
def test_a_file_that_moved_is_the_same(tmp_path: Path, home: Path, keeps_times: bool) -> None:
    file = gguf(tmp_path / "a/m.gguf")
    path = get(file, home)
    weights = (path / "model.safetensors").stat()
    moved = tmp_path / "b" / "m.gguf"
    moved.parent.mkdir()
    file.rename(moved)
    if not keeps_times:
        os.utime(moved, ns=(1, 1))
    assert get(moved, home) == path
    assert (path / "model.safetensors").stat() == weights
    gguf(moved, 2)  # from now on it is known where it lies
    assert get(moved, home) == path
    assert (path / "model.safetensors").stat().st_ino != weights.st_ino


@pytest.mark.parametrize("name", ["smollm2", "smollm2-q", "gemma3-270m"])
def test_bundled_names_are_nobody_elses(tmp_path: Path, home: Path, name: str) -> None:
    bundled = name.removesuffix("-q")
    with pytest.raises(ModelUnavailable, match=f"{bundled} is a model that comes with labkit"):
        get(gguf(tmp_path / f"{name}.gguf"), home)
    with pytest.raises(ModelUnavailable, match=f"{bundled} is a model that comes with labkit"):
        get(write_directory(tmp_path / name), home, "float16")
    assert not list(home.glob("*"))
    # What an earlier labkit made of such a file is not taken for the bundled model.
    old = write_directory(home / f"{bundled}-float32")
    write_origin(old, {"name": bundled, "source": {"kind": "gguf"}, "labkit_version": "1"})
    with pytest.raises(ModelUnavailable, match=f"labkit models get {bundled}"):
        registry.resolve(bundled, home=home)
    with pytest.raises(ModelUnavailable, match="from another source"):
        get(bundled, home)


def test_two_directories_of_one_name_are_told_apart(tmp_path: Path, home: Path) -> None:
    first, second = write_directory(tmp_path / "a/m"), write_directory(tmp_path / "b/m")
    path = get(first, home, "float16")
    with pytest.raises(ModelUnavailable, match="from another source"):
        get(second, home, "float16")
    shutil.rmtree(second)
    first.rename(second)
    assert get(second, home, "float16") == path
    assert read_origin(path)["source"]["path"] == str(second)


def test_a_folder_that_labkit_did_not_make_is_left_alone(tmp_path: Path, home: Path) -> None:
    mine = write_directory(home / "m-float32")
    for source in (gguf(tmp_path / "m.gguf"),):
        with pytest.raises(ModelUnavailable, match="a folder that labkit did not make"):
            get(source, home)
    assert measure(mine).dtype == "float32"


def test_a_copy_of_a_hub_model_is_not_taken_for_another_hub_model(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir()
    (home / "org--small").symlink_to(snapshot(tmp_path, "org/small"))
    copy = get("org/small", home, "bfloat16")
    assert copy.name == "org.small-bfloat16"
    other = snapshot(tmp_path, "org/small-bfloat16")
    monkeypatch.setattr(hub, "fetch_model", lambda *_: other)
    assert registry.get("org/small-bfloat16", home=home) == other
    assert get("org/small", home, "bfloat16") == copy
    # Nor is one of an earlier labkit, which was named like a hub id.
    write_origin(copy, {**read_entries(copy), "name": "org/old-bfloat16"})
    with pytest.raises(ModelUnavailable, match="labkit models get org/old-bfloat16"):
        registry.resolve("org/old-bfloat16", home=home)


def test_two_dashes_stand_in_links_only(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert get(gguf(tmp_path / "org--k.gguf"), home, "float16").name == "org-k-float16"
    found = snapshot(tmp_path, "org/k")
    monkeypatch.setattr(hub, "fetch_model", lambda *_: found)
    (home / "org--k").mkdir()
    with pytest.raises(ModelUnavailable, match="the place of the link to org/k"):
        registry.get("org/k", home=home)
    (home / "org--k").rmdir()
    assert registry.get("org/k", home=home) == found


def test_files_of_two_repositories_are_two_models(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"org/a": gguf(tmp_path / "a/model.gguf"), "org/b": gguf(tmp_path / "b/model.gguf", 2)}
    read = lambda name: hub.Repository(name, "c", (hub.HubFile("model.gguf", 1, "", None),))  # noqa: E731
    monkeypatch.setattr(hub, "read_repository", read)
    monkeypatch.setattr(hub, "fetch_files", lambda found, *_: [files[found.name]])
    paths = [get(f"{name}:model.gguf", home) for name in files]
    assert [p.name for p in paths] == ["org.a.model-float32", "org.b.model-float32"]
    assert [measure(p).family for p in paths] == ["model", "model"]
    monkeypatch.setattr(hub, "read_repository", lambda _: pytest.fail("asked again"))
    assert [get(f"{name}:model.gguf", home) for name in files] == paths
    # A damaged one is fetched again.
    (paths[0] / "model.safetensors").write_bytes(b"short")
    monkeypatch.setattr(hub, "read_repository", read)
    assert get("org/a:model.gguf", home) == paths[0]
    assert measure(paths[0]).family == "model"


@pytest.mark.parametrize("part", ["model.safetensors", "tokenizer.json"])
def test_an_import_that_lost_a_part_is_made_anew(tmp_path: Path, home: Path, part: str) -> None:
    file = gguf(tmp_path / "m.gguf")
    path = get(file, home)
    (path / part).unlink()
    assert get(file, home) == path
    assert sources.is_whole(path)


def test_a_damaged_copy_is_made_anew(tmp_path: Path, home: Path) -> None:
    directory = write_directory(tmp_path / "m")
    copy = get(directory, home, "float16")
    (copy / "model.safetensors").write_bytes(b"short")
    assert measure(get(directory, home, "float16")).dtype == "float16"


def test_a_copy_follows_a_changed_config(tmp_path: Path, home: Path) -> None:
    directory = write_directory(tmp_path / "m")
    copy = get(directory, home, "float16")
    config = directory / "config.json"
    config.write_text(config.read_text().replace("512", "1024"))
    assert "1024" in (get(directory, home, "float16") / "config.json").read_text()
    assert copy.name == "m-float16"


def test_a_copy_is_made_of_the_most_exact_sibling(tmp_path: Path, home: Path) -> None:
    file = gguf(tmp_path / "own.gguf")
    for dtype in ("bfloat16", "float32"):
        get(file, home, dtype)
    copy = get("own", home, "float16")
    assert read_origin(copy)["source"]["path"] == str(home / "own-float32")


def test_a_damaged_hub_model_is_fetched_again(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir()
    (home / "org--small").symlink_to(tmp_path / "gone")
    found = snapshot(tmp_path, "org/small")
    monkeypatch.setattr(hub, "fetch_model", lambda *_: found)
    assert registry.get("org/small", home=home) == found
    (found / "model.safetensors").write_bytes(b"short")
    with pytest.raises(ModelUnavailable, match="complete safetensors"):
        registry.get("org/small", home=home)


def test_a_hub_id_cannot_stay_quantized(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "fetch_model", lambda *_: pytest.fail("fetched"))
    with pytest.raises(ModelUnavailable, match="a GGUF file was needed to keep it quantized"):
        registry.get("org/small", home=home, keep_quantized=True)
