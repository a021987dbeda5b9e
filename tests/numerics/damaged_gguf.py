"""Damaged GGUF files, made from whole ones with a seed. Every damage is one that can be told.

A flipped byte of a text, or of a weight that stays finite, leaves a file that is whole by every rule of the
format, and no checksum says otherwise: bytes are changed where structure, types or scales lie.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFValueType as Value
from gguf.constants import GGML_QUANT_SIZES

from tests.numerics.tiny_gguf import HIDDEN, LAYERS, Edit, make_weights, write_gguf
from tests.numerics.typed_gguf import HALVES, write_typed

WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
TYPES = ("value type", "array type", "tensor type")
COUNTS = (
    "tensors",
    "keys",
    "key length",
    "text length",
    "elements",
    "name length",
    "dimensions",
    "size",
    "offset",
)
ABSURD = (2**64 - 1, 2**63, 2**48 + 1, 2**40, 2**32 - 1, 2**31, 10**6)
GIB = 1 << 30


@dataclass(frozen=True)
class Place:
    """A number of the header: what it is, where it lies and how many bytes it has."""

    what: str
    at: int
    width: int


@dataclass(frozen=True)
class Damage:
    """One file. name: what was done to it. nbytes: its length where it goes on with a hole of zeros."""

    name: str
    data: bytes
    nbytes: int | None = None

    def write(self, file: Path) -> None:
        with file.open("wb") as stream:
            stream.write(self.data)
            if self.nbytes is not None:
                stream.truncate(self.nbytes)


class Walk:
    """The places of a whole file's header, found by reading it; knows nothing of labkit's reader."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.places = data, 0, list[Place]()
        for what in ("magic", "version"):
            self.number(what, 4)
        tensors, keys = self.number("tensors", 8), self.number("keys", 8)
        for _ in range(keys):
            self.skip(self.number("key length", 8))
            self.value(self.number("value type", 4))
        for _ in range(tensors):
            self.skip(self.number("name length", 8))
            for _ in range(self.number("dimensions", 4)):
                self.number("size", 8)
            self.number("tensor type", 4)
            self.number("offset", 8)

    def number(self, what: str, width: int) -> int:
        self.places.append(Place(what, self.at, width))
        self.at += width
        return int.from_bytes(self.data[self.at - width : self.at], "little")

    def value(self, kind: int) -> None:
        if kind == Value.STRING:
            self.skip(self.number("text length", 8))
        elif kind == Value.ARRAY:
            inner, count = self.number("array type", 4), self.number("elements", 8)
            for _ in range(count):
                self.value(inner)
        else:
            self.skip(WIDTHS[kind])

    def skip(self, nbytes: int) -> None:
        self.at += nbytes


