"""The option --kv, as every command has it that runs or plans a model."""

from __future__ import annotations

from typing import Annotated

import typer

from labkit.cli.complete import complete_kv_names

HELP = (
    "The KV scheme: bf16, affine:<bits>[/g<group>][/s16][/start<n>], mixed:<file>.json[/s16][/start<n>], "
    "or module:Class of one's own."
)
KV = Annotated[str, typer.Option("--kv", help=HELP, autocompletion=complete_kv_names)]
