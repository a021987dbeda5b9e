"""A noisy visit is made again up to a bound, then it counts and is labelled; none is dropped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from labkit.bench.quiet import Probe, visit_probes
from labkit.lab.measuring.measured import Measured, made_again
from labkit.lab.measuring.run import run
from tests.unit.null_experiment import null_experiment


@pytest.fixture
def lease(tmp_path: Path) -> Path:
    return tmp_path / "device.lock"


def noisy_at(monkeypatch: pytest.MonkeyPatch, numbers: Any) -> None:
    """Make the visits of these numbers, warm-ups counted, noisy."""
    made: list[int] = []
    busy = Probe("foreign_cpu_share", True, 0.5, 0.1, False, "stop what else uses it", within=False)

    def probes(*args: Any) -> tuple[Probe, ...]:
        made.append(len(made))
        return (busy,) if made[-1] in numbers else visit_probes(*args)

    monkeypatch.setattr("labkit.lab.measuring.measure.visit_probes", probes)


def test_a_noisy_visit_is_made_again_at_once_and_kept(
    tmp_path: Path, lease: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noisy_at(monkeypatch, {3, 4, 10})
    record = run(null_experiment(), root=tmp_path, lease=lease).record
    noisy = [v for v in record.visits if v.status == "noisy"]
    assert [v.index for v in noisy] == [3, 4, 10]
    for visit in noisy:
        after = record.visits[visit.index + 1]
        assert (after.role, after.pair) == (visit.role, visit.pair)
        assert visit.metrics, "what was measured is kept"
    assert len([v for v in record.visits if v.status == "ok"]) == 16
    assert record.quiet["made_again"] == 3
    assert not any("foreign_cpu_share" in reason for reason in record.quiet["reasons"])
    assert made_again(Measured(list(record.visits))) == "3 noisy visits were made again"


def test_a_machine_that_is_never_quiet_is_labelled(
    tmp_path: Path, lease: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noisy_at(monkeypatch, range(1000))
    record = run(null_experiment(), root=tmp_path, lease=lease).record
    assert record.quiet["made_again"] == 4, "a quarter of 16 visits, and no more"
    assert len([v for v in record.visits if v.status == "ok"]) == 16
    assert record.quiet["quiet"] is False
    assert "foreign_cpu_share up to 0.50 in 16 of 16 visits" in record.quiet["reasons"]


def test_one_long_disturbance_leaves_some_for_the_next(
    tmp_path: Path, lease: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noisy_at(monkeypatch, {2, 3, 4, 5, 12})
    record = run(null_experiment(), root=tmp_path, lease=lease).record
    marked = {v.index: v.status for v in record.visits if not v.quiet["quiet"]}
    # The first visit is made three times, of which the last one counts; so does what follows it.
    assert marked == {2: "noisy", 3: "noisy", 4: "ok", 5: "noisy", 12: "noisy"}
    assert record.quiet["made_again"] == 4


def test_what_was_measured_never_decides_what_is_made_again(tmp_path: Path, lease: Path) -> None:
    """Outliers of a steady machine stay: only probes can call a visit noisy."""
    arm = "null:sd=0.02,noise=outliers,kv_bytes_per_token="
    record = run(null_experiment(f"{arm}100", f"{arm}40"), root=tmp_path, lease=lease).record
    assert [v.status for v in record.visits if v.pair >= 0] == ["ok"] * 16
