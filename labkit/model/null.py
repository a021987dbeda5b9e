"""The null model: a provider without weights, deterministic, whose time and timing noise are set by name.

Knows how long a chunk or a token takes and which token comes next; nothing of sessions or measurement.
Needs no mlx, and reads no real clock unless it was asked to run in real time.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from labkit.core.canonical import digest
from labkit.core.errors import LabkitError
from labkit.core.spec import CacheShape, Profile
from labkit.model.null_noise import NOISES, NoiseKind, NullNoise

VOCAB = 256
CONTEXT = 4096
PRINTABLE = (32, 127)


class AdvancingClock(Protocol):
    """Seconds when called; `advance` lets time pass."""

    def __call__(self) -> float: ...

    def advance(self, seconds: float) -> None: ...


class VirtualClock:
    """A clock that stands still until it is advanced."""

    _now = 0.0

    def __call__(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds


class RealClock:
    """The monotonic clock; `advance` sleeps."""

    def __call__(self) -> float:
        return time.perf_counter()

    def advance(self, seconds: float) -> None:
        time.sleep(seconds)


@dataclass(frozen=True, slots=True)
class NullSettings:
    """What a name `null:key=value,...` may set. slowdown multiplies every time; rates are tokens a second."""

    prefill_tps: float = 1000.0
    decode_tps: float = 100.0
    slowdown: float = 1.0
    sd: float = 0.0
    noise: NoiseKind = "none"
    rho: float = 0.0
    slope: float = 0.0
    seed: int = 0
    realtime: bool = False
    kv_bytes_per_token: int = 64


class ByteTokenizer:
    """One token per UTF-8 byte. Byte 0 ends a text; the null model never generates it."""

    eos_token_ids = frozenset({0})

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of the bytes; broken UTF-8 becomes the replacement character."""
        return bytes(tokens).decode(errors="replace")


class NullModel:
    """Keeps time and makes up tokens. It holds no sequence, so sessions may share it.

    The next token and its log-probabilities depend on the seed and the sequence alone, never on speed or
    noise: two arms that differ in those are equal in quality.
    """

    path = None

    def __init__(self, name: str, settings: NullSettings, clock: AdvancingClock | None = None) -> None:
        self.name, self.settings = name, settings
        self.clock = clock or (RealClock() if settings.realtime else VirtualClock())
        self.tokenizer = ByteTokenizer()
        self.profile = _profile(name, settings)
        self.kv_bytes_per_token = settings.kv_bytes_per_token
        s = settings
        self.noise = NullNoise(s.noise, s.sd, s.rho, s.slope, s.seed)
        self._next_visit, self._factor = 0, 1.0

    def seek(self, visit: int) -> None:
        """Place the next visit in the machine's series, which the arms of a bench share."""
        self._next_visit = visit

    def begin_visit(self) -> None:
        """Draw the noise factor of the next visit; all its steps take that much longer."""
        self._factor = float(self.noise.factors(self._next_visit + 1)[-1])
        self._next_visit += 1

    def prefill(self, tokens: Sequence[int]) -> None:
        """Let the time of a chunk of the prompt pass."""
        self._pass(len(tokens) / self.settings.prefill_tps)

    def decode(self, tokens: Sequence[int]) -> tuple[int, NDArray[np.float32]]:
        """The token after the whole sequence, and the `(vocab,)` log-probabilities it tops, in nats."""
        self._pass(1 / self.settings.decode_tps)
        sequence = np.asarray(tokens, dtype="<i8").tobytes()
        state = hashlib.sha256(f"{self.settings.seed}/".encode() + sequence).digest()
        draw = np.random.default_rng(int.from_bytes(state[:16], "little"))
        token = int(draw.integers(*PRINTABLE))
        logits = draw.standard_normal(VOCAB)
        logits[token] = logits.max() + 1.0
        return token, (logits - np.logaddexp.reduce(logits)).astype(np.float32)

    def _pass(self, seconds: float) -> None:
        self.clock.advance(seconds * self.settings.slowdown * self._factor)


def is_null(name: str) -> bool:
    """Whether a model's name asks for a null model."""
    return name.partition(":")[0] == "null"


def parse_null(name: str) -> NullModel:
    """The null model of a name: `null`, or `null:key=value,...` with the fields of NullSettings.

    Raises LabkitError for an unknown or repeated key, a bad value, and a value that its noise ignores.
    """
    head, _, rest = name.partition(":")
    if head != "null":
        raise LabkitError("a null model's name was needed", got=name, options=("null", "null:key=value,..."))
    given: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        key, _, text = part.partition("=")
        if key not in _READERS or key in given:
            need = f"each setting of the null model once, as key=value, in {name!r}"
            raise LabkitError(need, got=part, options=[f.name for f in fields(NullSettings)])
        given[key] = _READERS[key](key, text)
    if given.get("sd", 0) > 0:
        given.setdefault("noise", "independent")
    settings = NullSettings(**given)
    _refuse_ignored(settings)
    return NullModel(name, settings)


def _profile(name: str, settings: NullSettings) -> Profile:
    return Profile(
        name=name,
        family="null",
        architecture="null",
        layers=("full",),
        context_length=CONTEXT,
        vocab_size=VOCAB,
        hidden_size=1,
        heads=1,
        kv_heads=None,
        head_dim=None,
        dtype="float32",
        fingerprint=digest(asdict(settings)),
        status="registered",
        oracle="none",
        provider="null",
        caches=(CacheShape("NullCache", token_bytes=settings.kv_bytes_per_token),),
    )


def _refuse_ignored(settings: NullSettings) -> None:
    """Nothing that was set may be without effect."""
    rules = (
        ("sd", settings.sd, settings.noise != "none", "a noise other than none"),
        ("rho", settings.rho, settings.noise == "ar", "noise=ar"),
        ("slope", settings.slope, settings.noise == "drift", "noise=drift"),
    )
    for key, value, used, needed in rules:
        if value and not used:
            raise LabkitError(f"{key} has an effect only with {needed}", got=f"noise={settings.noise}")


def _number(low: float, high: float, *, open_low: bool = False) -> Callable[[str, str], float]:
    def read(key: str, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or not low <= value < high or (open_low and value == low):
            _bad(key, text, f"{'above' if open_low else 'at least'} {low:g}, below {high:g}")
        return value

    return read


def _count(key: str, text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else _bad(key, text, "a whole number of 0 or more")


def _noise(key: str, text: str) -> NoiseKind:
    return NOISES[text] if text in NOISES else _bad(key, text, "a known kind of noise", tuple(NOISES))


def _flag(key: str, text: str) -> bool:
    return text == "true" if text in ("true", "false") else _bad(key, text, "true or false")


def _bad(key: str, text: str, needed: str, options: Sequence[str] = ()) -> NoReturn:
    raise LabkitError(f"the null model's {key} must be {needed}", got=text or "nothing", options=options)


_READERS: Mapping[str, Callable[[str, str], Any]] = {
    "prefill_tps": _number(0, math.inf, open_low=True),
    "decode_tps": _number(0, math.inf, open_low=True),
    "slowdown": _number(0, math.inf, open_low=True),
    "sd": _number(0, 1),
    "noise": _noise,
    "rho": _number(-1, 1, open_low=True),
    "slope": _number(-1, 1),
    "seed": _count,
    "realtime": _flag,
    "kv_bytes_per_token": _count,
}
