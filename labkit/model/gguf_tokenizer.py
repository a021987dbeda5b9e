"""The tokenizer of a GGUF file: tokenizer.json and tokenizer_config.json from its metadata.

Byte-level BPE (`gpt2`) with the pre-tokenizers of PRE_TOKENIZERS; everything else is refused by name, since a
tokenizer that is nearly right is wrong. Source: llama.cpp's `llama-vocab` for what each name means.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from labkit.core.errors import ModelUnavailable

_CONTROL, _USER_DEFINED = 3, 4
_ROLES = {"bos": "bos_token_id", "eos": "eos_token_id", "pad": "padding_token_id", "unk": "unknown_token_id"}


def _smollm() -> Any:
    """Single digits, then GPT-2's pattern on bytes."""
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )


PRE_TOKENIZERS: Mapping[str, Callable[[], Any]] = {"smollm": _smollm}


@dataclass(frozen=True, slots=True)
class TokenizerPlan:
    """A vocabulary as read. types: GGUF token types. roles: `bos`, `eos`, `pad`, `unk` -> id where stated.

    eot: a second end-of-turn id, where the file states one.
    """

    tokens: tuple[str, ...]
    types: tuple[int, ...]
    merges: tuple[tuple[str, str], ...]
    pre: str
    roles: Mapping[str, int]
    eot: int | None
    add_bos: bool
    chat_template: str | None

    def config_ids(self) -> dict[str, Any]:
        """The ids that belong into config.json; `eos_token_id` is a list where there are two."""
        ids: dict[str, Any] = {f"{role}_token_id": i for role, i in self.roles.items() if role != "unk"}
        eos = self.roles.get("eos")
        if eos is not None and self.eot not in (None, eos):
            ids["eos_token_id"] = [eos, self.eot]
        return ids

    def tokens_of(self, kind: int) -> tuple[str, ...]:
        """The tokens of one GGUF token type."""
        return tuple(t for t, k in zip(self.tokens, self.types, strict=True) if k == kind)


def plan_tokenizer(metadata: Mapping[str, Any]) -> TokenizerPlan:
    """Read the vocabulary. Raises ModelUnavailable for an unknown model or pre-tokenizer, by name."""
    prefix = "tokenizer.ggml."
    _require("tokenizer model", metadata.get(f"{prefix}model"), ("gpt2",))
    pre = _require("pre-tokenizer", metadata.get(f"{prefix}pre"), tuple(PRE_TOKENIZERS))
    tokens = tuple(metadata.get(f"{prefix}tokens") or ())
    roles = {r: metadata[prefix + k] for r, k in _ROLES.items() if prefix + k in metadata}
    eot = metadata.get(f"{prefix}eot_token_id")
    types = tuple(metadata.get(f"{prefix}token_type") or (1,) * len(tokens))
    merges = tuple(_merge(m) for m in metadata.get(f"{prefix}merges") or ())
    _check_vocabulary(tokens, types, merges, [i for i in (*roles.values(), eot) if i is not None])
    return TokenizerPlan(
        tokens=tokens,
        types=types,
        merges=merges,
        pre=pre,
        roles=roles,
        eot=eot,
        add_bos=bool(metadata.get(f"{prefix}add_bos_token", False)),
        chat_template=metadata.get("tokenizer.chat_template"),
    )


def build_tokenizer(plan: TokenizerPlan) -> Tokenizer:
    """The tokenizer in memory: control tokens are special, user-defined ones are added but not special."""
    vocab = {token: i for i, token in enumerate(plan.tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=list(plan.merges), fuse_unk=False))
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[plan.pre]()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = _post_processor(plan)
    tokenizer.add_special_tokens([_added(t, True) for t in plan.tokens_of(_CONTROL)])
    tokenizer.add_tokens([_added(t, False) for t in plan.tokens_of(_USER_DEFINED)])
    return tokenizer


def write_tokenizer(plan: TokenizerPlan, folder: Path, context_length: int) -> None:
    """Write tokenizer.json and tokenizer_config.json (with the chat template, where there is one)."""
    build_tokenizer(plan).save(str(folder / "tokenizer.json"))
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context_length,
        "clean_up_tokenization_spaces": False,
        **{f"{role}_token": plan.tokens[i] for role, i in plan.roles.items()},
    }
    if plan.chat_template:
        config["chat_template"] = plan.chat_template
    text = json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False)
    (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")


def _post_processor(plan: TokenizerPlan) -> Any:
    byte_level = processors.ByteLevel(trim_offsets=True)
    if not plan.add_bos or "bos" not in plan.roles:
        return byte_level
    bos = plan.tokens[plan.roles["bos"]]
    template = processors.TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, plan.roles["bos"])]
    )
    return processors.Sequence([byte_level, template])


def _added(token: str, special: bool) -> AddedToken:
    return AddedToken(token, special=special, normalized=False)


def _check_vocabulary(
    tokens: tuple[str, ...], types: tuple[int, ...], merges: tuple[tuple[str, str], ...], ids: list[int]
) -> None:
    known = set(tokens)
    faults = {
        "no tokens": not tokens,
        f"{len(tokens)} tokens, {len(known)} of them different": len(known) < len(tokens),
        f"{len(types)} types for {len(tokens)} tokens": len(types) != len(tokens),
        f"the id {max(ids, default=0)} of {len(tokens)} tokens": any(i >= len(tokens) for i in ids),
        "merges of unknown tokens": any(not {a, b, a + b} <= known for a, b in merges),
    }
    found = [fault for fault, present in faults.items() if present]
    if found:
        raise ModelUnavailable("a consistent vocabulary was needed in the GGUF file", got=found[0])


def _merge(text: str) -> tuple[str, str]:
    left, _, right = text.partition(" ")
    return left, right


def _require(what: str, got: Any, options: tuple[str, ...]) -> str:
    if got not in options:
        raise ModelUnavailable(
            f"a {what} that labkit imports from GGUF was needed",
            got=got or "none stated",
            options=options,
            next_step="use a safetensors version of the model: a directory or a hub id",
        )
    return got
