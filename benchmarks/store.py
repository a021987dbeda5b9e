"""Times of the store at scale: rebuild, refresh for one more record, and the frontier's query.

    python benchmarks/store.py [--records 100000] [--keep FOLDER]

Makes records of two arms with ten metrics each and 18 visits in a temporary folder, on two machines, from
20 sorts of experiment and code, without fsync. Refresh and query are the least of three.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from labkit.core.arm import Arm, Workload
from labkit.core.metrics import METRICS
from labkit.core.records import ArmResult, AxisResult, Estimate, Record, VisitResult
from labkit.lab.reading.standings import open_lab
from labkit.store.index import rebuild, refresh
from labkit.store.query import database_path, frontier_points

RECORDS, MACHINES, SORTS, PAIRS, TEXTS = 100_000, 2, 20, 8, 40
VISIT_METRICS = [name for name, metric in METRICS.items() if metric.source == "visit"][:8]
ARM_METRICS = [*VISIT_METRICS, "kl_mean_nats", "artifact_bytes"]
# A number that no record holds by itself; every record puts numbers of its own in its place.
HOLE = 987654.5


def main() -> None:
    """Make the records where there are none, then measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--keep", type=Path, help="a folder to make the records in, or to use them from")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="labkit-store-") as folder:
        root = chosen.keep or Path(folder)
        if not (root / "results").exists():
            made_s, _ = _timed(lambda: make_lab(root, chosen.records))
            _say(f"{chosen.records} records made in {made_s:.0f} s")
        report(root)


def report(root: Path) -> None:
    """Measure and print a row per time."""
    database = database_path(root)
    rows = []
    rebuild_s, index = _timed(lambda: rebuild(root, database))
    rows.append(("rebuild", rebuild_s, f"{index.records} records, {len(index.damaged)} damaged"))
    rows.append(("refresh, one more record", min(_refreshed(root, n) for n in range(3)), "least of 3"))
    query_s, frame = _least(lambda: frontier_points(root))
    rows.append(("frontier_points, current index", query_s, f"{len(frame)} rows, least of 3"))
    judged_s, count = _least(lambda: _judged(root))
    rows.append(("SELECT * FROM frontier", judged_s, f"{count} points, least of 3"))
    for name, seconds, note in rows:
        _say(f"{name:<32}{seconds:>8.3f} s  {note}")
    _say(f"{'database':<32}{database.stat().st_size / 2**20:>8.1f} MiB")


def make_lab(root: Path, count: int) -> None:
    """`count` records from a few templates, each with its own numbers, name and time."""
    templates = [_template(sort) for sort in range(TEXTS)]
    for machine in range(MACHINES):
        (root / "results" / f"machine-{machine}").mkdir(parents=True)
    for number in range(count):
        _write(root, number, *templates[number % TEXTS])


def _write(root: Path, number: int, parts: list[str], folder: str) -> None:
    source = random.Random(number)
    numbers = (repr(round(source.gauss(1.0, 0.02) * 20, 14)) for _ in range(len(parts) - 1))
    text = "".join(part + value for part, value in zip(parts, [*numbers, ""], strict=True))
    hours, seconds = divmod(number, 3600)
    days, hours = divmod(hours, 24)
    started = f"2026-11-{days + 1:02}T{hours:02}:{seconds // 60:02}:{seconds % 60:02}Z"
    run_id = f"run-{number:08}"
    path = root / "results" / folder / f"{run_id}.json"
    path.write_text(text.replace("@run", run_id).replace("@at", started), encoding="utf-8")


def _refreshed(root: Path, number: int) -> float:
    _write(root, 10**7 + number + int(time.time()) % 10**6, *_template(number))
    seconds, index = _timed(lambda: refresh(root, database_path(root)))
    assert index.rebuilt
    return seconds


def _judged(root: Path) -> int:
    with open_lab(root, "SELECT * FROM frontier") as connection:
        return len(connection.execute("SELECT * FROM frontier").fetchall())


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    found = work()
    return time.perf_counter() - started, found


def _least(work: Callable[[], Any]) -> tuple[float, Any]:
    return min((_timed(work) for _ in range(3)), key=lambda each: each[0])


