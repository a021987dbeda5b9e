"""Draft: a first experiment that already runs, as the text of its file and notebook. Writes nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from labkit.core.metrics import METRICS
from labkit.lab.problems import FRESH_METRICS
from labkit.lab.workload_problems import STEADY, TOGETHER
from labkit.model.null import is_null

# Beyond the 5 to 10% by which pairs vary on a shared machine.
MARGIN = 0.20
# Windows of text, where a draft scores.
WINDOWS = 4
# Clients, where a draft claims what only requests that share a server have.
CLIENTS = 4
_MEMORY = ("peak_bytes", "footprint_bytes")

EXPERIMENT = '''\
"""{name}: say here what the idea is, and why it should work."""

from labkit import {names}

experiment = Experiment(
    name="{name}",
    hypothesis=Hypothesis(
        "{claim}",
        # Metrics to beat and metrics not to lose, each with its margin: 0.2 is 20%.
        improves={improves},
        holds={holds},
    ),
    baseline=Arm({model}),
    candidate=Arm({candidate}),
    workload=Workload(prompt_tokens={prompt_tokens}, new_tokens={new_tokens}{clients}),
    score={score},
    # 8 pairs are the fewest for a verdict; on a busy machine it must stay with any one left out.
    pairs=12,
{design}    # What you expect of each metric, stated before the run: better, worse or equivalent.
    expects={{}},
    expires="{expires}",
)
'''

FRESH = """\
    # A new process for each visit: only that starts cold.
    design="fresh",
"""
INTRODUCTION = """\
# {name}

The experiment of `experiments/{name}.py`: what it claims, what its two arms will run, the paired run, the
verdicts. Edit the file, not this notebook; then run all cells again."""
LOADING = """\
import runpy
from pathlib import Path

import labkit

lab = next(folder for folder in (Path(".."), Path()) if (folder / "experiments").is_dir())
path = lab / "experiments" / "{name}.py"
experiment = runpy.run_path(str(path))["experiment"]
experiment.hypothesis"""
PLANNING = """\
## What will run

The plan of each arm: every setting resolved, what it must be equal to, and what was substituted."""
PLANS = """\
for arm in (experiment.baseline, experiment.candidate):
    plan = labkit.resolve(arm, experiment.workload, root=lab)
    print(f"{arm.label()}\\n{plan.explain()}\\n")"""
RUNNING = """\
## The run

Both arms, each in a process of its own, in pairs of visits; one record is written below `results/`."""
RUN = """\
finished = labkit.run(path, root=lab)
finished"""
READING = """\
## The verdicts

A change is stated for the better, with its 95% interval: above 1 the candidate is better. `unresolved` says
that the interval is too wide for the margin; `labkit plan-run` then says how many pairs it needs."""
VERDICTS = "finished.verdicts()"
DECIDING = """\
## And then

