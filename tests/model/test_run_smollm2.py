"""A real experiment from file to record with quality: small, for what it is made of, not for its verdicts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from labkit.core.arm import Arm, Workload
from labkit.core.errors import SessionFailed
from labkit.core.hypothesis import Hypothesis
from labkit.engine.logits import session_logits
from labkit.engine.model import Model
from labkit.kv.affine import Affine
from labkit.lab.experiment import Experiment, ScoreText
from labkit.lab.measuring.run import run
from labkit.model.windows import Windows
from labkit.store.read import read_record

LINE = "The harbour was quiet and the lamps were lit. " * 12
TEXT = "\n\n".join(f"Chapter {i}. {LINE}" for i in range(16))


@pytest.fixture(scope="module")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "harbour.md"
    path.write_text(TEXT)
    return path


def test_a_real_run_measures_every_axis_and_names_no_place(
    smollm2_path: Path, text_file: Path, tmp_path: Path
) -> None:
    hypothesis = Hypothesis("kv8", {"kv_bytes": 0.4}, {"kl_mean_nats": 0.01, "decode_tps": 0.03})
    experiment = Experiment(
        "kv8-small",
        hypothesis,
        Arm(str(smollm2_path)),
        Arm(str(smollm2_path), kv="affine:8"),
        Workload(40, 4),
        expires="2099-01-01",
        score=ScoreText(str(text_file), windows=4, window_tokens=32),
    )
    done = run(experiment, root=tmp_path, pairs=2, lease=tmp_path / "lease.lock")
    record = read_record(done.path)
    assert record == done.record
    baseline, candidate = record.arm("baseline"), record.arm("candidate")
    assert (baseline.arm["model"], record.experiment["score"]["name"]) == ("smollm2", "harbour.md")
    assert candidate.reference_hash == baseline.arm_hash == Arm("smollm2").hash()
    assert {a.metric: a.verdict for a in record.axes}["kl_mean_nats"] == "equivalent"
    assert baseline.metrics["kl_mean_nats"].value == 0
    assert 0 < candidate.metrics["kl_mean_nats"].value < 0.01
    assert baseline.metrics["kv_bytes"].value / candidate.metrics["kv_bytes"].value == pytest.approx(32 / 9)
    assert baseline.artifact["effective_bpw"] == 32.0
    assert candidate.plan["cache_layout"] == ["QuantizedKVCache(bits=8, group_size=64)"] * 30
    written = done.path.read_text()
    for private in (str(smollm2_path.parent), str(tmp_path), str(text_file.parent)):
        assert private not in written


def test_a_scheme_that_does_not_settle_is_not_scored(smollm2: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scored without its scheme, a candidate would look perfect."""
    monkeypatch.setattr(Affine, "settle", lambda self, caches: None)
    windows = Windows.cut(tuple(range(100, 132)), window_tokens=32)
    with pytest.raises(SessionFailed, match="layer 0 should hold QuantizedKVCache"):
        list(session_logits(smollm2, "affine:4").scored_logits(windows[0]))


def test_a_fresh_process_for_each_visit_scores_the_same_text_alike(
    smollm2_path: Path, text_file: Path, tmp_path: Path
) -> None:
    """One process at a time, as a model needs of which two do not fit; the same windows, the same KL."""
    claim = Hypothesis("kv8", holds={"kl_mean_nats": 0.01, "cold_start_s": 9.0})
    experiment = Experiment(
        "kv8-fresh",
        claim,
        Arm(str(smollm2_path)),
        Arm(str(smollm2_path), kv="affine:8"),
        Workload(40, 4),
        expires="2099-01-01",
        score=ScoreText(str(text_file), windows=4, window_tokens=32),
        design="fresh",
    )
    lease = tmp_path / "lease.lock"
    fresh = run(experiment, root=tmp_path, pairs=1, lease=lease).record
    pair = replace(
        experiment, design="process-pair", hypothesis=Hypothesis("kv8", holds={"kl_mean_nats": 0.01})
    )
    together = run(pair, root=tmp_path, pairs=1, lease=lease).record
    assert fresh.quality["window_kl_nats"] == together.quality["window_kl_nats"]
    visit = next(v for v in fresh.visits if v.status == "ok")
    assert visit.metrics["cold_start_s"] > visit.metrics["load_s"] > visit.metrics["warm_start_s"] > 0


def test_a_record_says_whose_bits_each_arm_equals(smollm2_path: Path, tmp_path: Path) -> None:
    claim = Hypothesis("kv8", improves={"kv_bytes": 0.4})
    arms = Arm(str(smollm2_path)), Arm(str(smollm2_path), kv="affine:8")
    experiment = Experiment("kv8-parity", claim, *arms, Workload(40, 4), expires="2099-01-01", score=None)
    record = run(experiment, root=tmp_path, pairs=1, lease=tmp_path / "lease.lock").record
    assert record.parity["baseline"]["equals"] == ["mlx-lm kv=bf16"]
    assert record.parity["candidate"]["equals"] == ["mlx-lm kv=affine:8"]
    assert record.parity["candidate"]["oracles"]["baseline"]["logprobs_equal"] is False
