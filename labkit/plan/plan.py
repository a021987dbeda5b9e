"""Plan: what will run, immutable and hashed. Why something will not run is `reason`'s."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from labkit.core.canonical import digest, plain, stated
from labkit.core.kv_setting import KVSetting
from labkit.core.sampling import Sampling
from labkit.core.spec import Feature, LayerKind
from labkit.core.taps import Taps
from labkit.plan.kv_text import describe_kv, kv_identity
from labkit.plan.sampling_text import describe_sampling, describe_taps


@dataclass(frozen=True, slots=True)
class Plan:
    """A resolved arm.

    What decides numerics makes its identity and hash (`identity`). The request's own length, limit, seed,
    stops, alternatives and taps do not.
    kv: the scheme's name; kv_summary: what it is; kv_setting: what it asks for, layer by layer; kv_class: the
    class that the name is the label of, where it is one's own.
    cache_layout: per layer the cache class expected after a run; None keeps the model's own class.
    substitutions: everything that differs from what was asked for; empty where nothing does.
    recipe: which promoted recipe was applied and why, or why none, in lines; empty where none was asked for.
    sampler, processors: qualified names of the request's own. features: what the method offers beside
    stepping. layers, sliding_window: of the model's profile.
    """

    model: str
    fingerprint: str
    method: str
    kv: str
    kv_summary: str
    kv_setting: KVSetting
    cache_layout: tuple[str | None, ...]
    prefill_chunk: int
    sampling: Sampling
    prompt_tokens: int
    max_tokens: int
    seed: int
    stop_tokens: tuple[int, ...]
    logprobs: bool
    oracle: str
    dtype: str
    backend: str
    substitutions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    top_logprobs: int = 0
    sampler: str | None = None
    processors: tuple[str, ...] = ()
    taps: Taps = field(default_factory=Taps)
    features: frozenset[Feature] = frozenset()
    layers: tuple[LayerKind, ...] = ()
    sliding_window: int | None = None
    recipe: str = ""
    kv_class: type | None = None

    def identity(self) -> dict[str, Any]:
        """What decides the numerics of this plan, as plain data."""
        own = {"sampler": self.sampler, "logits_processors": list(self.processors)}
        return {
            "fingerprint": self.fingerprint,
            "backend": self.backend,
            "method": self.method,
            **kv_identity(self.kv, self.kv_setting),
            "cache_layout": list(self.cache_layout),
            "prefill_chunk": self.prefill_chunk,
            "sampling": plain(stated(self.sampling)),
            **{name: value for name, value in own.items() if value},
        }

    def hash(self) -> str:
        return digest(self.identity())

    def explain(self) -> str:
        """The plan as lines of text: what runs, how it was chosen, what was substituted."""
        rows = [
            ("model", f"{self.model} ({self.dtype}, fingerprint {self.fingerprint[:12]})"),
            ("backend", self.backend),
            ("method", self.method),
            ("kv", describe_kv(self.kv, self.kv_setting, f"{self.kv_summary}, {self.dtype}")),
            ("caches", _count_layout(self.cache_layout)),
            ("prefill", self._prefill_line()),
            ("decode", self._decode_line()),
            ("sampling", describe_sampling(self.sampling, self.seed, self.sampler, self.processors)),
            *self._recorded(),
            *self._recipe_rows(),
            ("oracle", self.oracle),
            ("hash", self.hash()),
        ]
        rows += [("substituted", text) for text in self.substitutions or ("nothing",)]
        rows += [("note", text) for text in self.notes]
        return "\n".join(f"{name:<12}{text}" for name, text in rows)

    def _prefill_line(self) -> str:
        """The last token of the prompt is fed by the first decode step."""
        return f"{self.prompt_tokens - 1} of {self.prompt_tokens} tokens in chunks of {self.prefill_chunk}"

    def _decode_line(self) -> str:
        line = f"at most {self.max_tokens} tokens, {len(self.stop_tokens)} stop token(s)"
        return f"{line}, stop strings {', '.join(map(repr, self.stop))}" if self.stop else line

    def _recipe_rows(self) -> list[tuple[str, str]]:
        """The recipe on the first row, what there is to say of it on those below."""
        return [("" if n else "recipe", line) for n, line in enumerate(self.recipe.splitlines())]

    def _recorded(self) -> list[tuple[str, str]]:
        """What is kept beside the tokens, a row each; none where nothing is."""
        alternatives = [("logprobs", f"the {self.top_logprobs} likeliest of each token")]
        taps = describe_taps(self.taps)
        return (alternatives if self.top_logprobs else []) + ([("taps", taps)] if taps else [])


def _count_layout(layout: tuple[str | None, ...]) -> str:
    counts: dict[str, int] = {}
    for name in layout:
        key = name or "the model's own"
        counts[key] = counts.get(key, 0) + 1
    return ", ".join(f"{count} x {name}" for name, count in counts.items()) or "none"
