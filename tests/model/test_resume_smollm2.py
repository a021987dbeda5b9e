"""A real run that is killed while it scores: the windows that were scored are kept, to the last bit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from labkit.lab.measuring.restored import restore
from labkit.store.journal import journal_files, journals_folder, read_entries
from labkit.store.read import read_records
from tests.unit.command_line import until

WINDOWS = 24
EXPERIMENT = """
from labkit import Arm, Experiment, Hypothesis, ScoreText, Workload
experiment = Experiment(
    "kv8-small",
    Hypothesis("kv8", {{"kv_bytes": 0.4}}, {{"kl_mean_nats": 0.01}}),
    Arm({model!r}), Arm({model!r}, kv="affine:8"), Workload(40, 4), expires="2099-01-01", pairs=1,
    score=ScoreText({text!r}, windows={windows}, window_tokens=32))
"""
LINE = "The harbour was quiet and the lamps were lit. " * 40


def test_a_killed_score_goes_on_with_the_next_window(smollm2_path: Path, tmp_path: Path) -> None:
    lab, text = tmp_path / "lab", tmp_path / "harbour.md"
    (lab / "experiments").mkdir(parents=True)
    text.write_text("\n\n".join(f"Chapter {i}. {LINE}" for i in range(16)))
    file = lab / "experiments" / "kv8.py"
    file.write_text(EXPERIMENT.format(model=str(smollm2_path), text=str(text), windows=WINDOWS))
    command = [sys.executable, "-m", "labkit.cli.main", "run", str(file), "--root", str(lab)]
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: _scored(lab) >= 3 or process.poll() is not None, 120)
    workers = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGKILL)
    process.wait()
    psutil.wait_procs(workers, timeout=10)
    (journal,) = journal_files(lab)
    before = restore(read_entries(journal), journal.name).findings.scores
    assert 3 <= len(before) < WINDOWS
    done = subprocess.run([*command, "--resume"], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (record,) = read_records(lab).records
    assert (record.state, record.resumed[0]["pairs"]) == ("complete", 1)
    assert record.quality["windows"] == WINDOWS
    means = [sum(score.kl_nats) / len(score.kl_nats) for score in before]
    # The same numbers went through JSON; only the order of the summation may differ.
    kept = record.quality["window_kl_nats"][: len(before)]
    assert all(abs(a - b) <= 1e-12 * max(abs(a), 1e-9) for a, b in zip(kept, means, strict=True))
    assert list(journals_folder(lab).iterdir()) == [], "the scratch folder of the killed run is gone too"
    assert len([v for v in record.visits if v.status == "ok"]) == 2, "no visit is made again"


def _scored(lab: Path) -> int:
    time.sleep(0.02)
    return sum(path.read_bytes().count(b'"kind":"score"') for path in journal_files(lab))
