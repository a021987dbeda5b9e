"""The A/A floor: what it is, which control gives it, and what verdicts make of it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from labkit.bench.floor import Spread, biases, floors, spread
from labkit.bench.statistics import walsh_interval
from labkit.core.arm import Arm
from labkit.core.events import Note
from labkit.core.hypothesis import Hypothesis
from labkit.core.records import Record
from labkit.lab.measuring import settle_floor
from labkit.lab.measuring.controls import control, control_of
from labkit.lab.measuring.course import Edge
from labkit.lab.measuring.findings import Findings, new_journal_id
from labkit.lab.measuring.floor import DECISIVE, Floor, find_floor, floor_of
from labkit.lab.measuring.provenance import machine_class, packages, provenance
from labkit.lab.measuring.run import as_file, run
from labkit.model.backend import prepare
from tests.unit.null_experiment import null_experiment

NOISY = "null:sd=0.05,noise=independent,kv_bytes_per_token=100"


@pytest.fixture
def lease(tmp_path: Path) -> Path:
    return tmp_path / "device.lock"


def test_a_spread_is_the_interval_of_log_ratios_or_of_differences() -> None:
    first, second = [10.0, 10.2, 9.9, 10.1], [10.1, 10.0, 10.0, 10.1]
    found = spread("decode_tps", first, second)
    assert found is not None
    assert (found.low, found.high) == walsh_interval(np.log(second) - np.log(first))
    found = spread("compile_s", [0.1, -0.2], [0.2, 0.1])
    assert found is not None
    assert found.estimate == pytest.approx(0.2)
    assert spread("decode_tps", [1.0, 0.0], [1.0, 1.0]) is None, "no ratio of nothing"


def test_chance_shrinks_with_the_pairs_and_a_bias_does_not() -> None:
    chance, bias = Spread(0.01, -0.03, 0.05), Spread(0.04, 0.02, 0.06)
    at = floors({"decode_tps": chance, "prefill_tps": bias}, pairs=8, now=32)
    assert at["decode_tps"] == pytest.approx(math.expm1(0.04 / 2))
    assert at["prefill_tps"] == pytest.approx(math.expm1(0.06))
    known = biases({"decode_tps": chance, "prefill_tps": bias, "ttft_s": Spread(-0.04, -0.06, -0.02)})
    assert known == {"decode_tps": 0.0, "prefill_tps": at["prefill_tps"], "ttft_s": at["prefill_tps"]}


def test_a_control_is_kept_as_one_and_gives_the_floor_of_the_next_run(tmp_path: Path, lease: Path) -> None:
    experiment = null_experiment(NOISY)
    aa = control(experiment, root=tmp_path, lease=lease).record
    assert (aa.kind, aa.state) == ("control", "complete")
    assert aa.arm("baseline").arm_hash == aa.arm("candidate").arm_hash
    record = run(experiment, root=tmp_path, lease=lease).record
    assert record.floor["run_id"] == aa.run_id
    floor = floor_of(aa)
    assert floor is not None
    decode = next(axis for axis in record.axes if axis.metric == "decode_tps")
    assert decode.floor == pytest.approx(floor.at(8)["decode_tps"])
    assert record.kind == "experiment"


def test_equal_arms_are_not_equivalent_below_what_equal_arms_differ_by(tmp_path: Path, lease: Path) -> None:
    """A margin of 1% cannot be held by arms whose own A/A lies 5% apart."""
    quiet = "null:sd=0.001,noise=independent,kv_bytes_per_token=100"
    claim = Hypothesis("no slower", holds={"decode_tps": 0.01})
    experiment = null_experiment(quiet, quiet + ",slowdown=1.0001", hypothesis=claim)
    assert run(experiment, root=tmp_path, lease=lease).record.axes[0].verdict == "equivalent"
    made = control_of(replace(experiment, baseline=Arm(quiet)), None, 8)
    aa = run(made, root=tmp_path, lease=lease)
    spread_apart(aa.path)
    record = run(experiment, root=tmp_path, lease=lease).record
    assert record.axes[0].floor > 0.01
    assert record.axes[0].verdict == "unresolved"
    assert any("A/A floor" in note for note in record.axes[0].notes)


def spread_apart(path: Path) -> None:
    """Make the record of a control one whose arms differed by about 5%, one way and the other."""
    data = json.loads(path.read_text())
    for visit in data["visits"]:
        if visit["role"] == "candidate" and visit["pair"] >= 0:
            visit["metrics"]["decode_tps"] *= 1.05 if visit["pair"] % 2 else 1 / 1.05
    path.write_text(json.dumps(data))


def sought(root: Path, record: Record, now: datetime, **changes: Any) -> Floor | None:
    experiment = null_experiment(NOISY)
    asked = {
        "arm_hash": record.arm("baseline").arm_hash,
        "machine": record.machine["slug"],
        "packages": packages(),
    }
    return find_floor(root, experiment, now=now, **{**asked, **changes})


def test_which_control_counts(tmp_path: Path, lease: Path) -> None:
    aa = control(null_experiment(NOISY), root=tmp_path, lease=lease).record
    now = datetime.now(UTC)
    found = sought(tmp_path, aa, now)
    assert found is not None
    assert (found.run_id, found.stale) == (aa.run_id, "")
    assert sought(tmp_path, aa, now, machine="another") is None
    assert sought(tmp_path, aa, now, arm_hash="another") is None
    old = sought(tmp_path, aa, now + timedelta(days=31))
    assert old is not None and old.stale == "it is 31 days old"
    newer = sought(tmp_path, aa, now, packages={**packages(), "mlx": "9.9"})
    assert newer is not None and newer.stale.startswith("it was measured with mlx ")
    other = sought(tmp_path, aa, now, fingerprint="another")
    assert other is not None and other.stale == "it was measured on another artifact of that name"
    assert sought(tmp_path, aa, now, fingerprint=aa.arm("baseline").artifact["fingerprint"]) == found
    ahead = sought(tmp_path, aa, now - timedelta(days=2))
    assert ahead is not None and ahead.stale.startswith("it was measured in the future")


@pytest.mark.parametrize("package", DECISIVE)
def test_every_version_that_decides_makes_a_control_stale(tmp_path: Path, lease: Path, package: str) -> None:
    aa = control(null_experiment(NOISY), root=tmp_path, lease=lease).record
    found = sought(tmp_path, aa, datetime.now(UTC), packages={**packages(), package: "0.0"})
    assert found is not None and found.stale.startswith(f"it was measured with {package} ")


@pytest.mark.parametrize(
    "damage",
    [
        {"started_at": "2026-11-30T01:00:00"},
        {"started_at": "yesterday"},
        {"provenance": {"code_hash": "c0de"}},
        {"provenance": {"code_hash": "c0de", "packages": []}},
    ],
)
def test_a_damaged_control_is_passed_over(tmp_path: Path, lease: Path, damage: dict[str, Any]) -> None:
    done = control(null_experiment(NOISY), root=tmp_path, lease=lease)
    data = json.loads(done.path.read_text())
    data.update(damage)
    done.path.write_text(json.dumps(data))
    assert sought(tmp_path, done.record, datetime.now(UTC)) is None
    assert run(null_experiment(NOISY), root=tmp_path, lease=lease).record.floor == {}


def test_a_quiet_control_counts_before_a_newer_noisy_one(tmp_path: Path, lease: Path) -> None:
    quiet, noisy = (control(null_experiment(NOISY), root=tmp_path, lease=lease) for _ in range(2))
    for done, is_quiet in ((quiet, True), (noisy, False)):
        data = json.loads(done.path.read_text())
        data["quiet"]["quiet"] = is_quiet
        done.path.write_text(json.dumps(data))
    found = sought(tmp_path, quiet.record, datetime.now(UTC))
    assert found is not None
    assert (found.run_id, found.quiet) == (quiet.record.run_id, True)


def test_the_newest_of_equal_controls_counts(tmp_path: Path, lease: Path) -> None:
    start = datetime.now(UTC)
    clock = [start]
    both = []
    for _ in range(2):
        both.append(control(null_experiment(NOISY), root=tmp_path, lease=lease, now=lambda: clock[0]).record)
        clock[0] += timedelta(minutes=1)
    found = sought(tmp_path, both[0], start + timedelta(hours=1))
    assert found is not None and found.run_id == both[1].run_id


def test_where_none_is_known_it_is_measured_once_and_when_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in for the control's run: a real one needs weights."""
    monkeypatch.setattr(settle_floor, "is_null", lambda model: False)
    monkeypatch.setattr(settle_floor, "_in_records", lambda arm, edge: arm)
    experiment, notes, ran = null_experiment(NOISY), [], []

    def measure(made: Any) -> Record:
        ran.append(made)
        return run(made, root=tmp_path, lease=tmp_path / "lease").record

    def settle(now: datetime, measured: Any = measure) -> Floor | None:
        edge = Edge(
            tmp_path, lambda e: notes.append(e.text) if isinstance(e, Note) else None, lambda: now, {}
        )
        findings = Findings(
            as_file(experiment),
            now,
            8,
            provenance(tmp_path),
            machine_class(prepare()),
            new_journal_id("x", now),
        )
        return settle_floor.settle_floor(findings, edge, measured)

    now = datetime.now(UTC)
    assert settle(now, None) is None
    assert notes[-1].startswith("no A/A control of this baseline and workload counts (none is known")
    first, again = settle(now), settle(now)
    assert first is not None and again is not None
    assert (len(ran), again.run_id) == (1, first.run_id)
    settle(now + timedelta(days=40))
    assert len(ran) == 2
    assert "the last one is stale: it is " in notes[-1]


def test_a_control_and_a_short_run_rest_on_no_floor(tmp_path: Path, lease: Path) -> None:
    control(null_experiment(NOISY), root=tmp_path, lease=lease)
    assert run(null_experiment(NOISY), root=tmp_path, lease=lease, pairs=2).record.floor == {}
    assert control(null_experiment(NOISY), root=tmp_path, lease=lease).record.floor == {}
