"""The hub: downloads that go on where they stopped, room asked for first, one message for what goes wrong."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from labkit.model.hub.repository import HubFile, Repository
from labkit.model.sources import part_names
from tests.numerics.tiny_gguf import write_gguf
from tests.unit.command_line import Ended
from tests.unit.hub_server import COMMIT, Hub, serve

MB = 1 << 20
CHUNK = 10 * MB  # what the hub client reads before it writes
CONFIG = b'{"model_type": "llama"}'
LARGE = save({"w.weight": np.arange(6 * MB, dtype=np.float32).reshape(1024, -1)})  # 24 MB
SMALL = save({"w.weight": np.ones((64, 64), np.float32)})
MODEL = {"config.json": CONFIG, "tokenizer.json": b"{}", "model.safetensors": SMALL}
FULL_DISK = """
import shutil, sys, types
free = int(sys.argv.pop())
shutil.disk_usage = lambda _: types.SimpleNamespace(free=free)
from labkit.cli.main import main
main()
"""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    gguf = write_gguf(tmp_path / "tiny.gguf").read_bytes()
    files = {
        "org/large": {**MODEL, "model.safetensors": LARGE},
        "org/small": MODEL,
        "org/gguf": {"README.md": b"hello", "a/tiny-Q8_0.gguf": gguf, "tiny-F16.gguf": gguf},
        "org/torch": {"config.json": CONFIG, "pytorch_model.bin": b"x" * 2000},
        "org/empty": {},
    }
    with serve(files) as served:
        yield served


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "labkit.cli.main", "models", *arguments]


def environ(hub: Hub, home: Path, **more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("HF_") and "proxy" not in k.lower()}
    own = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(home / "hf"), "LABKIT_HOME": str(home / "labkit")}
    return {**kept, **own, "NO_PROXY": "*", "COLUMNS": "200", **more}


def run(hub: Hub, home: Path, *arguments: str, code: str | None = None, **more: str) -> Ended:
    line = [sys.executable, "-c", code, "models", *arguments] if code else command(*arguments)
    done = subprocess.run(
        line, env=environ(hub, home, **more), capture_output=True, text=True, check=False, timeout=60
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def unfinished(home: Path) -> list[Path]:
    return list(home.rglob("*.incomplete"))


def wait_for(size: int, home: Path) -> None:
    """Wait until an unfinished file holds that many bytes."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if any(f.stat().st_size >= size for f in unfinished(home)):
            return
        time.sleep(0.02)
    pytest.fail("nothing was fetched")


def test_a_model_is_fetched_once_and_linked(hub: Hub, tmp_path: Path) -> None:
    first = run(hub, tmp_path, "get", "org/large")
    assert first.code == 0, first.err
    assert "org/large float32" in first.out
    assert hub.gets() == [None]
    requests = len(hub.log)
    assert run(hub, tmp_path, "get", "org/large").code == 0
    assert len(hub.log) == requests
    assert [f.name for f in (tmp_path / "labkit" / "models").iterdir()] == ["org--large"]
    assert unfinished(tmp_path) == []
    snapshot = (tmp_path / "labkit" / "models" / "org--large").resolve()
    assert (snapshot / "model.safetensors").read_bytes() == LARGE
    # What mlx-lm loads by name without a connection.
    assert (tmp_path / "hf/hub/models--org--large/refs/main").read_text() == snapshot.name


def test_a_dropped_connection_is_taken_up_within_the_call(hub: Hub, tmp_path: Path) -> None:
    hub.drops = [CHUNK + MB, CHUNK + MB]
    ended = run(hub, tmp_path, "get", "org/large")
    assert ended.code == 0, ended.err
    # An answer that ends early gives up what its last chunk lacks.
    assert hub.gets() == [None, f"bytes={CHUNK}-", f"bytes={2 * CHUNK}-"]


