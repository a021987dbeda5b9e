"""Control tokens by what they are called: converters have written some of them as normal tokens.

llama.cpp takes these for control tokens whatever the file says, since a chat does not end otherwise.
"""

from __future__ import annotations

_ENDS = (
    *(
        "<|eot_id|>",
        "<|eom_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<|calls|>",
        "<|flush|>",
    ),
    *("<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<end_of_utterance>", "<eos>", "</s>", "[EOS]"),
    *("<EOT>", "_<EOT>", "[EOT]", "<turn|>", "<|tool_response>", "[e~["),
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
)
_FILL_IN = (
    *(
        "<|fim_prefix|>",
        "<fim-prefix>",
        "<fim_prefix>",
        "<PRE>",
        "\u2581<PRE>",
        "<|code_prefix|>",
        "<|prefix|>",
    ),
    *(
        "<|fim_suffix|>",
        "<fim-suffix>",
        "<fim_suffix>",
        "<SUF>",
        "\u2581<SUF>",
        "<|code_suffix|>",
        "<|suffix|>",
    ),
    *(
        "<|fim_middle|>",
        "<fim-middle>",
        "<fim_middle>",
        "<MID>",
        "\u2581<MID>",
        "<|code_middle|>",
        "<|middle|>",
    ),
    *("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]", "<|fim_repo|>", "<|repo_name|>"),
    *("<fim-repo>", "<REPO>", "<reponame>", "<|file_sep|>"),
    *(f"<\uff5cfim\u2581{part}\uff5c>" for part in ("begin", "hole", "end")),
)

CONTROL_TEXTS = frozenset((*_ENDS, *_FILL_IN))
