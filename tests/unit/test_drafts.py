"""Drafts of `labkit new experiment`: clean by the repository's own checks, with a claim one can measure."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import pytest

from labkit.bench.statistics import MIN_UNITS
from labkit.cli.complete import complete_metric_names
from labkit.core.errors import ExperimentInvalid
from labkit.core.metrics import METRICS
from labkit.lab.draft import claimable
from labkit.lab.experiment import load_experiment
from labkit.lab.new import new_experiment
from tests.unit.command_line import files

TODAY = date(2026, 3, 1)
BIN = Path(sys.executable).parent
ROOT = Path(__file__).parents[2]
# A bundled model that no 8-bit KV scheme fits, so that its draft is about prefill chunks.
CHUNKED = "gemma3-270m"


def test_drafts_pass_the_repositorys_own_checks(tmp_path: Path) -> None:
    for name, model, metric in (
        ("null", "null", None),
        ("kv", "smollm2", None),
        ("text", CHUNKED, "ppl_ratio"),
    ):
        new_experiment(tmp_path, name, today=TODAY, model=model, improves=metric)
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    narrowed = re.sub(
        r'^include = \["labkit", .*$', 'include = ["experiments"]', settings, flags=re.MULTILINE
    )
    (tmp_path / "pyproject.toml").write_text(narrowed, encoding="utf-8")
    for name, target in ((".venv", BIN.parent), ("labkit", ROOT / "labkit")):
        (tmp_path / name).symlink_to(target)
    for check in ("ruff format --check --no-cache", "ruff check --no-cache", "pyright"):
        command = [str(BIN / check.split()[0]), *check.split()[1:]]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("model", ["null", "smollm2", CHUNKED])
def test_a_draft_has_pairs_to_spare(tmp_path: Path, model: str) -> None:
    """On a machine that is not quiet a promotion leaves each pair out once."""
    experiment = load_experiment(new_experiment(tmp_path, "any", today=TODAY, model=model).file).experiment
    replace(experiment, pairs=experiment.pairs - 1).validate()
    assert experiment.pairs > MIN_UNITS


def test_another_metric_can_be_claimed(tmp_path: Path) -> None:
    made = new_experiment(tmp_path, "quicker", today=TODAY, model="null", improves="decode_tps")
    hypothesis = load_experiment(made.file).experiment.hypothesis
    assert set(hypothesis.improves) == {"decode_tps"}
    assert "decode_tps" not in hypothesis.holds


@pytest.mark.parametrize("model", ["null", "smollm2", CHUNKED])
def test_whatever_is_offered_can_be_claimed(tmp_path: Path, model: str) -> None:
    offered = complete_metric_names(SimpleNamespace(params={"model": model}), "")  # pyright: ignore[reportArgumentType]
    assert set(offered) == set(claimable(model)) and "decode_tps" in offered
    for metric in offered:
        made = new_experiment(tmp_path, metric.replace("_", "-"), today=TODAY, model=model, improves=metric)
        experiment = load_experiment(made.file).experiment
        assert set(experiment.hypothesis.improves) == {metric}
        assert metric not in experiment.hypothesis.holds
        assert (experiment.score is not None) >= (METRICS[metric].source == "score")


def test_with_weights_every_metric_that_can_be_improved_can_be_claimed() -> None:
    assert set(claimable("smollm2")) == {name for name, row in METRICS.items() if row.scale == "ratio"}


@pytest.mark.parametrize(
    ("metric", "model", "words"),
    [
        ("kl_mean_nats", "smollm2", "is held and not improved|add kl_mean_nats to `holds`"),
        ("top1_agreement", "null", "is held and not improved|add top1_agreement to `holds`"),
        ("peak_bytes", "null", "which a null model does not have|--model a model with weights"),
        ("ppl_ratio", "null", "which a null model does not have|--model a model with weights"),
        ("nonsense", "smollm2", "'nonsense'|artifact_bytes"),
    ],
)
def test_a_claim_that_cannot_be_measured_is_refused(
    tmp_path: Path, metric: str, model: str, words: str
) -> None:
    with pytest.raises(ExperimentInvalid, match="a metric to improve was needed") as refused:
        new_experiment(tmp_path, "quicker", today=TODAY, model=model, improves=metric)
    assert [word for word in words.split("|") if word not in str(refused.value)] == []
    assert files(tmp_path) == set()
