"""Import of a tiny llama GGUF: the numbers that mlx-lm computes from it, and every refusal by name."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import mlx.core as mx
import mlx_lm
import numpy as np
import pytest
from gguf.quants import dequantize, quantize
from mlx.utils import tree_flatten
from mlx_lm.models import llama

from labkit.core.errors import LabkitError, ModelUnavailable
from labkit.core.events import Progress
from labkit.model import registry, staging
from labkit.model.artifact import measure
from labkit.model.gguf.file import read_gguf, sha256_of
from labkit.model.gguf.importer import import_gguf
from labkit.model.origin import read_origin
from labkit.model.profile import read_profile
from tests.numerics.tiny_gguf import (
    HEAD_DIM,
    HEADS,
    HIDDEN,
    INNER,
    KV_HEADS,
    LAYERS,
    Q8,
    Edit,
    make_weights,
    vocabulary,
    write_gguf,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "tiny.gguf")


def interleaved_reference() -> llama.Model:
    """mlx-lm's llama on the GGUF's rows as they lie, with the interleaved rotation that llama.cpp applies."""
    args = llama.ModelArgs(
        model_type="llama",
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        intermediate_size=INNER,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        rms_norm_eps=1e-5,
        vocab_size=len(vocabulary()),
        rope_theta=5000.0,
        rope_traditional=True,
    )
    model = llama.Model(args)
    names = {
        "token_embd": "model.embed_tokens",
        "output_norm": "model.norm",
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "attn_output": "self_attn.o_proj",
        **{f"attn_{x}": f"self_attn.{x}_proj" for x in "qkv"},
        **{f"ffn_{x}": f"mlp.{x}_proj" for x in ("gate", "up", "down")},
    }
    loaded = []
    for name, array in make_weights().items():
        *layer, leaf, _ = name.split(".")
        prefix = f"model.layers.{layer[1]}." if layer else ""
        exact = dequantize(quantize(array, Q8), Q8) if array.ndim == 2 else array
        loaded.append((f"{prefix}{names[leaf]}.weight", mx.array(exact)))
    model.load_weights(loaded)
    return model


def test_mlx_lm_computes_what_llama_cpp_means(file: Path, tmp_path: Path) -> None:
    target = import_gguf(file, tmp_path / "out", dtype="float32")
    model = mlx_lm.load(str(target))[0]
    ids = mx.array([[1, 7, 200, 33, 90, 5, 120, 64, 2, 11]])
    got, want = np.array(model(ids)), np.array(interleaved_reference()(ids))
    assert np.abs(want).max() > 1
    # two orders of summation in f32 over 96 products of logits near 10
    np.testing.assert_allclose(got, want, atol=5e-5)


def test_the_config_says_what_the_file_says(file: Path, tmp_path: Path) -> None:
    target = import_gguf(file, tmp_path / "out", dtype="float32")
    config = json.loads((target / "config.json").read_text())
    expected = {
        "model_type": "llama",
        "head_dim": HEAD_DIM,
        "rope_theta": 5000.0,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "float32",
        "vocab_size": len(vocabulary()),
        "max_position_embeddings": 128,
    }
    assert {key: config[key] for key in expected} == expected


def test_the_tokenizer_is_the_files(file: Path, tmp_path: Path) -> None:
    target = import_gguf(file, tmp_path / "out", dtype="float32")
    tokenizer: Any = mlx_lm.load(str(target))[1]
    vocab = {token: i for i, token in enumerate(vocabulary())}
    text = "hello 12<|im_end|> t"
    pieces = ["hello", "Ġ", "1", "2", "<|im_end|>", "Ġt"]
    assert tokenizer.encode(text) == [vocab[p] for p in pieces]
    assert tokenizer.decode([vocab[p] for p in pieces]) == text
    assert tokenizer.eos_token_ids == {2}
    assert tokenizer.apply_chat_template([{"content": "hello", "role": "user"}], tokenize=False) == "hello"


def test_an_output_matrix_is_kept_and_unties(tmp_path: Path) -> None:
    def untie(_: gguf.GGUFWriter, weights: dict[str, np.ndarray]) -> None:
        weights["output.weight"] = make_weights(1)["token_embd.weight"]

    target = import_gguf(write_gguf(tmp_path / "t.gguf", edit=untie), tmp_path / "out", dtype="float32")
    model = mlx_lm.load(str(target))[0]
    assert "lm_head.weight" in dict(tree_flatten(model.parameters()))


@pytest.mark.parametrize(("dtype", "bits"), [("float32", 32), ("bfloat16", 16), ("float16", 16)])
def test_every_dtype_is_stored_as_mlx_rounds_it(file: Path, tmp_path: Path, dtype: str, bits: int) -> None:
    exact = mlx_lm.load(str(import_gguf(file, tmp_path / "exact", dtype="float32")))[0]
    target = import_gguf(file, tmp_path / "out", dtype=dtype)
    rounded = mlx_lm.load(str(target))[0]
    got, want = dict(tree_flatten(rounded.parameters())), dict(tree_flatten(exact.parameters()))
    kind = getattr(mx, dtype)
    assert all(mx.array_equal(array, want[name].astype(kind)) for name, array in got.items())
    artifact = measure(target)
    assert (artifact.dtype, artifact.effective_bpw) == (dtype, bits)
    assert artifact.parameters == sum(w.size for w in make_weights().values())
    assert read_profile(artifact).status == "registered"


def test_the_registry_imports_once_and_follows_a_changed_file(file: Path, tmp_path: Path) -> None:
    home, seen = tmp_path / "home", []
    path = registry.get(str(file), home=home, dtype="float32", sink=seen.append)
    assert seen[-1] != seen[0]
    assert isinstance(seen[0], Progress)
    origin = read_origin(path)
    assert origin["sha256"] == sha256_of(file)
    assert origin["source"]["file"] == "tiny.gguf"
    assert "fingerprint" in origin
    seen.clear()
    times = {f.name: f.stat().st_mtime_ns for f in path.iterdir()}
    assert registry.get(str(file), home=home, dtype="float32", sink=seen.append) == path
    assert not seen
    assert {f.name: f.stat().st_mtime_ns for f in path.iterdir()} == times
    before = measure(path).fingerprint
    file.unlink()
    write_gguf(file, edit=lambda _, w: w.update(make_weights(2)))
    os.utime(file, ns=(1, 1))
    assert measure(registry.get(str(file), home=home, dtype="float32")).fingerprint != before
    assert [f.name for f in home.iterdir()] == ["tiny-float32"]
    assert registry.resolve("tiny", home=home) == path


def test_what_is_to_stand_beside_the_weights_does(file: Path, tmp_path: Path) -> None:
    licence = tmp_path / "LICENSE.txt"
    licence.write_bytes(b"to be kept\r\n")
    target = import_gguf(file, tmp_path / "out", dtype="float32", beside=[licence])
    assert (target / licence.name).read_bytes() == licence.read_bytes()


def change(key: str, value: Any) -> Edit:
    def edit(writer: gguf.GGUFWriter, _: dict[str, np.ndarray]) -> None:
        if isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_uint32(key, value)

    return edit


def resize(name: str, rows: int) -> Edit:
    return lambda _, weights: weights.update({name: weights[name][:rows]})


def drop(name: str) -> Edit:
    return lambda _, weights: weights.pop(name)


def add(name: str) -> Edit:
    return lambda _, weights: weights.update({name: np.ones(HIDDEN, np.float32)})


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (change("llama.rope.scaling.type", "spiral"), r"rope\.scaling\.type\n.*spiral"),
        (change("llama.nonsense", 8), r"llama\.nonsense\n.*8"),
        (change("llama.attention.value_length", 8), "value_length"),
        (change("tokenizer.ggml.eot_token_id", 10**6), "vocabulary"),
        (change("llama.attention.head_count_kv", 0), r"head_count_kv\n"),
        (resize("blk.0.attn_q.weight", 30), r"blk\.0\.attn_q\.weight \[64, 64\]\n.*\[30, 64\]"),
        (resize("token_embd.weight", 30), r"token_embd\.weight\n.*30 rows for 264 tokens"),
        (add("rope.weight"), r"unknown rope\.weight"),
        (add("blk.2.attn_norm.weight"), r"unknown blk\.2\.attn_norm\.weight"),
        (drop("blk.1.ffn_up.weight"), r"no blk\.1\.ffn_up\.weight"),
        (
            lambda _, weights: weights.update({"rope_freqs.weight": np.ones((1 << 20) + 1, np.float32)}),
            r"a small tensor was needed: rope_freqs\.weight\n.*\[1048577\]",
        ),
    ],
)
def test_what_would_come_out_wrong_is_refused_by_name(tmp_path: Path, edit: Edit, named: str) -> None:
    file = write_gguf(tmp_path / "t.gguf", edit=edit)
    with pytest.raises(ModelUnavailable, match=named):
        import_gguf(file, tmp_path / "home" / "out", dtype="float32")
    assert not list(tmp_path.glob("home/*"))


def test_other_architectures_and_tokenizers_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match=r"falcon(.|\n)*options:.* llama,"):
        import_gguf(write_gguf(tmp_path / "a.gguf", "falcon"), tmp_path / "out", dtype="float32")
    with pytest.raises(ModelUnavailable, match=r"klingon(.|\n)*options:.* smollm"):
        import_gguf(write_gguf(tmp_path / "b.gguf", pre="klingon"), tmp_path / "out", dtype="float32")
    with pytest.raises(ModelUnavailable, match=r"int3(.|\n)*bfloat16"):
        import_gguf(write_gguf(tmp_path / "c.gguf"), tmp_path / "out", dtype="int3")


def test_a_file_cut_anywhere_is_one_message(file: Path, tmp_path: Path) -> None:
    data = file.read_bytes()
    cut = tmp_path / "cut.gguf"
    for keep in [0, 3, 4, 8, 23, *range(24, len(data), len(data) // 40), len(data) - 40]:
        cut.write_bytes(data[:keep])
        with pytest.raises(ModelUnavailable, match=r"complete GGUF file was needed: cut\.gguf\n"):
            import_gguf(cut, tmp_path / "home" / "out", dtype="float32")
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    "content", [b"", b"not a model", b"PK\x03\x04" + bytes(100), b"GGUF" + b"\xff" * 200]
)
def test_what_is_no_gguf_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "x.gguf"
    file.write_bytes(content)
    with pytest.raises(ModelUnavailable, match="complete GGUF file was needed"):
        registry.get(str(file), home=tmp_path / "home", dtype="float32")
    assert not (tmp_path / "home").exists()


def test_what_the_file_holds_is_what_gguf_reads(file: Path) -> None:
    reader, header = gguf.GGUFReader(file), read_gguf(file)
    fields = {k: f.contents() for k, f in reader.fields.items() if not k.startswith("GGUF.")}
    assert header.metadata == fields
    assert list(header.tensors) == [t.name for t in reader.tensors]
    for tensor in reader.tensors:
        got = header.tensors[tensor.name]
        assert (got.type, got.shape) == (tensor.tensor_type, tuple(reversed(tensor.shape.tolist())))
        assert (got.start, got.nbytes) == (tensor.data_offset, tensor.n_bytes)
        assert got.map().tobytes() == tensor.data.tobytes()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (gguf.GGUFValueType.UINT8, 200),
        (gguf.GGUFValueType.INT8, -100),
        (gguf.GGUFValueType.UINT16, 60_000),
        (gguf.GGUFValueType.INT16, -30_000),
        (gguf.GGUFValueType.UINT32, 4_000_000_000),
        (gguf.GGUFValueType.INT32, -2_000_000_000),
        (gguf.GGUFValueType.UINT64, 2**63 + 1),
        (gguf.GGUFValueType.INT64, -(2**63)),
        (gguf.GGUFValueType.FLOAT32, 0.1),
        (gguf.GGUFValueType.FLOAT64, 0.1),
        (gguf.GGUFValueType.BOOL, True),
        (gguf.GGUFValueType.STRING, "tèxt \U0001f600\x00"),
        (gguf.GGUFValueType.ARRAY, [1, -2, 3]),
        (gguf.GGUFValueType.ARRAY, [True, False]),
        (gguf.GGUFValueType.ARRAY, [0.25, -1.5]),
        (gguf.GGUFValueType.ARRAY, ["a", "", "\u00fc"]),
        (gguf.GGUFValueType.ARRAY, [[1, 2], [3]]),
    ],
)
def test_every_value_type_is_read(tmp_path: Path, kind: gguf.GGUFValueType, value: Any) -> None:
    def edit(writer: gguf.GGUFWriter, _: dict[str, np.ndarray]) -> None:
        writer.add_key_value("x.value", value, kind)

    got = read_gguf(write_gguf(tmp_path / "t.gguf", edit=edit)).metadata["x.value"]
    assert got == (float(np.float32(value)) if kind == gguf.GGUFValueType.FLOAT32 else value)
    assert type(got) is type(value)


def test_a_truth_value_is_0_or_1(tmp_path: Path) -> None:
    for stated in (True, [False, True]):
        kind = gguf.GGUFValueType.ARRAY if isinstance(stated, list) else gguf.GGUFValueType.BOOL

        def edit(writer: gguf.GGUFWriter, _: Any, kind: Any = kind, stated: Any = stated) -> None:
            writer.add_key_value("x.flag", stated, kind)

        file = write_gguf(tmp_path / "t.gguf", edit=edit)
        data = file.read_bytes()
        end = data.index(b"x.flag") + len("x.flag") + (4 + 12 + 2 if isinstance(stated, list) else 4 + 1)
        assert data[end - 1] == 1
        file.write_bytes(data[: end - 1] + b"\x02" + data[end:])
        with pytest.raises(ModelUnavailable, match=r"the truth value 2 of x\.flag"):
            read_gguf(file)


def test_version_2_is_read_and_big_endian_is_refused_by_name(file: Path, tmp_path: Path) -> None:
    data = file.read_bytes()
    want = measure(import_gguf(file, tmp_path / "three", dtype="float32")).fingerprint
    file.write_bytes(data[:4] + (2).to_bytes(4, "little") + data[8:])
    assert measure(import_gguf(file, tmp_path / "two", dtype="float32")).fingerprint == want
    file.write_bytes(data[:4] + (3).to_bytes(4, "big") + data[8:])
    with pytest.raises(ModelUnavailable, match="big-endian"):
        import_gguf(file, tmp_path / "out", dtype="float32")


LARGE = """
import sys
from pathlib import Path
from labkit.model.gguf.importer import import_gguf
status = Path("/proc/self/status")
peak = lambda: int(status.read_text().split("VmHWM:")[1].split()[0]) * 1024
import_gguf(Path(sys.argv[1]), Path(sys.argv[3]), dtype="float16")
before = peak()
import_gguf(Path(sys.argv[2]), Path(sys.argv[3]), dtype="float16")
print(peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc")
def test_memory_stays_below_the_largest_tensor(file: Path, tmp_path: Path) -> None:
    inner = 1 << 18

    def widen(writer: gguf.GGUFWriter, weights: dict[str, np.ndarray]) -> None:
        writer.kv_data[0].pop("llama.feed_forward_length")
        writer.add_feed_forward_length(inner)
        for name in [n for n in weights if ".ffn_" in n and "norm" not in n]:
            rows, width = (HIDDEN, inner) if "down" in name else (inner, HIDDEN)
            del weights[name]
            writer.add_tensor(name, np.zeros((rows, width // 32 * 34), np.uint8), raw_dtype=Q8)

    large = write_gguf(tmp_path / "large.gguf", edit=widen)
    command = [sys.executable, "-c", LARGE, str(file), str(large), str(tmp_path / "out")]
    root = Path(__file__).parents[2]
    grown = int(subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout)
    # six such tensors are written; blocks and what gguf makes of them stay below one of them too
    assert grown < inner * HIDDEN * 4


def test_an_interrupted_import_leaves_nothing_and_a_later_one_works(file: Path, tmp_path: Path) -> None:
    def interrupt(event: object) -> None:
        if isinstance(event, Progress) and event.done == 9:
            raise KeyboardInterrupt

    home = tmp_path / "home"
    with pytest.raises(KeyboardInterrupt):
        import_gguf(file, home / "out", dtype="float32", sink=interrupt)
    assert not list(home.iterdir())
    import_gguf(file, home / "out", dtype="float32")
    assert [f.name for f in home.iterdir()] == ["out"]


TERMINATED = """
import os, signal, sys
from pathlib import Path
from labkit.model.gguf.importer import import_gguf
def stop(event):
    if event.done == 9:
        os.kill(os.getpid(), signal.SIGTERM)
import_gguf(Path(sys.argv[1]), Path(sys.argv[2]), dtype="float32", sink=stop)
"""


def test_a_terminated_import_leaves_nothing(file: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", TERMINATED, str(file), str(home / "out")]
    assert subprocess.run(command, cwd=root, check=False).returncode == 128 + signal.SIGTERM
    assert not list(home.iterdir())


def test_a_full_disk_is_told_before_a_byte_is_written(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1 << 20})())
    with pytest.raises(LabkitError, match="free disk space were needed for the import of tiny"):
        import_gguf(file, tmp_path / "home" / "out", dtype="float32")
    assert not list((tmp_path / "home").iterdir())