def kill_a_download(hub: Hub, tmp_path: Path) -> None:
    """Kill a `get` of the large model once its first chunk is on disk."""
    hub.drops, hub.stop = [CHUNK + MB], True
    with subprocess.Popen(
        command("get", "org/large"), env=environ(hub, tmp_path), stderr=subprocess.DEVNULL
    ) as p:
        wait_for(CHUNK, tmp_path)
        p.kill()
    hub.released.set()


def test_a_killed_download_goes_on_in_the_next_call(hub: Hub, tmp_path: Path) -> None:
    kill_a_download(hub, tmp_path)
    ended = run(hub, tmp_path, "get", "org/large")
    assert ended.code == 0, ended.err
    assert hub.gets() == [None, f"bytes={CHUNK}-"]
    snapshot = (tmp_path / "labkit" / "models" / "org--large").resolve()
    assert (snapshot / "model.safetensors").read_bytes() == LARGE
    assert unfinished(tmp_path) == []


def test_a_download_that_fails_says_that_it_goes_on(hub: Hub, tmp_path: Path) -> None:
    hub.drops, hub.stop = [CHUNK + MB], True
    with subprocess.Popen(
        command("get", "org/large"), env=environ(hub, tmp_path), stderr=subprocess.PIPE, text=True
    ) as process:
        wait_for(CHUNK, tmp_path)
        hub.refusals[f"/org/large/resolve/{COMMIT}/model.safetensors"] = (503, "")
        hub.released.set()
        _, err = process.communicate(timeout=60)
    message = Ended(process.returncode, "", err).message()
    assert "HTTP status 503" in message
    assert "what was fetched is kept" in message
    hub.refusals.clear()
    assert run(hub, tmp_path, "get", "org/large").code == 0
    assert hub.gets() == [None, f"bytes={CHUNK}-"]


def test_content_that_is_not_its_hash_is_refused_and_fetched_anew(hub: Hub, tmp_path: Path) -> None:
    kill_a_download(hub, tmp_path)
    (part,) = unfinished(tmp_path)
    part.write_bytes(b"x" * CHUNK)
    message = run(hub, tmp_path, "get", "org/large").message()
    assert "sha256" in message
    assert "fetched anew" in message
    assert run(hub, tmp_path, "get", "org/large").code == 0
    assert hub.gets() == [None, f"bytes={CHUNK}-", None]


def test_two_calls_at_once_fetch_once_and_both_succeed(hub: Hub, tmp_path: Path) -> None:
    line = command("get", "org/large")
    both = [subprocess.Popen(line, env=environ(hub, tmp_path), stderr=subprocess.PIPE) for _ in range(2)]
    errors = [process.communicate(timeout=60)[1].decode() for process in both]
    assert [process.returncode for process in both] == [0, 0], errors
    assert hub.gets() == [None]
    assert unfinished(tmp_path) == []


def test_a_disk_too_full_is_told_before_a_byte_is_fetched(hub: Hub, tmp_path: Path) -> None:
    message = run(hub, tmp_path, "get", "org/large", str(20 * MB), code=FULL_DISK).message()
    assert "24.0 MiB of free disk space were needed for fetching org/large" in message
    assert "HF_HOME" in message
    assert hub.log == []
    # What is there already is not needed again: 20 MB suffice once 10 of the 24 are fetched.
    kill_a_download(hub, tmp_path)
    assert run(hub, tmp_path, "get", "org/large", str(20 * MB), code=FULL_DISK).code == 0


