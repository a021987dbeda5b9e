"""`labkit fit` of directories: what it prints, what it refuses, and packed weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import labkit as package
from labkit.bench.lease import device_lease
from labkit.core.errors import DeviceBusy
from labkit.lab.verifying import fit as fit_module
from labkit.model.fit import Load, Predictor
from labkit.model.fit_speed import Rates
from tests.numerics.damaged_directory import pack_soundly
from tests.numerics.tiny_directory import write_directory
from tests.unit.command_line import labkit


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(fit_module, "lease_path", lambda: tmp_path / "lease.lock")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write_directory(tmp_path / "m")


def test_a_table_says_what_was_predicted(directory: Path) -> None:
    ended = labkit("fit", directory, "--context", "300")
    assert ended.code == 0, ended.err
    rows = {line[:17].strip(): line[17:].strip() for line in ended.out.splitlines()}
    assert list(rows)[:4] == ["model", "context", "fits", "peak"]
    assert rows["largest context"] == "512 tokens, the model's own limit"
    assert rows["context"] == "300 tokens, 32 of them new"
    assert max(map(len, ended.out.splitlines())) <= 80


def test_json_says_the_same_as_python(directory: Path) -> None:
    """But for the rates, which are measured anew."""
    ended = labkit("fit", directory, "--context", "300", "--memory-gib", "1", "--json")
    data = json.loads(ended.out)
    found = package.fit(directory, context=300, memory_gib=1)
    rates = ("decode_tps", "prefill_tps")
    assert {k: v for k, v in data.items() if k not in rates} == {
        k: v for k, v in found.to_json().items() if k not in rates
    }
    assert all(data[name] > 0 for name in rates)
    # Two layers, one head of 32: room for 512 tokens.
    assert found.kv_bytes == 512 * 2 * 2 * 32 * 4
    parts = found.weight_bytes + found.kv_bytes + found.working_bytes
    assert found.peak_bytes == pytest.approx(parts)


def test_a_budget_limits_the_context(directory: Path) -> None:
    """Half of what the longest context takes beyond the weights, or less than the weights."""
    whole = package.fit(directory, context=512)
    half = (whole.weight_bytes + (whole.peak_bytes - whole.weight_bytes) / 2) / 2**30
    found = package.fit(directory, context=512, memory_gib=half)
    assert not found.fits and 0 < found.largest_context < 512
    assert package.fit(directory, context=found.largest_context, memory_gib=half).fits
    assert not package.fit(directory, context=found.largest_context + 1, memory_gib=half).fits
    assert package.fit(directory, context=512, memory_gib=1e-6).largest_context == 0


@pytest.mark.parametrize("stated", [True, False])
def test_speed_is_measured_while_nothing_else_is(
    tmp_path: Path, directory: Path, monkeypatch: pytest.MonkeyPatch, stated: bool
) -> None:
    lock = tmp_path / ("mine.lock" if stated else "lease.lock")

    def calibrate(self: Predictor, load: Load) -> Rates:
        with pytest.raises(DeviceBusy, match="labkit fit m"), device_lease("another", lock, wait_s=0.0):
            pass
        return Rates(1.0, 1.0, (), 0.0, 0.0, 1.0, 1.0)

    monkeypatch.setattr(Predictor, "calibrate", calibrate)
    assert package.fit(directory, context=300, lease=lock if stated else None).decode_tps == 1.0
    with device_lease("another", lock, wait_s=0.0):
        pass  # given back


def test_packed_weights_are_measured_as_they_are_packed(tmp_path: Path, directory: Path) -> None:
    packed = package.fit(pack_soundly(write_directory(tmp_path / "packed")), context=300)
    plain = package.fit(directory, context=300)
    assert packed.weight_bytes < plain.weight_bytes
    assert packed.decode_tps > 0


def test_several_requests_are_noted_on_stderr(directory: Path) -> None:
    ended = labkit("fit", directory, "--context", "100", "--concurrency", "3")
    assert "x 3 requests" in ended.out and "predicted only" in ended.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--context", "600"), ("at most 512 tokens", "600 tokens")),
        (("--context", "20"), ("room for a prompt", "at least 33")),
        (("--context", "100", "--kv", "affine:7"), ("one of the bits", "affine:6, affine:8")),
        (("--context", "100", "--kv", "affine:8"), ("head size 32", "bf16")),
        (("--context", "100", "--prefill-chunk", "0"), ("prefill_chunk", "at least 1")),
        (("--context", "100", "--memory-gib", "-1"), ("memory_gib", "-1")),
        (("--context", "100", "--memory-gib", "1e308"), ("memory_gib", "at most 1,048,576", "1e+308")),
        (
            ("--context", "100", "--concurrency", "1000000000000"),
            ("concurrency: at most 1024", "1000000000000"),
        ),
    ],
)
def test_what_cannot_be_predicted_is_refused_with_one_message(
    directory: Path, options: tuple[str, ...], words: tuple[str, ...]
) -> None:
    ended = labkit("fit", directory, *options)
    assert ended.code == 1 and ended.out == ""
    assert [word for word in words if word not in ended.message()] == [], ended.err


def test_no_model_and_the_null_model_are_refused() -> None:
    assert "labkit models" in labkit("fit", "no-such-model", "--context", "100").message()
    assert "a model with weights" in labkit("fit", "null", "--context", "100").message()


@pytest.mark.parametrize(
    ("kv", "share"),
    [("affine:4/g32/s16/start40", (4 + 2 * 16 / 32) / 32), ("mixed:kv.json", 0.5 + 0.5 * (8 + 64 / 32) / 32)],
)
def test_bytes_follow_what_each_layer_stores(
    kv: str, share: float, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Codes, and a scale and a bias a group, of elements of 32 bits; the file lists one layer of two."""
    monkeypatch.chdir(directory.parent)
    Path("kv.json").write_text('[{"layer_idx": 1, "bits": 8, "group_size": 32}]')
    ended = labkit("fit", directory, "--context", "300", "--kv", kv, "--json")
    assert json.loads(ended.out)["kv_bytes"] == 512 * 2 * 2 * 32 * 4 * share
    assert not json.loads(ended.out)["notes"]


def test_a_scheme_of_one_s_own_is_said_to_be_predicted_as_the_plain_one(directory: Path) -> None:
    """By its name, as on the command line."""
    path = "tests.numerics.test_own_scheme:Half"
    ended = labkit("fit", directory, "--context", "300", "--kv", path, "--json")
    found = json.loads(ended.out)
    assert found["kv"].startswith(f"{path}@") and "as if it kept the model's own dtype" in found["notes"][0]
