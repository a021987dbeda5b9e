"""Damage: many ways in which a model directory can be broken, each by name and reproducible from it."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from tests.numerics.tiny_directory import CONFIG, write_directory, write_sharded

Damage = Callable[[Path], object]
INDEX = "model.safetensors.index.json"
SHARD = "model-00001-of-00002.safetensors"
COUNTS = (
    *("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim"),
    *("vocab_size", "hidden_size", "intermediate_size"),
)
DEEP = "[" * 200_000


def cases() -> Iterator[tuple[str, Callable[[Path], Path], Damage]]:
    """A name, what writes the sound directory, and what damages it."""
    for name, damage in {**files(), **headers(), **weights(), **configs(), **tokenizers()}.items():
        yield name, write_directory, damage
    for name, damage in shards().items():
        yield name, write_sharded, damage


def files() -> dict[str, Damage]:
    """Files that are cut short, absent, or no files."""
    found: dict[str, Damage] = {f"cut {i}": _cut(i) for i in range(16)}
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        found[f"no {name}"] = lambda d, n=name: (d / n).unlink()
        found[f"empty {name}"] = lambda d, n=name: (d / n).write_bytes(b"")
        found[f"folder {name}"] = lambda d, n=name: ((d / n).unlink(), (d / n).mkdir())
        found[f"pipe {name}"] = lambda d, n=name: ((d / n).unlink(), os.mkfifo(d / n))
        found[f"link to nowhere {name}"] = lambda d, n=name: (
            (d / n).unlink(),
            (d / n).symlink_to("/nosuch/x"),
        )
    return found


def headers() -> dict[str, Damage]:
    """The start of the weights file."""
    found: dict[str, Damage] = {f"flip {i}": _flip(i) for i in range(40)}
    for length in (0, 1, 1 << 25, 99_999_999, (1 << 63) - 1, (1 << 64) - 1):
        found[f"header of {length} bytes"] = lambda d, n=length: _patch(d, 0, struct.pack("<Q", n))
    edits: dict[str, Callable[[dict[str, Any]], object]] = {
        "absurd shape": lambda h: _entry(h).update(shape=[10**9, 10**9]),
        "absurd digits": lambda h: _entry(h).update(shape=[10**400]),
        "negative shape": lambda h: _entry(h).update(shape=[-64, -257]),
        "shape of fractions": lambda h: _entry(h).update(shape=[257.0, 64.0]),
        "shape of truths": lambda h: _entry(h).update(shape=[True]),
        "absurd offsets": lambda h: _entry(h).update(data_offsets=[10**18, 10**18 + 65792]),
        "negative offsets": lambda h: _entry(h).update(data_offsets=[-65792, 0]),
        "offsets of text": lambda h: _entry(h).update(data_offsets=["0", "65792"]),
        "one offset": lambda h: _entry(h).update(data_offsets=[0]),
        "unknown dtype": lambda h: _entry(h).update(dtype="F33"),
        "dtype of a list": lambda h: _entry(h).update(dtype=["F32"]),
        "whole numbers": lambda h: _entry(h).update(dtype="I32"),
        "no offsets": lambda h: _entry(h).pop("data_offsets"),
        "an entry of text": lambda h: h.update({"model.norm.weight": "x"}),
        "overlap": lambda h: h["model.norm.weight"].update(data_offsets=[0, 256]),
        "a path for a name": lambda h: h.update({"../../x": h.pop("model.norm.weight")}),
        "an empty name": lambda h: h.update({"": h.pop("model.norm.weight")}),
        "lines for a name": lambda h: h.update({"a\nb\x1b[31m" * 99: h.pop("model.norm.weight")}),
        "nothing": lambda h: h.clear(),
    }
    found |= {f"header: {name}": lambda d, e=edit: _rewrite(d, e) for name, edit in edits.items()}
    found["header: a name twice"] = lambda d: _raw(
        d, lambda t: t[:-1] + b',"model.norm.weight":' + _piece(t) + b"}"
    )
    found["header: deep"] = lambda d: _raw(d, lambda _: DEEP.encode())
    found["header: a list"] = lambda d: _raw(d, lambda _: b"[]")
    found["header: no text"] = lambda d: _raw(d, lambda t: b"\xff" * len(t))
    found["bytes at the end"] = lambda d: _append(d / "model.safetensors", b"x" * 64)
    return found


def weights() -> dict[str, Damage]:
    """Tensors that are missing, too many, of another shape, or no numbers."""
    found: dict[str, Damage] = {f"missing tensor {i}": _drop(i) for i in range(8)}
    found |= {f"shape {i}": _reshape(i) for i in range(8)}
    found["extra tensor"] = lambda d: _edit(
        d, lambda w: w.update({"model.layers.9.x.weight": np.ones((4, 4), "f4")})
    )
    found["extra layer"] = lambda d: _config(d, num_hidden_layers=1)
    for dtype in ("float32", "float16", "bfloat16"):
        for value in ("nan", "inf", "-inf"):
            found[f"{value} in {dtype}"] = _not_finite(dtype, value)
    for leaf in ("scales", "biases"):
        found[f"nan in {leaf}"] = _packed_nan(leaf)
    found["scales that do not fit"] = lambda d: (_pack(d), _edit(d, _wider_scales))
    found["words that do not fit"] = lambda d: (_pack(d), _edit(d, _wider_words))
    found["bits of text"] = lambda d: (_pack(d), _config(d, quantization={"group_size": "32", "bits": "4"}))
    found["a quantization of text"] = lambda d: (_pack(d), _config(d, quantization="4"))
    found["packed, not stated"] = _pack_unstated
    return found


def configs() -> dict[str, Damage]:
    """What config.json may say that cannot be so."""
    found: dict[str, Damage] = {}
    for key in COUNTS:
        found[f"{key}=10**9"] = lambda d, k=key: _config(d, **{k: 10**9})
        found[f"{key}=10**30"] = lambda d, k=key: _config(d, **{k: 10**30})
        found[f"{key}=-1"] = lambda d, k=key: _config(d, **{k: -1})
        found[f"{key} is a text"] = lambda d, k=key: _config(d, **{k: str(CONFIG[k])})
        found[f"{key} is a mapping"] = lambda d, k=key: _config(d, **{k: {}})
    # Few enough that the files could hold them, and yet not theirs.
    for key, value in (
        ("num_hidden_layers", 20),
        ("hidden_size", 8000),
        ("vocab_size", 8000),
        ("head_dim", 4000),
    ):
        found[f"{key}={value}"] = lambda d, k=key, v=value: _config(d, **{k: v})
    for key in ("num_hidden_layers", "hidden_size", "vocab_size", "rms_norm_eps"):
        found[f"{key} is null"] = lambda d, k=key: _config(d, **{k: None})
        found[f"{key} is absent"] = lambda d, k=key: _config(d, **{k: ...})
    values: list[tuple[str, Any]] = [
        *(
            ("rope_theta", "1e4"),
            ("rope_theta", [1e4]),
            ("rms_norm_eps", "x"),
            ("rms_norm_eps", float("nan")),
        ),
        *(
            ("rope_scaling", "linear"),
            ("rope_scaling", {"rope_type": "nosuch"}),
            ("tie_word_embeddings", "no"),
        ),
        *(("model_type", 7), ("model_type", None), ("model_type", ""), ("model_type", "nosuch")),
        *(("model_type", "../../x"), ("model_type", ".."), ("model_type", "base"), ("model_type", "olmo")),
        *(
            ("model_type", "a\nb" * 500),
            ("architectures", 5),
            ("model_file", "../x.py"),
            ("layer_types", ["?"] * 2),
        ),
        *(("eos_token_id", "x"), ("attention_bias", True), ("tie_word_embeddings", False)),
    ]
    found |= {f"{k}={v!r:.40}": lambda d, k=k, v=v: _config(d, **{k: v}) for k, v in values}
    texts = {"half": '{"model_type": "lla', "a list": "[]", "null": "null", "deep": DEEP, "bytes": "\udcff"}
    for name, text in texts.items():
        found[f"config: {name}"] = lambda d, t=text: _write(d / "config.json", t)
    found["generation_config: a list"] = lambda d: _write(d / "generation_config.json", "[]")
    found["generation_config: bytes"] = lambda d: _write(d / "generation_config.json", "\udcff")
    return found


def tokenizers() -> dict[str, Damage]:
    """What is no tokenizer."""
    texts = {
        "an object": "{}",
        "a list": "[]",
        "text": "hello",
        "deep": DEEP,
        "bytes": "\udcff",
        "null": "null",
    }
    found: dict[str, Damage] = {
        f"tokenizer: {name}": lambda d, t=text: _write(d / "tokenizer.json", t)
        for name, text in texts.items()
    }
    found |= {f"tokenizer: cut {i}": _cut_tokenizer(i) for i in range(6)}
    found |= {f"tokenizer: flip {i}": _flip_tokenizer(i) for i in range(10)}
    edits: dict[str, Callable[[dict[str, Any]], object]] = {
        "no model": lambda t: t.pop("model"),
        "another model": lambda t: t["model"].update(type="Nosuch"),
        "ids of text": lambda t: t["model"].update(vocab={"a": "x"}),
        "merges of nothing": lambda t: t["model"].update(merges=["a b c", "q"]),
    }
    for name, edit in edits.items():
        found[f"tokenizer: {name}"] = lambda d, e=edit: _edit_json(d / "tokenizer.json", e)
    found["no tokenizer at all"] = lambda d: [
        (d / n).unlink() for n in ("tokenizer.json", "tokenizer_config.json")
    ]
    found["a llama tokenizer of nothing"] = lambda d: (
        (d / "tokenizer.json").unlink(),
        _edit_json(d / "tokenizer_config.json", lambda t: t.update(tokenizer_class="LlamaTokenizer")),
    )
    found["tokenizer_config: a list"] = lambda d: _write(d / "tokenizer_config.json", "[]")
    found["tokenizer_config: half"] = lambda d: _write(d / "tokenizer_config.json", '{"eos')
    for key in ("tool_parser_type", "chat_template_type"):
        found[f"{key}=../x"] = lambda d, k=key: _edit_json(
            d / "tokenizer_config.json", lambda t: t.update({k: "../x"})
        )
    return found


def shards() -> dict[str, Damage]:
    """A model in two files and what its index may say."""
    found: dict[str, Damage] = {}
    for name in (
        "../x.safetensors",
        "/etc/passwd",
        "a/../../x",
        "..",
        "a\\b",
        "model\x00",
        "model-00003.safetensors",
    ):
        found[f"index: {name!r}"] = lambda d, n=name: _edit_json(
            d / INDEX, lambda i: i["weight_map"].update({"model.norm.weight": n})
        )
    found["no shard"] = lambda d: (d / SHARD).unlink()
    found["foreign shard"] = lambda d: save_file(
        {"x": np.ones(4, "f4")}, d / "model-00003-of-00003.safetensors"
    )
    found["index: half"] = lambda d: _write(d / INDEX, '{"weight_map"')
    found["index: a list"] = lambda d: _write(d / INDEX, "[]")
    found["index: no map"] = lambda d: _write(d / INDEX, "{}")
    found["index: numbers"] = lambda d: _write(d / INDEX, '{"weight_map": {"a": 1}}')
    found["index: deep"] = lambda d: _write(d / INDEX, DEEP)
    found["index: a tensor elsewhere"] = lambda d: _edit_json(
        d / INDEX,
        lambda i: i["weight_map"].update({"model.embed_tokens.weight": SHARD.replace("1-", "2-", 1)}),
    )
    found["index: a tensor of nowhere"] = lambda d: _edit_json(
        d / INDEX, lambda i: i["weight_map"].update({"model.nowhere": SHARD})
    )
    found["a tensor twice"] = lambda d: ((d / INDEX).unlink(), _double(d))
    return found


def _header(file: Path) -> bytes:
    data = file.read_bytes()
    return data[8 : 8 + struct.unpack("<Q", data[:8])[0]]


def _meaning(text: bytes) -> object:
    """What a header says of tensors, without its free metadata; None where it says nothing."""
    try:
        header = json.loads(text.decode())
        return {n: e for n, e in header.items() if n != "__metadata__"} if "__metadata__" in header else None
    except (ValueError, RecursionError, AttributeError):
        return None


def _flip(seed: int) -> Damage:
    """Change one byte of the header to another, such that it says something else."""

    def damage(directory: Path) -> None:
        file = directory / "model.safetensors"
        before, random = _header(file), np.random.default_rng(seed)
        while True:
            at, value = int(random.integers(len(before))), int(random.integers(256))
            after = before[:at] + bytes([value]) + before[at + 1 :]
            if after != before and _meaning(after) != _meaning(before):
                _patch(directory, 8 + at, bytes([value]))
                return

    return damage


def _patch(directory: Path, at: int, data: bytes) -> None:
    with (directory / "model.safetensors").open("r+b") as stream:
        stream.seek(at)
        stream.write(data)


def _append(file: Path, data: bytes) -> None:
    file.write_bytes(file.read_bytes() + data)


def _raw(directory: Path, change: Callable[[bytes], bytes]) -> None:
    """Replace the header's text."""
    file = directory / "model.safetensors"
    data, old = file.read_bytes(), _header(file)
    new = change(old.rstrip())
    file.write_bytes(struct.pack("<Q", len(new)) + new + data[8 + len(old) :])