@pytest.mark.parametrize(
    ("source", "refusal", "words"),
    [
        ("org/none", None, ("a repository that the hub has", "401", "check the spelling", "hf auth login")),
        ("org/small", (404, "RepoNotFound"), ("a repository that the hub has", "404")),
        ("org/small", (403, "GatedRepo"), ("a gated model", "403", "huggingface.co/org/small", "HF_TOKEN")),
        ("org/small", (401, "GatedRepo"), ("a gated model", "401", "because of it")),
        ("org/small", (403, ""), ("org/small was needed", "403", "hf auth login")),
        ("org/small", (500, ""), ("org/small was needed", "500", "later")),
        ("org/torch", None, ("safetensors or GGUF", "pytorch_model.bin")),
        ("org/empty", None, ("safetensors or GGUF", "nothing")),
        ("org/gguf", None, ("one GGUF file", "org/gguf:a/tiny-Q8_0.gguf, org/gguf:tiny-F16.gguf")),
        ("org/gguf:none.gguf", None, ("a file of org/gguf", "no none.gguf", "org/gguf:tiny-F16.gguf")),
        ("org/gguf:../../x.gguf", None, ("a file of org/gguf", "no ../../x.gguf")),
    ],
)
def test_what_the_hub_refuses_is_one_message(
    hub: Hub, tmp_path: Path, source: str, refusal: tuple[int, str] | None, words: tuple[str, ...]
) -> None:
    if refusal:
        hub.refusals["org/small"] = refusal
    message = run(hub, tmp_path, "get", source).message()
    assert [word for word in words if word not in message] == [], message
    assert len(message.splitlines()) <= 4
    assert not (tmp_path / "labkit").exists()


def test_without_a_connection_a_whole_snapshot_is_used_and_nothing_else(hub: Hub, tmp_path: Path) -> None:
    off = run(hub, tmp_path, "get", "org/small", HF_HUB_OFFLINE="1").message()
    assert "HF_HUB_OFFLINE is set" in off
    away = run(hub, tmp_path, "get", "org/small", HF_ENDPOINT="http://127.0.0.1:9").message()
    assert "check the connection" in away
    assert run(hub, tmp_path, "get", "org/small").code == 0
    link = tmp_path / "labkit" / "models" / "org--small"
    snapshot = link.resolve()
    link.unlink()
    again = run(hub, tmp_path, "get", "org/small", HF_HUB_OFFLINE="1")
    assert again.code == 0
    assert "org/small is taken as it was fetched before" in again.err
    # A snapshot that is not whole is none.
    link.unlink()
    (snapshot / "model.safetensors").unlink()
    half = run(hub, tmp_path, "get", "org/small", HF_HUB_OFFLINE="1").message()
    assert "HF_HUB_OFFLINE is set" in half
    assert not link.is_symlink()


