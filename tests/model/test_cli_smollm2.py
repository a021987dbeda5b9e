"""Experiments that claim quality, run on the bundled model: refused early, or kept when stopped."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest

from labkit.core.events import Event, Progress
from labkit.lab.measuring.run import RunStopped, run
from labkit.store.read import read_records
from tests.unit.command_line import Ended, Running, files, kept_handlers, make_lab

EXPERIMENT = """
from labkit import Arm, Experiment, Hypothesis, ScoreText, Workload
experiment = Experiment(
    "quality", Hypothesis("nobody notices", holds={"kl_mean_nats": 0.01, "decode_tps": 0.1}),
    Arm("smollm2"), Arm("smollm2", kv="affine:8"),
    Workload(8, 3), expires="2099-01-01", score=ScoreText(windows=40, window_tokens=64), pairs=1)
"""


def labkit_run(folder: Path, text: str) -> Ended:
    """Run an experiment in a lab of its own and assert that it leaves nothing there."""
    lab = make_lab(folder / "lab", text)
    ended = Running(folder, "run", lab / "experiments" / "mine.py", "--root", lab).end()
    assert files(lab) == {"experiments/mine.py"}
    return ended


@pytest.mark.usefixtures("smollm2_path")
def test_text_too_short_for_its_windows_is_refused_before_a_visit(tmp_path: Path) -> None:
    ended = labkit_run(tmp_path, EXPERIMENT.replace("windows=40", "windows=4000"))
    message = ended.message()
    assert ended.code == 1
    assert "4000 windows of 64 tokens were needed from the promote half of 'prose'" in message
    assert "ask for fewer or shorter windows" in message
    assert "warm-up" not in ended.err


def test_arms_with_other_tokenizers_are_refused_before_a_visit(tmp_path: Path, smollm2_path: Path) -> None:
    other = swapped_vocabulary(smollm2_path, tmp_path / "other")
    text = EXPERIMENT.replace('Arm("smollm2", kv="affine:8")', f"Arm({str(other)!r})")
    ended = labkit_run(tmp_path, text)
    assert ended.code == 1
    assert "a quality metric compares predictions, so it needs one tokenizer in both arms" in ended.message()
    assert "warm-up" not in ended.err


def swapped_vocabulary(model: Path, target: Path) -> Path:
    """The same weights under a tokenizer in which two words have changed places."""
    target.mkdir()
    for file in model.iterdir():
        if file.suffix == ".safetensors":
            (target / file.name).symlink_to(file)
        elif file.name != "labkit.json":
            shutil.copy(file, target)
    path = target / "tokenizer.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["Ġthe"], vocabulary["Ġof"] = vocabulary["Ġof"], vocabulary["Ġthe"]
    path.write_text(json.dumps(tokenizer), encoding="utf-8")
    return target


@pytest.mark.usefixtures("smollm2_path")
def test_a_run_interrupted_while_it_scores_keeps_visits_and_windows(tmp_path: Path) -> None:
    lab = make_lab(tmp_path / "lab", EXPERIMENT)

    def interrupt(event: Event) -> None:
        if isinstance(event, Progress) and event.task == "score" and event.done == 2:
            signal.raise_signal(signal.SIGINT)

    with kept_handlers():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with pytest.raises(
            RunStopped, match="the run was interrupted; what was measured is kept in"
        ) as ended:
            run(lab / "experiments" / "mine.py", root=lab, sink=interrupt, lease=tmp_path / "lease")
    assert ended.value.exit_code == 130
    (stored,) = read_records(lab).stored
    assert stored.record.state == "partial"
    assert stored.record.provenance["windows_hash"]
    assert len([v for v in stored.record.visits if v.status == "ok"]) == 2
    assert stored.record.quality["windows"] == 2


@pytest.mark.usefixtures("smollm2_path")
def test_a_null_arm_has_no_quality(tmp_path: Path) -> None:
    ended = labkit_run(tmp_path, EXPERIMENT.replace('Arm("smollm2"),', 'Arm("null"),'))
    assert "it needs weights in both arms" in ended.message()
    assert ended.code == 1