Decide before it expires: `labkit promote {name} --why "..."`, or `labkit delete {name} --why "..."`."""


@dataclass(frozen=True, slots=True)
class Idea:
    """What a draft claims of a model. candidate: how its arm differs. score: windows of text, 0 for none."""

    claim: str
    candidate: Mapping[str, object]
    improves: Mapping[str, float]
    holds: Mapping[str, float]
    prompt_tokens: int = 256
    new_tokens: int = 32
    score: int = 0
    clients: int = 1

    def claiming(self, metric: str) -> Idea:
        """The same arms with another metric to improve, at MARGIN; text is scored and several clients ask
        where that is needed."""
        if metric in self.improves:
            return self
        if metric in (*TOGETHER, STEADY) and self.clients == 1:
            return self._together().claiming(metric)
        holds = {name: margin for name, margin in self.holds.items() if name != metric}
        claim = f"the candidate improves {metric} and holds the rest"
        score = self.score or (WINDOWS if METRICS[metric].source == "score" else 0)
        return replace(self, claim=claim, improves={metric: MARGIN}, holds=holds, score=score)

    def _together(self) -> Idea:
        """With several clients, whose rows have a decode rate in common."""
        holds = {STEADY if name == "decode_tps" else name: margin for name, margin in self.holds.items()}
        return replace(self, holds=holds, clients=CLIENTS)


# The null model's noise is 2% of a visit, so the pairs settle both axes.
NULL = Idea(
    "the candidate halves the bytes of the KV cache at the same speed",
    {"kv_bytes_per_token": 32},
    improves={"kv_bytes": 0.4},
    holds={"decode_tps": 0.1},
    prompt_tokens=64,
)
KV8 = Idea(
    "8-bit KV frees memory at 256 tokens of context and nobody notices",
    {"kv": "affine:8"},
    improves={"kv_bytes": 0.4},
    holds={"decode_tps": MARGIN, "kl_mean_nats": 0.01},
    score=WINDOWS,
)
# For models whose layers no 8-bit scheme fits: any model reads its prompt in chunks.
CHUNK = Idea(
    "prefill chunks of 512 tokens read the prompt faster than the default and harm nothing",
    {"prefill_chunk": 512},
    improves={"prefill_tps": MARGIN},
    holds={"decode_tps": MARGIN},
    prompt_tokens=1024,
)


def claimable(model: str) -> tuple[str, ...]:
    """The metrics that a draft on this model can claim: every ratio, of a null model those of its visits."""
    ratios = (metric for metric in METRICS.values() if metric.scale == "ratio")
    null = is_null(model)
    return tuple(m.name for m in ratios if not null or (m.source == "visit" and m.name not in _MEMORY))


@dataclass(frozen=True, slots=True)
class Draft:
    """An idea on a model under a name, until `expires`. The texts are made on demand."""

    name: str
    model: str
    expires: date
    idea: Idea = field(default=KV8)

    def experiment(self) -> str:
        """The experiment file: formatted as `ruff format` would, and valid as it stands."""
        idea = self.idea
        imports = ("Arm", "Experiment", "Hypothesis", *(("ScoreText",) if idea.score else ()), "Workload")
        return EXPERIMENT.format(
            name=self.name,
            names=", ".join(imports),
            claim=idea.claim,
            improves=_table(idea.improves),
            holds=_table(idea.holds),
            model=_literal(self.model),
            candidate=self._candidate(),
            prompt_tokens=idea.prompt_tokens,
            new_tokens=idea.new_tokens,
            clients=f", concurrency={idea.clients}" if idea.clients > 1 else "",
            score=f"ScoreText(windows={idea.score})" if idea.score else "None",
            design=FRESH if set(idea.improves) & set(FRESH_METRICS) else "",
            expires=self.expires.isoformat(),
        )

    def notebook(self) -> str:
        """The notebook as JSON: public API only, no outputs, cells of at most ten lines."""
        texts = (
            *((INTRODUCTION, "markdown"), (LOADING, "code"), (PLANNING, "markdown"), (PLANS, "code")),
            *((RUNNING, "markdown"), (RUN, "code"), (READING, "markdown"), (VERDICTS, "code")),
            (DECIDING, "markdown"),
        )
        cells = [_cell(i, text.replace("{name}", self.name), kind) for i, (text, kind) in enumerate(texts)]
        kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
        metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
        data = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
        return json.dumps(data, indent=1, ensure_ascii=False) + "\n"

    def _candidate(self) -> str:
        """The arguments of the candidate's arm: a null model's settings are part of its name."""
        given = self.idea.candidate.items()
        if is_null(self.model):
            settings = ",".join(f"{key}={value}" for key, value in given)
            return _literal(f"{self.model}{',' if ':' in self.model else ':'}{settings}")
        return ", ".join([_literal(self.model), *(f"{key}={_literal(value)}" for key, value in given)])


def _table(margins: Mapping[str, float]) -> str:
    return "{" + ", ".join(f'"{metric}": {margin:g}' for metric, margin in margins.items()) + "}"


def _literal(value: object) -> str:
    """A value as Python writes it, with the quotes that `ruff format` prefers."""
    return json.dumps(value, ensure_ascii=False)


def _cell(number: int, text: str, kind: str) -> dict[str, Any]:
    lines = text.splitlines(keepends=True)
    cell = {"cell_type": kind, "id": f"cell-{number:02}", "metadata": {}, "source": lines}
    return {**cell, "execution_count": None, "outputs": []} if kind == "code" else cell
