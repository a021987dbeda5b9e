"""Model: an artifact held in the hand. Plans requests and opens sessions; knows no method or cache class."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from labkit.core.errors import PlanRefused
from labkit.core.own_class import OwnClass
from labkit.core.request import LogitsProcessor, Request, Sampler, several
from labkit.core.sampling import Sampling
from labkit.core.spec import Profile
from labkit.core.taps import Taps
from labkit.engine.engine import Engine
from labkit.engine.kv_argument import read_argument
from labkit.engine.method import Clock, Execution, Frozen, SavingMethod
from labkit.engine.session import Session
from labkit.engine.text import TextStream
from labkit.model.artifact import Artifact
from labkit.plan.negotiate import negotiate
from labkit.plan.plan import Plan
from labkit.plan.reason import Reason, Refusal
from labkit.plan.values import is_token, is_whole, shown

if TYPE_CHECKING:
    from labkit.engine.batching.batch import Batch

# The fields of Taps that name layers, and of what a graph can give of them.
TAPPED = ("hidden", "attention")


@dataclass(frozen=True, eq=False)
class Model:
    """path: the artifact directory, which `mlx_lm.load` reads too (None for the null model).

    graph: the mlx-lm model, or the null model. tokenizer: mlx-lm's wrapper of the artifact's tokenizer.
    """

    name: str
    path: Path | None
    profile: Profile
    tokenizer: Any
    graph: Any
    artifact: Artifact
    engine: Engine
    clock: Clock = time.perf_counter

    def encode(self, prompt: str | Sequence[int]) -> tuple[int, ...]:
        """Token ids of a prompt: text through the tokenizer as it is (no chat template), ids unchanged.

        Raises PlanRefused for what is neither text nor a sequence of ids, and for half a surrogate pair.
        """
        if isinstance(prompt, str):
            return tuple(self.tokenizer.encode(_whole(prompt)))
        if isinstance(prompt, bytes) or not isinstance(prompt, Iterable):
            got = f"{type(prompt).__name__}: {prompt!r}"
            raise PlanRefused("prompt: text or a sequence of token ids is needed", got=got)
        return tuple(_as_id(t) for t in prompt)

    def leading_token(self) -> int | None:
        """The id that the tokenizer puts before every text (BOS), None where it puts none."""
        with_special, without = self.encode("a"), self.tokenizer.encode("a", add_special_tokens=False)
        return with_special[0] if with_special[:1] != tuple(without[:1]) else None

    def chat(self, messages: str | Sequence[Mapping[str, Any]], **options: Any) -> tuple[int, ...]:
        """Token ids of a conversation in the model's chat template, ready for its answer.

        messages: mappings with `role` and `content`, or one text of the user. options go to the template.
        Raises PlanRefused for a model without a chat template, such as a base model.
        """
        if getattr(self.tokenizer, "chat_template", None) is None:
            next_step = "model.session(text), which takes text as it is"
            raise PlanRefused("a model with a chat template was needed", got=self.name, next_step=next_step)
        turns = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        template = {"add_generation_prompt": True, "tokenize": False, **options}
        try:
            text = self.tokenizer.apply_chat_template(list(turns), **template)
        except Exception as error:  # a template is a program of the model's, and raises what it likes
            need = "mappings with role and content, as the chat template takes them, were needed"
            raise PlanRefused(need, got=f"{shown(messages)}: {type(error).__name__}: {error}") from error
        return tuple(self.tokenizer.encode(_whole(text), add_special_tokens=False))

    def request(
        self,
        prompt: str | Sequence[int],
        *,
        kv: str | type | OwnClass = "bf16",
        max_tokens: int = 256,
        prefill_chunk: int | None = None,
        seed: int = 0,
        sampling: Sampling | None = None,
        logprobs: bool = False,
        top_logprobs: int = 0,
        stop: str | Sequence[str] | None = None,
        stop_tokens: Sequence[int] | None = None,
        method: str | None = None,
        sampler: Sampler | None = None,
        logits_processors: Sequence[LogitsProcessor] = (),
        taps: Taps | None = None,
    ) -> Request:
        """A request on this model; stop_tokens None takes the end-of-text ids that the model can draw.

        kv: the name of a scheme, whose file is read now, or a class of one's own with a SPEC.
        """
        scheme = read_argument(kv, self.engine.catalog, tuple(self.engine.schemes.values()))
        return Request(
            prompt=self.encode(prompt),
            max_tokens=max_tokens,
            sampling=Sampling() if sampling is None else sampling,
            seed=seed,
            prefill_chunk=prefill_chunk,
            logprobs=logprobs,
            stop_tokens=several(self._ends() if stop_tokens is None else stop_tokens),
            method=method,
            stop=() if stop is None else several(stop),
            top_logprobs=top_logprobs,
            sampler=sampler,
            logits_processors=several(logits_processors),
            taps=Taps() if taps is None else taps,
            **scheme.content(),
        )

    def _ends(self) -> list[int]:
        """The end-of-text ids that the model can draw."""
        ends = self.tokenizer.eos_token_ids
        return sorted(token for token in ends if is_token(token, self.profile.vocab_size))

    def plan(self, request: Request) -> Plan | Refusal:
        """Resolve a request without running it: with every reason where it cannot run, taps included."""
        found = negotiate(request, self.profile, self.engine.catalog)
        reasons = self._refused_taps(request.taps)
        if not reasons:
            return found
        return Refusal(self.name, (*(found.reasons if isinstance(found, Refusal) else ()), *reasons))

    def resolve(self, request: Request) -> Plan:
        """The plan of a request. Raises PlanRefused with every reason where it cannot run."""
        plan = self.plan(request)
        if isinstance(plan, Refusal):
            raise plan.error()
        return plan

    def open(self, request: Request) -> Session:
        """A session for a request. Raises PlanRefused with every reason where it cannot run."""
        return Session(self, self.resolve(request), request)

    def start(self, plan: Plan, request: Request) -> Execution:
        """A fresh execution of a plan: what a session drives."""
        scheme = self.engine.scheme(plan)
        return self.engine.method(plan).start(self.graph, scheme, plan, request, self.clock)

    def thaw(self, plan: Plan, request: Request, frozen: Frozen) -> Execution:
        """The execution that was frozen. Raises SessionFailed where it is not of this plan."""
        method = cast(SavingMethod, self.engine.method(plan))
        return method.thaw(self.graph, self.engine.scheme(plan), plan, request, self.clock, frozen)

    def stream(self, request: Request, tokens: tuple[int, ...] = ()) -> TextStream:
        """The text of a completion that has these tokens already."""
        return TextStream.replay(self.tokenizer, tokens, request.stop)

    def identity(self) -> dict[str, Any]:
        """What a saved session says of its model: name, source and fingerprint."""
        source = self.name if self.path is None else str(self.path)
        return {"name": self.name, "source": source, "fingerprint": self.profile.fingerprint}

    def session(self, prompt: str | Sequence[int], **options: Any) -> Session:
        """Open a session on text or token ids. Options are those of `request`; bad ones raise PlanRefused."""
        check_options(options)
        return self.open(self.request(prompt, **options))

    def batch(self, **options: Any) -> Batch:
        """A batch whose sessions share this model's steps; options are those of `Batch` and of `request`."""
        from labkit.engine.batching.batch import Batch

        return Batch(self, **options)

    def _refused_taps(self, taps: Any) -> tuple[Reason, ...]:
        """The layers of which this graph gives no hidden state or attention; wrong values are not judged."""
        if not isinstance(taps, Taps) or self.path is None:
            return ()
        asked = {name: [i for i in getattr(taps, name) if is_whole(i) and i >= 0] for name in TAPPED}
        if not any(asked.values()):
            return ()
        from labkit.model.taps import tappable

        can = tappable(self.graph)
        refused = []
        for name, indices in asked.items():
            known: Sequence[str | None] = getattr(can, name)
            why = {i: known[i] if i < len(known) else f"there are {len(known)} layers" for i in indices}
            got = "; ".join(f"layer {i}: {reason}" for i, reason in why.items() if reason)
            if got:
                refused.append(Reason(f"taps.{name}", f"layers of {self.name} that can be recorded", got))
        return tuple(refused)

    def __repr__(self) -> str:
        p = self.profile
        shape = f"{len(p.layers)} layers {p.dtype} context {p.context_length}"
        return f"<Model {self.name} {p.architecture} {shape}>"


def check_options(options: Iterable[str]) -> None:
    """Raise PlanRefused where one is no option of `Model.request`."""
    known = tuple(name for name in signature(Model.request).parameters if name not in ("self", "prompt"))
    unknown = [name for name in options if name not in known]
    if unknown:
        inside = unknown[0] in {field.name for field in fields(Sampling)}
        step = f"sampling=labkit.Sampling({unknown[0]}=...)" if inside else None
        need = "options of a session were needed"
        raise PlanRefused(need, got=", ".join(unknown), options=known, next_step=step)


def _whole(text: str) -> str:
    """The text, where UTF-8 can write it: a str may hold half a surrogate pair, which is no character."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        got = f"U+{ord(text[error.start]):04X}, half a surrogate pair, at character {error.start}"
        next_step = "text.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace')"
        raise PlanRefused(
            "prompt: text of whole characters is needed", got=got, next_step=next_step
        ) from error
    return text


def _as_id(value: Any) -> Any:
    """An array's element as a plain number; anything else as it is, for the planner to judge."""
    return value.item() if hasattr(value, "item") else value
