"""Workloads of several requests as experiments: run, record, control, resume, and the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from labkit.bench.client import WorkerClient
from labkit.core.arm import Arm, Workload
from labkit.core.errors import ExperimentInvalid, LabkitError, WorkerFailed
from labkit.core.hypothesis import Hypothesis
from labkit.core.records import Record
from labkit.lab.deciding.recorded import differences, misshapen
from labkit.lab.experiment import Experiment, load_experiment
from labkit.lab.loading.against import other_arm
from labkit.lab.loading.alone import load_alone
from labkit.lab.loading.pair import axes_of, load_pair
from labkit.lab.measuring.controls import control_of
from labkit.lab.measuring.plan_run import plan_run
from labkit.lab.measuring.run import run
from labkit.schedule.of_workload import arrivals_of
from labkit.schedule.policies import take_turns
from labkit.schedule.policy import PolicySpec, Work
from labkit.schedule.queue import Queue
from labkit.store import query
from tests.unit.command_line import labkit

NOISY = "null:sd=0.01,noise=independent,prefill_tps=1000,decode_tps=100"
CLIENTS = Workload(300, 16, concurrency=3, requests=6, prompt_tokens_low=100)
METHODS, OWN_WAY = ("autoregressive", "mlx-lm", "mlx-lm-batch", "slowed", "null"), ("mlx-lm-batch",)


def policies(workload: Workload = CLIENTS, **changes: Any) -> Experiment:
    """Rows that decode wait for nobody: a steadier ITL than under fcfs, and later first tokens."""
    experiment = Experiment(
        name="decode-first-at-load",
        hypothesis=Hypothesis("steadier", improves={"itl_p99_s": 0.1}, holds={"ttft_p50_s": 0.1}),
        baseline=Arm(NOISY),
        candidate=Arm(NOISY, policy="decode-first"),
        workload=workload,
        expires="2099-01-01",
        score=None,
        expects={"itl_p99_s": "better", "ttft_p50_s": "worse"},
    )
    return replace(experiment, **changes)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Record]:
    """A lab with one record of two policies under a closed loop."""
    root = tmp_path_factory.mktemp("lab")
    (root / "experiments").mkdir()
    return root, run(policies(), root=root, lease=root / "lease").record


def test_two_policies_end_with_verdicts(lab: tuple[Path, Record]) -> None:
    _, record = lab
    assert (record.outcome, record.state, record.kind) == ("trade-off", "complete", "experiment")
    assert {axis.metric: axis.verdict for axis in record.axes} == record.experiment["expects"]
    assert [arm.plan["serving"]["policy"] for arm in record.arms] == ["fcfs", "decode-first"]
    assert record.arm("candidate").label.endswith("policy=decode-first")
    good = [visit for visit in record.visits if visit.status == "ok"]
    assert len({(v.pair, v.tokens_hash) for v in good}) == record.experiment["pairs"] == 8
    assert not list(misshapen(record))


def test_a_record_is_of_the_experiment_that_it_ran(lab: tuple[Path, Record]) -> None:
    _, record = lab
    again = Record.from_json(json.loads(json.dumps(record.to_json())))
    assert not list(differences(policies(), again))
    changed = policies(replace(CLIENTS, requests=7))
    assert [text.partition(":")[0] for text in differences(changed, again)] == ["workload"]
    old = dict(again.experiment["workload"])
    plain = {name: old[name] for name in ("prompt_tokens", "new_tokens", "concurrency", "seed")}
    written = replace(again, experiment={**again.experiment, "workload": plain})
    assert not list(differences(policies(Workload(**plain)), written))


def test_a_record_is_shown_queried_and_drawn(lab: tuple[Path, Record]) -> None:
    root, record = lab
    shown = labkit("show", record.run_id, "--root", root)
    assert shown.code == 0 and "inter-token latency p99" in shown.out and "aggregate output" in shown.out
    metrics = set(query.sql(root, "select metric from arm_metrics")["metric"])
    assert {"e2e_p99_s", "tpot_p50_s", "request_tps", "rows_mean", "itl_p99_s"} <= metrics
    assert labkit("frontier", "--root", root).code == 0
    labels = set(query.sql(root, "select workload from results")["workload"])
    assert labels == {CLIENTS.label()}
    judged = labkit("history", "aggregate_tps", "--root", root)
    assert CLIENTS.label() in judged.out


def test_a_control_watches_what_the_workload_gives() -> None:
    claim = Hypothesis("same text", holds={"kl_mean_nats": 0.01})
    made = control_of(policies(hypothesis=claim, expects={}), None, 8)
    assert made.hypothesis.holds == {"aggregate_tps": 0.03, "e2e_p50_s": 0.03}
    made.validate()


def test_a_pilot_plans_a_load(tmp_path: Path) -> None:
    planned = plan_run(policies(), root=tmp_path, pilot_pairs=3, lease=tmp_path / "lease")
    assert {axis.metric: axis.claim for axis in planned.axes} == {
        "itl_p99_s": "better",
        "ttft_p50_s": "worse",
    }


def test_a_trace_runs_and_its_record_holds_no_path(tmp_path: Path) -> None:
    trace = tmp_path / "traces" / "day.csv"
    trace.parent.mkdir()
    trace.write_text("timestamp,prompt_tokens,new_tokens\n0,200,8\n0.1,50,4\n0.1,90,8\n5,20,4\n")
    made = policies(Workload(200, 8, arrivals=f"trace:{trace}"), pairs=1)
    record = run(made, root=tmp_path, lease=tmp_path / "lease").record
    assert record.experiment["workload"]["arrivals"] == "trace:day.csv"
    assert str(tmp_path) not in json.dumps(record.to_json())
    assert Workload(**record.experiment["workload"]).hash() == record.workload_hash
    assert not list(differences(made.with_files(), record))
    # 24 tokens over the seconds in which somebody waits, which the 4 s before the last request are not.
    assert record.arm("baseline").metrics["aggregate_tps"].value > 24 / 2


def test_an_experiment_file_whose_trace_is_malformed_does_not_load(tmp_path: Path) -> None:
    (tmp_path / "day.csv").write_text("timestamp,prompt_tokens,new_tokens\n0,200,0\n")
    path = tmp_path / "mine.py"
    path.write_text(
        "from labkit import Arm, Experiment, Hypothesis, Workload\n"
        "experiment = Experiment('mine', Hypothesis('x', holds={'e2e_p50_s': 0.1}), Arm('null'),\n"
        f"    Arm('null', cap=1), Workload(200, 8, arrivals='trace:{tmp_path}/day.csv'),\n"
        "    expires='2099-01-01')"
    )
    with pytest.raises(LabkitError, match=r"day\.csv, line 2: a whole number of at least 1 as new_tokens"):
        load_experiment(path)


def test_a_request_that_never_fits_the_budget_stops_the_run_before_it_begins(tmp_path: Path) -> None:
    small = Arm(NOISY, kv_budget_bytes=1000)
    with pytest.raises(WorkerFailed, match="KV budget"):
        run(policies(candidate=small), root=tmp_path, lease=tmp_path / "lease")
    assert not list(tmp_path.glob("results/*/*.json"))


@pytest.mark.parametrize(
    ("words", "arm"),
    [
        ("affine:8", Arm("m", kv="affine:8", policy="fair", kv_budget_bytes=9)),
        ("decode-first", Arm("m", policy="decode-first", kv_budget_bytes=9)),
        ("mlx-lm-batch", Arm("m", method="mlx-lm-batch")),
        ("mlx-lm-batch, cap=4", Arm("m", method="mlx-lm-batch", cap=4)),
        ("slowed:0.1", Arm("m", method="slowed:0.1", policy="fair", kv_budget_bytes=9)),
        ("model=n,kv=affine:4/g32", Arm("n", kv="affine:4/g32", policy="fair", kv_budget_bytes=9)),
    ],
)
def test_the_other_arm_in_a_few_words(words: str, arm: Arm) -> None:
    assert other_arm(Arm("m", policy="fair", kv_budget_bytes=9), words, METHODS, OWN_WAY) == arm


@pytest.mark.parametrize("words", ["", "bf16", "cap=many", "cup=4", "kv=", "cap=4,cap=5", "fair,policy=fcfs"])
def test_words_that_state_no_other_arm(words: str) -> None:
    with pytest.raises(ExperimentInvalid):
        other_arm(Arm("m"), words, METHODS, OWN_WAY)


FEW = Workload(64, 16, concurrency=2, requests=4)


def test_a_pair_is_judged_on_what_its_load_gives() -> None:
    four = Workload(64, 16, concurrency=4, requests=16)
    assert axes_of(four) == ("aggregate_tps", "aggregate_decode_tps", "ttft_p50_s", "tpot_p50_s", "e2e_p50_s")
    assert axes_of(replace(four, new_tokens=1)) == ("aggregate_tps", "ttft_p50_s", "e2e_p50_s")
    made = load_pair(Arm("org/M", cap=1), Arm("org/M"), replace(four, ttft_objective_s=1.0), 8, margin=0.2)
    made.validate()
    assert re.fullmatch("load-m-[0-9a-f]{6}", made.name)
    # Every question has a name, and so a history, of its own.
    others = [
        load_pair(Arm("org/M", cap=2), Arm("org/M"), four, 8),
        load_pair(Arm("M", cap=1), Arm("M"), FEW, 8),
    ]
    assert len({made.name, *(other.name for other in others)}) == 3
    again = load_pair(Arm("/x/M", cap=1), Arm("/x/M"), replace(four, ttft_objective_s=1.0), 16)
    assert again.name == made.name
    for margin in (0.0, 1.0, 5, float("nan"), True):
        with pytest.raises(ExperimentInvalid, match="margin: a share above 0 and below 1"):
            load_pair(Arm("M", cap=1), Arm("M"), four, 8, margin=margin)
    assert made.hypothesis.statement == "M kv=bf16 serves 64+16 x4 of 16 as M kv=bf16 cap=1 does"
    assert made.hypothesis.holds == {**dict.fromkeys(axes_of(four), 0.2), "goodput_rps": 0.05}


def test_one_arm_alone_gives_figures(tmp_path: Path) -> None:
    found = load_alone(Arm(NOISY), CLIENTS, visits=2, sink=lambda _: None, lease=tmp_path / "lease")
    figures = {figure.metric: figure for figure in found.figures()}
    assert {"ttft_p95_s", "e2e_p99_s", "aggregate_tps"} <= set(figures)
    assert all(f.low <= f.value <= f.high for f in figures.values())
    assert figures["aggregate_tps"].low < figures["aggregate_tps"].high
    assert json.loads(json.dumps(found.to_json()))["figures"]["kv_bytes"]["value"] > 0


def test_the_command_gives_a_table_of_verdicts_or_of_one_arm(tmp_path: Path) -> None:
    load = ("bench", "load", NOISY, "--clients", 2, "--requests", 4, "--prompt", "20-90", "--new", 8)
    alone = labkit(*map(str, (*load, "--pairs", 1)))
    assert alone.code == 0 and "request to last token p99" in alone.out and "--against" in alone.out
    against = labkit(*map(str, (*load, "--against", "cap=1", "--pairs", 1, "--root", tmp_path)))
    assert against.code == 0, against.err
    assert "1 pair" in against.out and "load-null-sd-0-01" in against.out
    (path,) = tmp_path.glob("results/*/*.json")
    record = Record.from_json(json.loads(path.read_text()))
    assert [Arm.from_identity(arm.arm).cap for arm in record.arms] == [1, None]
    assert record.experiment["workload"]["prompt_tokens_low"] == 20


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--clients", "0"), "concurrency: a whole number of at least 1"),
        (("--rate", "0"), "workload.rate_per_s: a number above 0"),
        (("--prompt", "90-20"), "workload.prompt_tokens_low: at most prompt_tokens, 20, is needed"),
        (("--clients", "2", "--rate", "1"), "one way in which requests come is needed"),
        (("--cap", "0"), "cap: a whole number of at least 1"),
        (("--policy", "lifo"), "policy: one of fcfs"),
        (("--kv-budget-bytes", "100"), "KV budget"),
        (("--trace", "none.csv"), "a trace that can be read was needed"),
        (("--kv", "affine:9"), "kv:"),
        (("--against", "fcfs,cap=zero"), "words that state an arm are needed"),
        (("--against", "cap=1", "--margin", "5"), "margin: a share above 0 and below 1"),
        (("--rate", "1e-300"), "workload.rate_per_s: at least"),
        (("--trace", "/dev/null.csv"), "a trace that can be read was needed"),
    ],
)
def test_what_is_wrong_is_one_message(tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    ended = labkit("bench", "load", "null", *options, "--root", tmp_path)
    assert ended.code == 1 and words in ended.message()


class Newest:
    """Last come, first served."""

    SPEC: ClassVar[PolicySpec] = PolicySpec("newest", "the newest request first")

    def admit(self, queue: Queue) -> Sequence[str]:
        return [request.id for request in reversed(queue.waiting)]

    def next(self, queue: Queue) -> Work:
        return take_turns(queue, queue.prefilling)


def test_a_policy_of_ones_own_reaches_the_worker_and_its_text_the_record(tmp_path: Path) -> None:
    own = Arm(NOISY, policy=Newest, cap=1)
    made = policies(candidate=own, baseline=Arm(NOISY, cap=1), pairs=1)
    record = run(made, root=tmp_path, lease=tmp_path / "lease").record
    arm = record.arm("candidate")
    assert arm.plan["serving"]["policy"] == own.policy and "Newest@" in arm.label
    assert "Last come, first served" in arm.arm["classes"][0]["source"]
    assert not list(misshapen(record)) and not list(differences(made, record))


def test_a_load_has_cold_numbers_too(tmp_path: Path) -> None:
    claim = Hypothesis("starts", holds={"cold_start_s": 0.5, "ttft_p50_s": 0.1})
    made = policies(design="fresh", hypothesis=claim, expects={}, pairs=1)
    record = run(made, root=tmp_path, lease=tmp_path / "lease").record
    metrics = record.arm("candidate").metrics
    assert metrics["cold_start_s"].value > metrics["warm_start_s"].value > 0


def test_a_first_visit_has_time_for_all_of_its_requests() -> None:
    """Eight requests have the bound of one, and an open loop that of its last arrival beside it."""
    client = object.__new__(WorkerClient)
    client._longest_visit_s, client._timeout_s = None, 100.0
    late = replace(CLIENTS, concurrency=1, arrivals="poisson", rate_per_s=0.1, requests=9)
    assert (
        client._visit_limit_s(Workload(8, 8)) == client._visit_limit_s(replace(CLIENTS, requests=8)) == 100.0
    )
    assert client._visit_limit_s(replace(CLIENTS, requests=9)) == 200.0
    assert client._visit_limit_s(late) == pytest.approx(200.0 + arrivals_of(late)[-1].at_s)
