"""The options of `labkit bench load`, by the name of what they state."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from labkit.cli.complete import complete_model_names

Model = Annotated[
    str,
    typer.Argument(
        help="A bundled name, a model directory, a .gguf file or a hub id org/name.",
        autocompletion=complete_model_names,
    ),
]
Method = Annotated[str | None, typer.Option("--method", help="The inference method.")]
Policy = Annotated[
    str | None,
    typer.Option("--policy", help="fcfs, shortest-prompt, decode-first, prefill-first or fair."),
]
Cap = Annotated[int | None, typer.Option("--cap", help="Rows at most; 8 if unsaid.")]
KVBudget = Annotated[
    int | None,
    typer.Option("--kv-budget-bytes", help="For the caches of all rows; no limit if unsaid."),
]
Against = Annotated[
    str | None,
    typer.Option(
        "--against",
        help="The arm to measure against, by what it states otherwise: a KV scheme, a policy, a method such "
        "as mlx-lm-batch, or cap=4 and the like, with commas between.",
    ),
]
Clients = Annotated[
    int | None,
    typer.Option("--clients", help="A closed loop: each asks once it was answered; 4 if nothing is said."),
]
Rate = Annotated[
    float | None, typer.Option("--rate", help="An open loop: requests a second on average (Poisson).")
]
Trace = Annotated[
    Path | None,
    typer.Option("--trace", help="An open loop: a .jsonl or .csv of timestamp, prompt_tokens, new_tokens."),
]
Requests = Annotated[
    int | None,
    typer.Option("--requests", help="In all; 4 a client, 16 of an open loop, all of a trace if unsaid."),
]
Prompt = Annotated[
    str | None, typer.Option("--prompt", help="Prompt tokens, or a range such as 64-512; 256 if unsaid.")
]
New = Annotated[str | None, typer.Option("--new", help="New tokens, or a range such as 16-64; 64 if unsaid.")]
TTFTObjective = Annotated[
    float | None,
    typer.Option("--ttft-objective", help="Goodput: seconds to the first token at most."),
]
TPOTObjective = Annotated[
    float | None, typer.Option("--tpot-objective", help="Goodput: seconds a token after it at most.")
]
Pairs = Annotated[
    int | None, typer.Option("--pairs", help="Pairs of visits, 8 if unsaid; without --against visits, 3.")
]
Margin = Annotated[
    float | None, typer.Option("--margin", help="What counts as a difference, such as 0.05; 3% if unsaid.")
]
Seed = Annotated[int, typer.Option("--seed", help="Of lengths, arrivals and token ids.")]
Floor = Annotated[
    bool, typer.Option("--floor/--no-floor", help="Measure the A/A control first where none counts.")
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print JSON: the record, or the figures of one arm alone.")
]