def _template(sort: int) -> tuple[list[str], str]:
    """The text of a record between its numbers, and its machine's folder."""
    text = json.dumps(asdict(_record(sort)), indent=2, sort_keys=True)
    return text.split(repr(HOLE)), f"machine-{sort % MACHINES}"


def _record(sort: int) -> Record:
    workload = Workload(256 * (1 + sort % 4), 64)
    baseline, candidate = Arm("smollm2"), Arm("smollm2", kv=("affine:8", "affine:4")[sort % 2])
    goals = {"improves": {"kv_bytes": 0.4}, "holds": {"decode_tps": 0.03, "kl_mean_nats": 0.01}}
    return Record(
        run_id="@run",
        kind="experiment",
        state="complete",
        started_at="@at",
        ended_at="@at",
        outcome="trade-off",
        experiment={
            "name": f"experiment-{sort % SORTS}",
            "statement": "8-bit KV frees memory and nobody notices",
            **goals,
            "expects": {},
            "workload": workload.identity(),
            "expires": "2027-02-01",
            "score": {"name": "prose", "split": "promote", "windows": 16, "window_tokens": 512},
            "pairs": PAIRS,
            "planned_pairs": PAIRS,
            "seed": 0,
            "source_hash": "5f0c2d1e9b8a7766",
        },
        workload_hash=workload.hash(),
        machine={
            "slug": f"machine-{sort % MACHINES}",
            "backend": "cpu",
            "chip": "generic",
            "cores": 2,
            "memory_gib": 24.0,
            "os": "linux",
            "arch": "x86_64",
            "blas": "mkl",
        },
        provenance={
            "labkit_version": "0.1.0",
            "code_hash": f"c0de{sort % SORTS:012}",
            "git_revision": "55772b6",
            "git_dirty": False,
            "python": "3.11.9",
            "packages": {"mlx": "0.32.4", "mlx-lm": "0.32.2"},
            "text_hash": "7e87",
            "windows_hash": "promote-16x512",
        },
        arms=(_arm("baseline", baseline, baseline), _arm("candidate", candidate, baseline)),
        visits=tuple(_visit(index) for index in range(2 * PAIRS + 2)),
        axes=tuple(_axis(metric, goal) for goal, metrics in goals.items() for metric in metrics),
        quality={"kl_mean_nats": HOLE, "tokens": 8192},
        quiet={"quiet": True, "reasons": []},
    )


def _arm(role: Any, arm: Arm, reference: Arm) -> ArmResult:
    artifact = {"name": "smollm2", "family": "smollm2-135m", "fingerprint": "f1f2f3f4", "dtype": "float32"}
    counted = {"artifact_bytes": 538_060_800, "parameters": 134_515_008, "effective_bpw": 32.0}
    metrics = {name: Estimate(HOLE, HOLE, HOLE, PAIRS, "visit") for name in ARM_METRICS}
    return ArmResult(
        role=role,
        label=arm.label(),
        arm=arm.identity(),
        arm_hash=arm.hash(),
        plan={"kv": arm.kv, "method": "autoregressive", "prefill_chunk": 256, "refusals": []},
        plan_hash=f"plan-{arm.hash()}",
        artifact={**artifact, **counted},
        metrics=metrics,
        reference_hash=reference.hash(),
    )


def _visit(index: int) -> VisitResult:
    role = ("baseline", "candidate", "candidate", "baseline")[index % 4]
    return VisitResult(
        index=index,
        pair=index // 2 - 1,
        role=role,
        status="warmup" if index < 2 else "ok",
        started_s=12.5 * index,
        metrics=dict.fromkeys(VISIT_METRICS, HOLE),
        prefill_seconds=(0.9,),
        decode_seconds=(0.05,) * 4,
        decode_tokens=(1,) * 4,
        tokens_hash="ab12",
        quiet={"quiet": True, "reasons": []},
    )


def _axis(metric: str, goal: Any) -> AxisResult:
    scale = METRICS[metric].scale
    return AxisResult(
        *(metric, goal, 0.03, scale, HOLE, HOLE, HOLE, PAIRS, "pair", 0.002, 0.006, "equivalent")
    )


if __name__ == "__main__":
    main()
