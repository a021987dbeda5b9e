"""Artifacts: sizes measured from headers, fingerprints of content, the cache that never outlives a change."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from labkit.core.errors import ModelUnavailable
from labkit.model import fingerprint as fingerprints
from labkit.model import tensors
from labkit.model.artifact import measure
from labkit.model.fingerprint import fingerprint
from labkit.model.finite import all_finite
from labkit.model.origin import read_origin, write_origin

LATER_NS = 10**19
DENSE = {
    "model.embed_tokens.weight": np.arange(40, dtype=np.float32).reshape(10, 4),
    "model.layers.0.q_proj.weight": np.ones((4, 4), np.float32),
    "model.layers.0.q_proj.bias": np.zeros(4, np.float32),
}


def write_model(
    folder: Path, shards: list[dict[str, np.ndarray]], config: dict[str, Any] | None = None
) -> Path:
    folder.mkdir()
    for i, shard in enumerate(shards, 1):
        save_file(shard, folder / f"model-{i:05d}-of-{len(shards):05d}.safetensors")
    (folder / "config.json").write_text(json.dumps(config or {"model_type": "llama"}))
    (folder / "tokenizer.json").write_text("{}")
    return folder


def packed(rows: int, columns: int, bits: int, group: int, scale: type = np.float16) -> dict[str, np.ndarray]:
    return {
        "weight": np.zeros((rows, columns * bits // 32), np.uint32),
        "scales": np.ones((rows, columns // group), scale),
        "biases": np.ones((rows, columns // group), scale),
    }


def named(path: str, parts: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {f"{path}.{leaf}": array for leaf, array in parts.items()}


def test_dense_sizes_over_several_shards(tmp_path: Path) -> None:
    first = dict(list(DENSE.items())[:1])
    rest = dict(list(DENSE.items())[1:])
    artifact = measure(write_model(tmp_path / "Model-bf16", [first, rest]))
    assert (artifact.parameters, artifact.artifact_bytes) == (60, 240)
    assert (artifact.effective_bpw, artifact.dtype) == (32.0, "float32")
    assert (artifact.name, artifact.family) == ("Model-bf16", "model")
    assert "path" not in artifact.identity()


def test_quantized_triples_count_as_the_unpacked_weight(tmp_path: Path) -> None:
    weights = {
        **named("a", packed(8, 128, 4, 64)),
        **named("b", packed(8, 128, 8, 32)),
        "a.bias": np.zeros(8, np.float16),
        "norm.weight": np.zeros(128, np.float16),
    }
    quantization = {"bits": 4, "group_size": 64, "b": {"bits": 8, "group_size": 32}}
    artifact = measure(write_model(tmp_path / "m", [weights], {"quantization": quantization}))
    assert artifact.parameters == 2 * 8 * 128 + 8 + 128
    a_bytes, b_bytes = 8 * (128 // 2 + 2 * 2 * 2), 8 * (128 + 2 * 2 * 4)
    assert artifact.artifact_bytes == a_bytes + b_bytes + 2 * (8 + 128)
    assert artifact.dtype == "float16"


def test_effective_bits_include_scales_and_biases(tmp_path: Path) -> None:
    config = {"quantization": {"bits": 4, "group_size": 32}}
    model = write_model(tmp_path / "m", [named("a", packed(8, 128, 4, 32, np.float32))], config)
    assert measure(model).effective_bpw == 4 + 2 * 32 / 32


def test_bits_that_the_config_does_not_list_are_inferred_as_at_load(tmp_path: Path) -> None:
    config = {"quantization": {"bits": 4, "group_size": 64}}
    model = write_model(tmp_path / "m", [named("a", packed(8, 128, 8, 64))], config)
    assert measure(model).parameters == 8 * 128


@pytest.mark.parametrize(
    "quantization", [{"bits": 4, "group_size": 64, "a": {"bits": 8, "group_size": 64}}, {}, None]
)
def test_a_quantization_that_contradicts_the_tensors_is_refused(tmp_path: Path, quantization: object) -> None:
    model = write_model(tmp_path / "m", [named("a", packed(8, 128, 4, 64))], {"quantization": quantization})
    with pytest.raises(ModelUnavailable, match=r"fits the stored tensors was needed: a\n"):
        measure(model)


def test_gptq_words_count_as_weights(tmp_path: Path) -> None:
    weights = {"a.qweight": np.zeros((16, 8), np.int32), "a.qzeros": np.zeros((2, 1), np.int32)}
    model = write_model(tmp_path / "m", [weights], {"quantization_config": {"bits": 4, "group_size": 64}})
    assert measure(model).parameters == 16 * 8 * 8


def test_the_name_of_a_hub_snapshot_is_its_id(tmp_path: Path) -> None:
    parent = tmp_path / "models--org--Name-4bit" / "snapshots"
    parent.mkdir(parents=True)
    artifact = measure(write_model(parent / "0a1b", [DENSE]))
    assert (artifact.name, artifact.family) == ("org/Name-4bit", "name")


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m", [DENSE])
    index = {"weight_map": {"x": "model-00001-of-00001.safetensors", "y": "model-00002-of-00002.safetensors"}}
    (model / tensors.INDEX).write_text(json.dumps(index))
    with pytest.raises(ModelUnavailable, match=r"missing model-00002-of-00002\.safetensors"):
        measure(model)


@pytest.mark.parametrize("keep", [0, 4, 20, -1])
def test_a_file_cut_short_is_refused(tmp_path: Path, keep: int) -> None:
    model = write_model(tmp_path / "m", [DENSE])
    file = next(model.glob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(ModelUnavailable, match="complete safetensors file was needed"):
        measure(model)


def test_the_fingerprint_ignores_sharding_order_and_formatting(tmp_path: Path) -> None:
    one = write_model(tmp_path / "one", [DENSE], {"a": 1, "b": 2})
    two = write_model(tmp_path / "two", [{k: v} for k, v in reversed(DENSE.items())], {"b": 2, "a": 1})
    (two / "README.md").write_text("not part of the content")
    assert fingerprint(one) == fingerprint(two)


def changed_weight(model: Path) -> None:
    file = next(model.glob("*.safetensors"))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def changed_dtype(model: Path) -> None:
    save_file(
        {**DENSE, "model.layers.0.q_proj.bias": np.zeros(4, np.int32)}, next(model.glob("*.safetensors"))
    )


def renamed_tensor(model: Path) -> None:
    save_file({k.replace("q_proj", "k_proj"): v for k, v in DENSE.items()}, next(model.glob("*.safetensors")))


def changed_config(model: Path) -> None:
    (model / "config.json").write_text('{"model_type": "qwen2"}')


def changed_tokenizer(model: Path) -> None:
    (model / "tokenizer.json").write_text("[]")


def added_generation_config(model: Path) -> None:
    (model / "generation_config.json").write_text('{"eos_token_id": 7}')


@pytest.mark.parametrize(
    "change",
    [
        changed_weight,
        changed_dtype,
        renamed_tensor,
        changed_config,
        changed_tokenizer,
        added_generation_config,
    ],
)
def test_every_kind_of_change_changes_a_cached_fingerprint(tmp_path: Path, change: Any) -> None:
    model = write_model(tmp_path / "m", [DENSE])
    before = fingerprint(model, clock_ns=lambda: LATER_NS)
    assert "fingerprint" in read_origin(model)
    times = {f: f.stat() for f in model.iterdir()}
    change(model)
    for file, old in times.items():  # even a change that hides in equal sizes and modification times
        if file.name != "labkit.json":
            os.utime(file, ns=(old.st_atime_ns, old.st_mtime_ns))
    assert fingerprint(model, clock_ns=lambda: LATER_NS) != before


def test_an_unchanged_model_is_not_hashed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_model(tmp_path / "m", [DENSE])
    write_origin(model, {"name": "kept", "labkit_version": "1"})
    first = fingerprint(model, clock_ns=lambda: LATER_NS)
    monkeypatch.setattr(fingerprints, "compute", lambda *_, **__: pytest.fail("computed again"))
    assert fingerprint(model) == first
    assert read_origin(model)["name"] == "kept"


def test_a_file_written_just_now_is_not_cached(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m", [DENSE])
    newest = max(f.stat().st_ctime_ns for f in model.iterdir())
    fingerprint(model, clock_ns=lambda: newest)
    assert "fingerprint" not in read_origin(model)


def test_a_directory_that_cannot_be_written_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_model(tmp_path / "m", [DENSE])
    expected = fingerprints.compute(model)
    if os.geteuid() == 0:  # root writes everywhere
        monkeypatch.setattr(fingerprints, "write_origin", _refuse)
    model.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert fingerprint(model, clock_ns=lambda: LATER_NS) == expected
    finally:
        model.chmod(stat.S_IRWXU)
    assert sorted(f.name for f in model.iterdir() if f.suffix == ".json") == ["config.json", "tokenizer.json"]


def _refuse(*_: object) -> None:
    raise PermissionError("read-only")


def test_a_config_with_infinity_has_a_fingerprint(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m", [DENSE])
    (model / "config.json").write_text('{"model_type": "mamba2", "time_step_limit": [0.0, Infinity]}')
    bare = fingerprint(model)
    (model / "config.json").write_text(
        '{"time_step_limit": [0.0, {"__float__": "Infinity"}], "model_type": "mamba2"}'
    )
    assert fingerprint(model) == bare


def test_rounding_to_bfloat16_is_to_nearest_even_and_keeps_the_special_values() -> None:
    one, step = 0x3F80, 2.0**-7
    values = [1.0, 1 + step / 2, 1 + step * 1.5, 1 + step * 0.51, -0.0, np.inf, 3.4e38]
    expected = [one, one, one + 2, one + 1, 0x8000, 0x7F80, 0x7F80]
    assert tensors.round_to_bfloat16(np.array(values, np.float32)).tolist() == expected
    tricky = np.array([0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)
    back = (tensors.round_to_bfloat16(tricky).astype(np.uint32) << 16).view(np.float32)
    assert np.isnan(back).all()


def bits(kind: str, *values: int) -> bytes:
    return np.array(values, kind).tobytes()


@pytest.mark.parametrize(
    ("code", "numbers", "special"),
    [
        (
            "F64",
            bits("<u8", 0x7FEF << 48, 0xFFE0 << 48, 0),
            (bits("<u8", 0x7FF0 << 48), bits("<u8", 0x7FF8 << 48)),
        ),
        (
            "F32",
            bits("<u4", 0x7F7F << 16, 0xFF7F << 16),
            (bits("<u4", 0x7F80 << 16), bits("<u4", 0xFFC0 << 16)),
        ),
        ("F16", bits("<u2", 0x7BFF, 0xFBFF), (bits("<u2", 0x7C00), bits("<u2", 0xFE00))),
        ("BF16", bits("<u2", 0x7F7F, 0xFF7F), (bits("<u2", 0x7F80), bits("<u2", 0xFFC0))),
        ("F8_E4M3", bits("u1", 0x7E, 0xFE, 0x78), (bits("u1", 0x7F), bits("u1", 0xFF))),
        ("F8_E5M2", bits("u1", 0x7B, 0xFB), (bits("u1", 0x7C), bits("u1", 0xFD), bits("u1", 0x7F))),
        ("F8_E8M0", bits("u1", 0xFE, 0xF0, 0x7F), (bits("u1", 0xFF),)),
        ("U8", bits("u1", 0xFF), ()),
    ],
)
def test_what_is_no_number_is_told_from_its_bits(
    code: str, numbers: bytes, special: tuple[bytes, ...]
) -> None:
    assert all_finite(numbers, code)
    assert [s for s in special if all_finite(numbers + s, code)] == []


@pytest.mark.parametrize("stated", [None, False, "yes"])
def test_a_cached_fingerprint_counts_only_where_the_weights_were_checked(
    tmp_path: Path, stated: object
) -> None:
    model = write_model(tmp_path / "m", [{**DENSE, "bad.weight": np.full(4, np.nan, np.float32)}])
    stamps = fingerprints._stamps(model)
    write_origin(model, {"fingerprint": {"value": "0" * 32, "files": stamps, "finite": stated}})
    with pytest.raises(ModelUnavailable, match="finite weights"):
        fingerprint(model)


def test_files_that_change_while_they_are_read_are_not_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write_model(tmp_path / "m", [DENSE])
    compute = fingerprints.compute

    def meanwhile(directory: Path, **options: Any) -> str:
        value = compute(directory, **options)
        changed_weight(directory)
        return value

    monkeypatch.setattr(fingerprints, "compute", meanwhile)
    fingerprint(model, clock_ns=lambda: LATER_NS)
    assert read_origin(model) == {}


def test_a_missing_shard_is_told_from_the_others_names(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m", [{k: v} for k, v in DENSE.items()])
    (model / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(ModelUnavailable, match=r"missing model-00002-of-00003\.safetensors"):
        measure(model)
