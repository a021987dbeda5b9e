"""The tokenizer of a GGUF file: tokenizer.json and tokenizer_config.json from its metadata.

Exact against llama.cpp by construction, or refused by name, since a tokenizer that is nearly right is wrong.
How text becomes tokens is `byte_level`'s and `pieces`'s.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tokenizers import Tokenizer, processors

from labkit.model.gguf.metadata import refused
from labkit.model.gguf.tokenizer.byte_level import read_byte_level
from labkit.model.gguf.tokenizer.metadata import (
    PREFIX,
    read_choice,
    read_flag,
    read_id,
    refuse_first,
)
from labkit.model.gguf.tokenizer.pieces import read_pieces
from labkit.model.gguf.tokenizer.vocabulary import Vocabulary, read_vocabulary

_ROLES = {
    "bos": "bos_token_id",
    "eos": "eos_token_id",
    "pad": "padding_token_id",
    "unk": "unknown_token_id",
    "sep": "seperator_token_id",  # the specification's own spelling
    "mask": "mask_token_id",
}
_ENDS = ("eot_token_id", "eom_token_id")
_IN_CONFIG = ("bos", "eos", "pad")
_TEMPLATE = "tokenizer.chat_template"


class Algorithm(Protocol):
    """How text becomes tokens, as read from a file."""

    @property
    def add_bos(self) -> bool: ...

    def default_ids(self) -> Mapping[str, int]: ...

    def build(self, vocabulary: Vocabulary) -> Tokenizer: ...

    def post_processors(self) -> list[Any]: ...


_ALGORITHMS: Mapping[str, Callable[[Mapping[str, Any], Vocabulary], Algorithm]] = {
    "gpt2": read_byte_level,
    "llama": read_pieces,
}


@dataclass(frozen=True, slots=True)
class TokenizerPlan:
    """A tokenizer as read. roles: `bos`, `eos`, `pad`, `unk`, `sep`, `mask` -> id, where there is one.

    ends: further ids that end a turn or a message. templates: chat templates by name, `default` among them.
    """

    vocabulary: Vocabulary
    algorithm: Algorithm
    roles: Mapping[str, int]
    ends: tuple[int, ...]
    add_bos: bool
    add_eos: bool
    templates: Mapping[str, str]

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens by id."""
        return self.vocabulary.tokens

    def config_ids(self) -> dict[str, Any]:
        """The ids that belong into config.json; `eos_token_id` is a list where there are several."""
        ids: dict[str, Any] = {f"{r}_token_id": self.roles[r] for r in _IN_CONFIG if r in self.roles}
        eos = list(dict.fromkeys([*([self.roles["eos"]] if "eos" in self.roles else []), *self.ends]))
        if eos:
            ids["eos_token_id"] = eos if len(eos) > 1 else eos[0]
        return ids


def plan_tokenizer(metadata: Mapping[str, Any]) -> TokenizerPlan:
    """Read the tokenizer. Raises ModelUnavailable for what is unknown, by name, and for what is damaged."""
    model = read_choice(metadata, "model", "tokenizer model", tuple(_ALGORITHMS))
    vocabulary = read_vocabulary(metadata)
    algorithm = _ALGORITHMS[model](metadata, vocabulary)
    count = len(vocabulary.tokens)
    stated = {role: read_id(metadata, key, count) for role, key in _ROLES.items()}
    default = {role: i for role, i in algorithm.default_ids().items() if i < count}
    roles = default | {role: i for role, i in stated.items() if i is not None}
    ends = [read_id(metadata, key, count) for key in _ENDS]
    plan = TokenizerPlan(
        vocabulary,
        algorithm,
        roles,
        ends=tuple(i for i in ends if i is not None),
        add_bos=read_flag(metadata, "add_bos_token", algorithm.add_bos),
        add_eos=read_flag(metadata, "add_eos_token", False),
        templates=_templates(metadata),
    )
    for role, added in (("bos", plan.add_bos), ("eos", plan.add_eos)):
        refuse_first(
            {f"no {PREFIX}{role}_token_id, which is added to every text": added and role not in roles}
        )
    return plan


def build_tokenizer(plan: TokenizerPlan) -> Tokenizer:
    """The tokenizer in memory: control tokens are special, user-defined ones are added but not special."""
    tokenizer = plan.algorithm.build(plan.vocabulary)
    steps = [*plan.algorithm.post_processors(), *_frame(plan)]
    if steps:
        tokenizer.post_processor = processors.Sequence(steps) if len(steps) > 1 else steps[0]
    plan.vocabulary.add_to(tokenizer)
    return tokenizer


def write_tokenizer(plan: TokenizerPlan, folder: Path, context_length: int) -> None:
    """Write tokenizer.json and tokenizer_config.json (with the chat templates, where there are some)."""
    build_tokenizer(plan).save(str(folder / "tokenizer.json"))
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context_length,
        "clean_up_tokenization_spaces": False,
        **{f"{role}_token": plan.tokens[i] for role, i in plan.roles.items()},
    }
    if set(plan.templates) == {"default"}:
        config["chat_template"] = plan.templates["default"]
    elif plan.templates:
        config["chat_template"] = [{"name": n, "template": t} for n, t in plan.templates.items()]
    text = json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False)
    (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")


def _frame(plan: TokenizerPlan) -> list[Any]:
    """BOS and EOS around every text, where the file wants them. They are named by role in the template."""
    roles = [role for role, added in (("bos", plan.add_bos), ("eos", plan.add_eos)) if added]
    if not roles:
        return []
    before, after = (["bos"] if plan.add_bos else []), (["eos"] if plan.add_eos else [])
    tokens = [{"id": r, "ids": [plan.roles[r]], "tokens": [plan.tokens[plan.roles[r]]]} for r in roles]
    single, second = [*before, "$A", *after], [*before, "$B", *after]
    return [processors.TemplateProcessing(single=single, pair=[*single, *second], special_tokens=tokens)]


def _templates(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Chat templates by name; the nameless one is `default` and stands first."""
    found = {k: v for k, v in metadata.items() if k == _TEMPLATE or k.startswith(f"{_TEMPLATE}.")}
    for key, value in found.items():
        if not isinstance(value, str):
            raise refused(key, value, ("a text",))
    named = {key.removeprefix(_TEMPLATE).removeprefix(".") or "default": found[key] for key in sorted(found)}
    return {name: text for name, text in named.items() if text}