def _rewrite(directory: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change the header's content."""

    def change(text: bytes) -> bytes:
        header = json.loads(text)
        edit(header)
        return json.dumps(header).encode()

    _raw(directory, change)


def _entry(header: dict[str, Any]) -> dict[str, Any]:
    return header["model.embed_tokens.weight"]


def _piece(text: bytes) -> bytes:
    return json.dumps(json.loads(text)["model.norm.weight"]).encode()


def _cut(seed: int) -> Damage:
    def damage(directory: Path) -> None:
        file = directory / "model.safetensors"
        data = file.read_bytes()
        file.write_bytes(data[: int(np.random.default_rng(seed).integers(len(data)))])

    return damage


def _cut_tokenizer(seed: int) -> Damage:
    def damage(directory: Path) -> None:
        file = directory / "tokenizer.json"
        data = file.read_bytes().rstrip()
        file.write_bytes(data[: int(np.random.default_rng(seed).integers(1, len(data)))])

    return damage


def _flip_tokenizer(seed: int) -> Damage:
    """Change one byte such that the file is JSON no more; others may only rename a token."""

    def damage(directory: Path) -> None:
        file, random = directory / "tokenizer.json", np.random.default_rng(seed)
        data = file.read_bytes()
        while True:
            at, value = int(random.integers(len(data))), int(random.integers(256))
            changed = data[:at] + bytes([value]) + data[at + 1 :]
            try:
                json.loads(changed)
            except ValueError:
                file.write_bytes(changed)
                return

    return damage


def _edit(directory: Path, change: Callable[[dict[str, np.ndarray]], object]) -> None:
    file = directory / "model.safetensors"
    held = load_file(file)
    change(held)
    save_file(held, file, metadata={"format": "mlx"})


def _chosen(held: dict[str, np.ndarray], seed: int) -> str:
    return sorted(held)[int(np.random.default_rng(seed).integers(len(held)))]


def _drop(seed: int) -> Damage:
    return lambda d: _edit(d, lambda w: w.pop(_chosen(w, seed)))


def _reshape(seed: int) -> Damage:
    """One row more, one less, or all in one row."""

    def change(held: dict[str, np.ndarray]) -> None:
        name = _chosen(held, seed)
        array = held[name]
        held[name] = (np.concatenate([array, array[:1]]), array[1:].copy(), array.reshape(1, -1))[seed % 3]

    return lambda d: _edit(d, change)


def _not_finite(dtype: str, value: str) -> Damage:
    """One element of a model in a dtype."""
    codes = {"float32": ("F32", "<f4"), "float16": ("F16", "<f2"), "bfloat16": ("BF16", "<u2")}
    special = {"nan": 0x7FC0, "inf": 0x7F80, "-inf": 0xFF80}

    def damage(directory: Path) -> None:
        file = directory / "model.safetensors"
        header: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
        data = b""
        for name, array in load_file(file).items():
            stored = (
                (array.view("<u4") >> 16).astype("<u2")
                if dtype == "bfloat16"
                else array.astype(codes[dtype][1])
            )
            if name == "model.layers.1.mlp.up_proj.weight":
                stored[3, 5] = special[value] if dtype == "bfloat16" else float(value)
            offsets = [len(data), len(data) + stored.nbytes]
            header[name] = {"dtype": codes[dtype][0], "shape": list(array.shape), "data_offsets": offsets}
            data += stored.tobytes()
        text = json.dumps(header).encode()
        file.write_bytes(struct.pack("<Q", len(text)) + text + data)

    return damage


def _pack(directory: Path) -> None:
    """Four bits in groups of 32 for one matrix, stated in the config."""

    def change(held: dict[str, np.ndarray]) -> None:
        rows, columns = held["model.layers.0.mlp.up_proj.weight"].shape
        path = "model.layers.0.mlp.up_proj"
        held[f"{path}.weight"] = np.full((rows, columns * 4 // 32), 0x12345678, np.uint32)
        held[f"{path}.scales"] = np.full((rows, columns // 32), 0.01, np.float32)
        held[f"{path}.biases"] = np.full((rows, columns // 32), -0.1, np.float32)

    _edit(directory, change)
    _config(directory, quantization={"group_size": 32, "bits": 4})


def _wider_scales(held: dict[str, np.ndarray]) -> None:
    path = "model.layers.0.mlp.up_proj"
    held[f"{path}.scales"] = np.full((96, 5), 0.01, np.float32)


def _wider_words(held: dict[str, np.ndarray]) -> None:
    path = "model.layers.0.mlp.up_proj"
    held[f"{path}.weight"] = np.full((96, 11), 1, np.uint32)


def pack_soundly(directory: Path) -> Path:
    """A directory with one packed matrix, which loads."""
    _pack(directory)
    return directory


def _packed_nan(leaf: str) -> Damage:
    def damage(directory: Path) -> None:
        _pack(directory)
        _edit(directory, lambda w: w[f"model.layers.0.mlp.up_proj.{leaf}"].__setitem__((1, 1), np.nan))

    return damage


def _pack_unstated(directory: Path) -> None:
    _pack(directory)
    _config(directory, quantization=...)


def _config(directory: Path, **changes: Any) -> None:
    """Change config.json; `...` removes a key."""

    def change(config: dict[str, Any]) -> None:
        config.update(changes)
        for key, value in changes.items():
            if value is ...:
                del config[key]

    _edit_json(directory / "config.json", change)


def _edit_json(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads(file.read_text())
    change(data)
    file.write_text(json.dumps(data))


def _write(file: Path, text: str) -> None:
    file.write_bytes(text.encode(errors="surrogateescape"))


def _double(directory: Path) -> None:
    """A tensor of the first file in the second too."""
    first, second = sorted(directory.glob("model*.safetensors"))
    name, array = next(iter(load_file(first).items()))
    save_file({**load_file(second), name: array}, second, metadata={"format": "mlx"})


CASES = tuple(cases())