def test_a_split_gguf_is_fetched_with_all_its_parts() -> None:
    parts = [f"q4/m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    others = ["q4/m.gguf", "q8/m-00001-of-00003.gguf", "q4/mm-00001-of-00003.gguf", "README.md"]
    found = Repository("org/m", "c", tuple(HubFile(n, 1, "", None) for n in (*parts, *others)))
    assert part_names(found, parts[1]) == parts
    assert part_names(found, "q4/m.gguf") == ["q4/m.gguf"]
    assert part_names(found, "q4/none.gguf") == ["q4/none.gguf"]


def test_a_gguf_file_of_the_hub_is_imported_once(hub: Hub, tmp_path: Path) -> None:
    source = "org/gguf:a/tiny-Q8_0.gguf"
    for kept in ((), ("--keep-quantized",)):
        ended = run(hub, tmp_path, "get", source, "--dtype", "float32", *kept)
        assert ended.code == 0, ended.err
    names = sorted(f.name for f in (tmp_path / "labkit" / "models").iterdir())
    assert names == ["org.gguf.a.tiny-Q8_0-float32", "org.gguf.a.tiny-Q8_0-q-float32"]
    origin = json.loads((tmp_path / "labkit/models/org.gguf.a.tiny-Q8_0-float32/labkit.json").read_text())
    assert (origin["source"]["repository"], origin["source"]["file"]) == ("org/gguf", "a/tiny-Q8_0.gguf")
    requests = len(hub.log)
    again = run(hub, tmp_path, "get", source, "--dtype", "float32", HF_HUB_OFFLINE="1")
    assert (again.code, len(hub.log)) == (0, requests), again.err


def test_a_hub_model_in_another_dtype_is_a_copy_of_its_own(hub: Hub, tmp_path: Path) -> None:
    ended = run(hub, tmp_path, "get", "org/small", "--dtype", "bfloat16")
    assert ended.code == 0, ended.err
    assert "org.small-bfloat16 bfloat16" in ended.out
    names = sorted(f.name for f in (tmp_path / "labkit" / "models").iterdir())
    assert names == ["org--small", "org.small-bfloat16"]
    listed = json.loads(run(hub, tmp_path, "list", "--json").out)["installed"]
    assert [(m["name"], m["dtype"]) for m in listed] == [
        ("org.small-bfloat16", "bfloat16"),
        ("org/small", "float32"),
    ]


def leave_part(home: Path, content: bytes) -> Path:
    """What an earlier call has fetched of org/large."""
    blobs = home / "hf/hub/models--org--large/blobs"
    blobs.mkdir(parents=True)
    part = blobs / f"{hashlib.sha256(LARGE).hexdigest()}.labkit.incomplete"
    part.write_bytes(content)
    return part


def test_another_host_gets_no_token(hub: Hub, tmp_path: Path) -> None:
    hub.elsewhere = True
    leave_part(tmp_path, LARGE[:CHUNK])
    ended = run(hub, tmp_path, "get", "org/large", HF_TOKEN="hf_secret")
    assert ended.code == 0, ended.err
    assert hub.gets() == [f"bytes={CHUNK}-"]
    seen = {host: {token for at, token in hub.tokens if at == host} for host, _ in hub.tokens}
    assert seen["localhost"] == {None}
    assert "Bearer hf_secret" in seen["127.0.0.1"]


def test_a_server_without_ranges_sends_the_whole(hub: Hub, tmp_path: Path) -> None:
    hub.whole = True
    leave_part(tmp_path, LARGE[:CHUNK])
    ended = run(hub, tmp_path, "get", "org/large")
    assert ended.code == 0, ended.err
    snapshot = (tmp_path / "labkit" / "models" / "org--large").resolve()
    assert (snapshot / "model.safetensors").read_bytes() == LARGE


def test_a_part_that_is_larger_than_the_file_is_fetched_anew(hub: Hub, tmp_path: Path) -> None:
    leave_part(tmp_path, LARGE + b"x")
    ended = run(hub, tmp_path, "get", "org/large")
    assert ended.code == 0, ended.err
    assert hub.gets() == [None]


def test_content_that_changes_between_parts_is_refused(hub: Hub, tmp_path: Path) -> None:
    """The hub names another content than it sends: a part of one and the rest of the other is neither."""
    part = leave_part(tmp_path, bytes(CHUNK))
    message = run(hub, tmp_path, "get", "org/large").message()
    assert "fetched anew" in message
    assert not part.exists()
    assert not (tmp_path / "labkit" / "models" / "org--large").exists()


def test_a_publishers_labkit_json_is_not_fetched(hub: Hub, tmp_path: Path) -> None:
    stated = {"labkit_version": "1", "name": "smollm2", "family": "smollm2-135m-instruct"}
    files = {"org/small": {**MODEL, "labkit.json": json.dumps(stated).encode()}}
    with serve(files) as other:
        ended = run(other, tmp_path, "get", "org/small")
    assert ended.code == 0, ended.err
    assert "org/small float32" in ended.out
    blobs = [f.read_bytes() for f in (tmp_path / "hf/hub/models--org--small/blobs").iterdir()]
    assert len(blobs) == len(MODEL)
    assert all(b"smollm2" not in blob for blob in blobs)


@pytest.mark.parametrize(
    ("source", "dtype", "free", "needed"),
    [
        ("org/gguf:tiny-F16.gguf", "float32", MB, "64"),
        ("org/large", "float16", 30 * MB, "36.0 MiB"),  # 24 as it is and 12 for the copy
    ],
)
def test_a_disk_too_full_for_what_is_made_is_told_before_a_byte_is_fetched(
    hub: Hub, tmp_path: Path, source: str, dtype: str, free: int, needed: str
) -> None:
    ended = run(hub, tmp_path, "get", source, "--dtype", dtype, str(free), code=FULL_DISK)
    message = ended.message()
    assert f"{needed}" in message
    assert "and what is made of it" in message
    assert "LABKIT_HOME" in message
    assert hub.gets() == []
