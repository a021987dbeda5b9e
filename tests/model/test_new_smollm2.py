"""What `labkit new experiment` writes for the bundled model runs, and so does its notebook."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date
from pathlib import Path

from labkit.lab.new import new_experiment


def test_the_draft_and_its_notebook_run(smollm2_path: Path, tmp_path: Path) -> None:
    made = new_experiment(tmp_path, "first-try", today=date(2099, 1, 1))
    # As drafted it takes minutes; one pair on less work runs every part of it.
    text = made.file.read_text(encoding="utf-8")
    for drafted, quick in (
        ("pairs=12", "pairs=1"),
        ("=256", "=32"),
        ("windows=4", "windows=1, window_tokens=32"),
    ):
        assert text.count(drafted) == 1, drafted
        text = text.replace(drafted, quick)
    made.file.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", str(made.notebook)]
    done = subprocess.run(
        [*command, "--output-dir", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (path,) = (tmp_path / "results").glob("*/*-first-try-*.json")
    record = json.loads(path.read_text(encoding="utf-8"))
    assert record["state"] == "complete"
    assert [arm["plan"]["kv"] for arm in record["arms"]] == ["bf16", "affine:8"]
    assert all(axis["n"] for axis in record["axes"])
    shown = json.dumps(json.loads((tmp_path / "first-try.ipynb").read_text(encoding="utf-8")))
    assert "affine:8" in shown and "kl_mean_nats" in shown
