"""The option --kv, as every command has it that runs or plans a model."""

from __future__ import annotations

from typing import Annotated

import typer

from labkit.cli.complete import complete_kv_names

# Square brackets would be markup here.
HELP = (
    "The KV scheme: bf16; affine:<bits>, with /g<group>, /s16 or /start<n> after it; mixed:<file>.json, with "
    "/s16 or /start<n>; or module:Class of one's own."
)
KV = Annotated[str, typer.Option("--kv", help=HELP, autocompletion=complete_kv_names)]