def put(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def cut_short(data: bytes, random: np.random.Generator) -> Iterator[Damage]:
    header = Walk(data).at
    for limit in [header] * 25 + [len(data)] * 25:
        keep = int(random.integers(0, limit))
        yield Damage(f"cut to {keep} of {len(data)} bytes", data[:keep])


def flipped(data: bytes, random: np.random.Generator) -> Iterator[Damage]:
    """One byte of one structural number changed.

    Types get a bit that no known type has, since an int32 may be read as a uint32, and so does the version.
    """
    places = [p for p in Walk(data).places if p.what not in ("text length", "elements")]
    texts = [p for p in Walk(data).places if p.what in ("text length", "elements")]
    for i in range(60):
        place = (places if i % 4 else texts)[int(random.integers(0, len(places if i % 4 else texts)))]
        at = place.at + int(random.integers(0, place.width))
        mask = 0x40 if place.what in (*TYPES, "version") else int(random.integers(1, 256))
        yield Damage(f"{place.what} at {at} ^ {mask:#x}", put(data, at, bytes([data[at] ^ mask])))


def absurd(data: bytes, random: np.random.Generator) -> Iterator[Damage]:
    places = Walk(data).places
    for what in COUNTS:
        those = [p for p in places if p.what == what]
        place = those[int(random.integers(0, len(those)))]
        for value in (v for v in ABSURD if v < 256**place.width):
            word = value.to_bytes(place.width, "little")
            yield Damage(f"{what} at {place.at} = {value}", put(data, place.at, word))


def not_finite(folder: Path, random: np.random.Generator) -> Iterator[Damage]:
    """Scales and weights that are NaN, infinite or absurd, in one block of one tensor."""
    kinds = (Kind.Q4_0, Kind.Q8_0, Kind.Q4_K, Kind.Q5_K, Kind.Q6_K, Kind.Q2_K, Kind.F16, Kind.F32)
    for kind in kinds:
        file = folder / "typed.gguf"
        stored = write_typed(file, lambda _, kind=kind: kind, seed=int(random.integers(1 << 30)))
        data, nbytes = file.read_bytes(), GGML_QUANT_SIZES[kind][1]
        for value in (np.nan, np.inf, -np.inf):
            name = str(random.choice(sorted(stored)))
            start = data.index(stored[name].tobytes())
            block = int(random.integers(0, stored[name].nbytes // nbytes))
            half = int(random.choice(HALVES.get(kind, (0,))))
            word = np.array(value, "<f4" if kind == Kind.F32 else "<f2").tobytes()
            yield Damage(f"{value} in {name} {kind.name}", put(data, start + block * nbytes + half, word))


def rename(old: str, new: str) -> Edit:
    def edit(_: gguf.GGUFWriter, weights: dict[str, np.ndarray]) -> None:
        weights[new] = weights.pop(old)

    return edit


def reshape(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Edit:
    return lambda _, weights: weights.update({name: np.ascontiguousarray(change(weights[name]))})


def metadata(key: str, value: Any, kind: Value) -> Edit:
    """Add a key, in the place of the one that the tiny model has."""

    def edit(writer: gguf.GGUFWriter, _: dict[str, np.ndarray]) -> None:
        writer.kv_data[0].pop(key, None)
        writer.add_key_value(key, value, kind)

    return edit


TRICKS = (
    "../../../tmp/x",
    "/etc/passwd",
    "..",
    "blk.0.attn_q.weight/../../x",
    "blk.-1.attn_q.weight",
    "blk.00.attn_q.weight",
    "blk.9999999999999999999.attn_q.weight",
    "blk.0.attn_q.weight\x00.txt",
    "blk.0.attn_q.weight\n",
    "\x1b[2Jblk.0.attn_q.weight",
    "blk.0.attn_q\u202eweight",
    "C:\\x\\attn_q.weight",
    "a" * 10_000,
    "${HOME}",
    "blk.{}.attn_q.weight",
)
NONSENSE: tuple[tuple[str, Any, Value], ...] = (
    *(("llama.block_count", n, Value.UINT32) for n in (0, LAYERS - 1, LAYERS + 1, 2**31, 2**32 - 1)),
    *(("llama.attention.head_count", n, Value.UINT32) for n in (0, 3, 64, 2**31)),
    *(("llama.attention.head_count_kv", n, Value.UINT32) for n in (0, 3, 8, 2**32 - 1)),
    *(
        ("llama.attention.layer_norm_rms_epsilon", x, Value.FLOAT32)
        for x in (0.0, -1e-5, np.nan, np.inf, 1.0)
    ),
    *(("llama.rope.freq_base", x, Value.FLOAT32) for x in (0.0, -1.0, np.nan, np.inf)),
    *(("llama.context_length", n, Value.UINT32) for n in (0, 2**32 - 1)),
    *(("llama.embedding_length", n, Value.UINT32) for n in (0, HIDDEN + 1, 2**31)),
    ("llama.embedding_length", "64", Value.STRING),
    ("llama.block_count", True, Value.BOOL),
    ("llama.feed_forward_length", -96, Value.INT32),
    *(("general.alignment", n, Value.UINT32) for n in (0, 3, 2**31)),
    ("general.alignment", "32", Value.STRING),
    *(
        ("general.architecture", name, Value.STRING)
        for name in ("../../x", "", "llama\n", "\x1b[31mllama", "a" * 9999)
    ),
    *(("tokenizer.ggml.pre", name, Value.STRING) for name in ("../../x", "smollm\x00", "\x1b[31m")),
    ("tokenizer.ggml.model", "../gpt2", Value.STRING),
    *(("tokenizer.ggml.eos_token_id", n, Value.UINT32) for n in (10**6, 2**32 - 1)),
    ("split.count", 2, Value.UINT16),
    ("split.no", 1, Value.UINT16),
)


def edits() -> Iterator[tuple[str, Edit]]:
    names = list(make_weights())
    for name in names:
        yield f"without {name}", lambda _, weights, name=name: weights.pop(name)
    for trick in TRICKS:
        yield f"a tensor named {trick[:40]!a}", rename("blk.0.attn_q.weight", trick)
    for name in ("rope.weight", f"blk.{LAYERS}.attn_q.weight", "blk.0.attn_q.weight.bias"):
        yield f"also {name}", lambda _, w, name=name: w.update({name: np.ones(HIDDEN, np.float32)})
    for name in names[::2]:
        yield f"fewer rows of {name}", reshape(name, lambda array: array[: len(array) // 2])
        yield f"one more dimension of {name}", reshape(name, lambda array: array[None])
    for key, value, kind in NONSENSE:
        yield f"{key} = {str(value)[:40]!a}", metadata(key, value, kind)


def edited(folder: Path) -> Iterator[Damage]:
    for index, (name, edit) in enumerate(edits()):
        yield Damage(name, write_gguf(folder / f"edited-{index}.gguf", edit=edit).read_bytes())


def rewritten(data: bytes) -> Iterator[Damage]:
    """Whole headers that say what they may not."""
    key, other = b"tokenizer.ggml.bos_token_id", b"tokenizer.ggml.eos_token_id"
    yield Damage("a key twice", data.replace(key, other))
    yield Damage("a tensor twice", data.replace(b"blk.1.attn_q.weight", b"blk.0.attn_q.weight"))
    yield Damage("a token that is not UTF-8", data.replace(b"<|im_end|>", b"<|im_\xff\xfe|>"))
    yield Damage("another magic", put(data, 0, b"GGML"))
    for version in (0, 1, 4, 0x03000000):
        yield Damage(f"version {version:#x}", put(data, 4, struct.pack("<I", version)))
    yield Damage("a byte behind the last tensor", data + b"\0")
    yield Damage("a model behind a model", data + data)
    yield Damage("text", b"not a model" * 100)
    yield Damage("an archive", b"PK\x03\x04" + bytes(1000))
    yield Damage("only ones", b"GGUF" + b"\xff" * 1000)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def hollow(data: bytes) -> Iterator[Damage]:
    """Files of gigabytes, nearly all of them a hole, whose size bears out what they claim."""

    def head(tensors: int, keys: int) -> bytes:
        return b"GGUF" + struct.pack("<IQQ", 3, tensors, keys)

    for kind in (Value.UINT8, Value.FLOAT64, Value.BOOL, Value.STRING, Value.ARRAY):
        count = 3 * GIB // {Value.STRING: 8, Value.ARRAY: 12, Value.FLOAT64: 8}.get(kind, 1) - 100
        array = text("a.b") + struct.pack("<IIQ", Value.ARRAY, kind, count)
        yield Damage(f"an array of {count} {kind.name}", head(0, 1) + array, 3 * GIB)
    nested = text("a.b") + struct.pack("<I", Value.ARRAY) + struct.pack("<IQ", Value.ARRAY, 1) * 200_000
    yield Damage("arrays within arrays", head(0, 1) + nested, 3 * GIB)
    long = text("a.b") + struct.pack("<IQ", Value.STRING, 2 * GIB)
    yield Damage("a text of 2 GiB", head(0, 1) + long, 3 * GIB)
    yield Damage("a name of 2 GiB", head(1, 0) + struct.pack("<Q", 2 * GIB), 3 * GIB)
    yield Damage("tensors without end", head(GIB // 16, 0), 3 * GIB)
    yield Damage("keys without end", head(0, GIB // 16), 3 * GIB)
    yield Damage("3 GiB behind the last tensor", data, 3 * GIB)


def crowded(folder: Path) -> Iterator[Damage]:
    """As many tokens and merges as a header may hold, and tensors by the thousand; each is there."""
    many = 1_500_000
    texts = struct.pack("<Q", 4) + "\U0001f600".encode()
    for name in ("tokens", "merges"):
        edit = metadata(f"tokenizer.ggml.{name}", ["\U0001f600"], Value.ARRAY)
        short = write_gguf(folder / "crowded.gguf", edit=edit).read_bytes()
        begin = short.index(texts)
        grown = put_more(short, begin - 8, struct.pack("<Q", many) + texts * many, 8 + len(texts))
        yield Damage(f"{many} {name}", grown)
    yield from bombs(folder)


def bombs(folder: Path) -> Iterator[Damage]:
    """Counts that more tensors than the file's follow from: layers, experts, or only their product."""
    for layers, experts, held in (
        (64_000, 0, 65_000),
        (14_000, 0, 65_000),
        (1400, 1400, 1500),
        (2, 400, 500),
    ):
        numbers = {"block_count": layers, "expert_count": experts, "expert_used_count": min(experts, 1)}
        edits = [metadata(f"llama.{key}", value, Value.UINT32) for key, value in numbers.items()]

        def edit(writer: gguf.GGUFWriter, weights: dict[str, np.ndarray], edits: Any = edits) -> None:
            for each in edits:
                each(writer, weights)

        data = write_gguf(folder / "bomb.gguf", edit=edit).read_bytes()
        first = next(p.at for p in Walk(data).places if p.what == "name length")
        leaf = "ffn_gate.0" if experts else "attn_q"
        names = ["token_embd.weight", *(f"blk.{i}.{leaf}.weight" for i in range(held - 1))]
        rows = (text(n) + struct.pack("<IQIQ", 1, 8, 0, 32 * i) for i, n in enumerate(names))
        header = put(data[:first], 8, struct.pack("<Q", held)) + b"".join(rows)
        yield Damage(
            f"{held} tensors of {layers} layers, {experts} experts",
            header + bytes(-len(header) % 32 + 32 * held),
        )


def put_more(data: bytes, at: int, new: bytes, old: int) -> bytes:
    """The bytes at a place of the header exchanged for more of them; the tensors move behind, aligned."""
    end = Walk(data).at
    header = data[:at] + new + data[at + old : end]
    return header + bytes(-len(header) % 32) + data[end + -end % 32 :]


def large_tensor(folder: Path) -> Damage:
    """A vocabulary of 33 million rows, all of them there: a hole in the file."""

    def last(_: gguf.GGUFWriter, weights: dict[str, np.ndarray]) -> None:
        weights["token_embd.weight"] = weights.pop("token_embd.weight")

    data = write_gguf(folder / "large.gguf", edit=last).read_bytes()
    rows, (row_count, offset) = 1 << 25, [p for p in Walk(data).places if p.what in ("size", "offset")][-2:]
    begin = Walk(data).at + -Walk(data).at % 32 + int.from_bytes(data[offset.at :][:8], "little")
    nbytes = begin + rows * HIDDEN // 32 * 34
    return Damage(f"{rows} rows", put(data, row_count.at, struct.pack("<Q", rows)), nbytes)


def damages(folder: Path, seed: int) -> list[Damage]:
    """All of them. folder: for files that are needed on the way."""
    random = np.random.default_rng(seed)
    data = write_gguf(folder / "whole.gguf").read_bytes()
    made = [
        *cut_short(data, random),
        *flipped(data, random),
        *absurd(data, random),
        *not_finite(folder, random),
    ]
    return [*made, *edited(folder), *rewritten(data), *hollow(data), *crowded(folder), large_tensor(folder)]
