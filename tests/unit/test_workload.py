"""Workloads and arms: hashes that stay what they were, labels, and every contradiction in one message."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from labkit.core.arm import Arm, Workload
from labkit.core.errors import ExperimentInvalid
from labkit.core.hypothesis import Hypothesis
from labkit.core.records import Record
from labkit.lab.experiment import Experiment
from labkit.lab.loading.asked import workload_of
from labkit.lab.workload_problems import (
    ALONE,
    GOODPUT,
    STEADY,
    TOGETHER,
    metric_problems,
    why_not_measured,
    workload_problems,
)
from labkit.schedule.of_workload import arrivals_of, with_trace
from labkit.schedule.trace import TraceInvalid
from tests.unit.null_experiment import null_experiment

LAB = Path(__file__).parents[2]
TRACE = """\
{"timestamp": 0, "prompt_tokens": 9, "new_tokens": 4}
{"timestamp": 2, "prompt_tokens": 5, "new_tokens": 2}
"""
FOUR = Workload(256, 64, concurrency=4)
OPEN = Workload(256, 64, arrivals="poisson", rate_per_s=2.0, requests=16)


def test_hashes_of_what_was_there_before_stay() -> None:
    """As computed before a workload could be more than one request, or an arm state a policy."""
    hashes = (Arm("smollm2").hash(), Arm("smollm2", kv="affine:8").hash(), Workload(256, 32).hash())
    assert hashes == ("14ac50cba3457151", "2c3da33e1f049cf6", "46808ddc70d1bb04")
    assert Workload(256, 32, 4, 1).hash() == "f25f26c888a5d45f"


def test_the_committed_records_are_of_the_same_arms_and_workloads() -> None:
    found = [p for p in (LAB / "results").glob("*/*.json") if p.parent.name != "verified"]
    for path in found:
        record = Record.from_json(json.loads(path.read_text()))
        assert Workload(**record.experiment["workload"]).hash() == record.workload_hash
        assert [Arm.from_identity(arm.arm).hash() for arm in record.arms] == [a.arm_hash for a in record.arms]
    assert found


@pytest.mark.parametrize(
    ("workload", "label"),
    [
        (Workload(256, 64), "256+64"),
        (FOUR, "256+64 x4"),
        (replace(FOUR, requests=4), "256+64 x4"),
        (replace(FOUR, requests=16, prompt_tokens_low=64), "64-256+64 x4 of 16"),
        (OPEN, "256+64 at 2/s of 16"),
        (Workload(9, 4, arrivals="trace:/tmp/there/day.jsonl"), "9+4 day.jsonl"),
    ],
)
def test_labels(workload: Workload, label: str) -> None:
    assert workload.label() == label
    assert Workload(**workload.identity()) == workload


@pytest.mark.parametrize(
    "stated", [{"policy": "fcfs"}, {"cap": 1}, {"kv_budget_bytes": 10**6}, {"policy": "fair", "cap": 2}]
)
def test_an_arm_that_says_how_requests_share_is_another_arm(stated: dict[str, Any]) -> None:
    arm = Arm("smollm2", **stated)
    assert arm.batches and not Arm("smollm2").batches
    assert arm.hash() != Arm("smollm2").hash()
    assert Arm.from_identity(json.loads(json.dumps(arm.identity()))) == arm
    assert all(f"{value}" in arm.label() for value in stated.values())


def test_a_trace_is_known_by_its_text_wherever_it_lies(tmp_path: Path) -> None:
    hashes = []
    for folder in ("a", "b"):
        path = tmp_path / folder / "day.jsonl"
        path.parent.mkdir()
        path.write_text(TRACE)
        found = with_trace(Workload(9, 4, arrivals=f"trace:{path}"))
        assert [a.at_s for a in arrivals_of(found)] == [0.0, 2.0]
        hashes.append(found.hash())
        path.write_text(TRACE.replace("2,", "3,"))
        with pytest.raises(ExperimentInvalid, match=r"the trace day\.jsonl that the workload was made with"):
            arrivals_of(found)
    assert (
        len(set(hashes)) == 1 != len({hashes[0], with_trace(Workload(9, 4, arrivals=f"trace:{path}")).hash()})
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prompt_tokens": 8}, "workload.prompt_tokens: at least 9 are needed"),
        ({"new_tokens": 3}, "workload.new_tokens: at least 4 are needed"),
        ({"requests": 3}, "workload.requests: at most the 2 of its trace are possible"),
    ],
)
def test_a_trace_that_asks_for_more_than_is_stated(
    tmp_path: Path, changes: dict[str, int], words: str
) -> None:
    path = tmp_path / "day.jsonl"
    path.write_text(TRACE)
    with pytest.raises(ExperimentInvalid) as refused:
        with_trace(replace(Workload(9, 4, arrivals=f"trace:{path}"), **changes))
    assert words in str(refused.value)


def test_a_trace_of_years_or_of_a_pipe_is_refused(tmp_path: Path) -> None:
    far, pipe = tmp_path / "far.csv", tmp_path / "pipe.jsonl"
    far.write_text("timestamp,prompt_tokens,new_tokens\n0,4,4\n1e308,4,4\n")
    with pytest.raises(ExperimentInvalid, match="a trace of at most 86,400 seconds"):
        with_trace(Workload(4, 4, arrivals=f"trace:{far}"))
    assert with_trace(Workload(4, 4, arrivals=f"trace:{far}", requests=1)).trace_sha256
    os.mkfifo(pipe)
    with pytest.raises(TraceInvalid, match="a folder or device"):
        with_trace(Workload(4, 4, arrivals=f"trace:{pipe}"))


WRONG: Mapping[str, Workload] = {
    "workload.concurrency: a whole number of at least 1": Workload(8, 8, concurrency=0),
    "workload.requests: at least one for each of 4 clients": Workload(8, 8, concurrency=4, requests=3),
    "workload.requests: a whole number of at least 1 or None": replace(FOUR, requests=0),
    "workload.requests: at most 100000": replace(FOUR, requests=10**6),
    "workload.requests: how many requests come in all": replace(OPEN, requests=None),
    "workload.rate_per_s: a number above 0": replace(OPEN, rate_per_s=0),
    "workload.rate_per_s: how many requests come in a second": replace(OPEN, rate_per_s=None),
    "workload.rate_per_s: None is needed unless arrivals are 'poisson'": replace(FOUR, rate_per_s=2.0),
    "workload.rate_per_s: at least": replace(OPEN, rate_per_s=1e-9),
    "workload.concurrency: 1 is needed where requests come by themselves": replace(OPEN, concurrency=2),
    "workload.arrivals: 'closed', 'poisson' or": replace(FOUR, arrivals="bursts"),
    "workload.arrivals: 'closed', 'poisson' or 'trace": replace(FOUR, arrivals="trace:"),
    "workload.prompt_tokens_low: at most prompt_tokens, 256, is needed": replace(FOUR, prompt_tokens_low=257),
    "workload.new_tokens_low: a whole number of at least 1": replace(FOUR, new_tokens_low=0),
    "workload.ttft_objective_s: a number above 0": replace(FOUR, ttft_objective_s=-1.0),
    "workload.tpot_objective_s: None is needed for a lone request": Workload(8, 8, tpot_objective_s=1.0),
    "workload.new_tokens_low: None is needed, since a trace": Workload(
        8, 8, arrivals="trace:x.csv", new_tokens_low=2
    ),
}


@pytest.mark.parametrize("words", WRONG)
def test_a_contradiction_is_found_before_anything_runs(words: str) -> None:
    found = list(workload_problems(WRONG[words]))
    assert len(found) == 1 and words in found[0]
    with pytest.raises(ExperimentInvalid) as refused:
        null_experiment(workload=WRONG[words], hypothesis=Hypothesis("x", holds={"kv_bytes": 0.1})).validate()
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({"cap": 0}, "candidate.cap: a whole number of at least 1 or None is needed, got 0"),
        ({"cap": True}, "candidate.cap: a whole number"),
        ({"kv_budget_bytes": -1}, "candidate.kv_budget_bytes: a whole number of at least 1"),
        ({"policy": "lifo"}, "candidate.policy: one of fcfs, shortest-prompt, decode-first"),
    ],
)
def test_an_arm_that_cannot_share_is_refused(stated: dict[str, Any], words: str) -> None:
    with pytest.raises(ExperimentInvalid) as refused:
        _with(FOUR, {"kv_bytes": 0.1}, **stated).validate()
    assert words in str(refused.value)


def _with(workload: Workload, holds: Mapping[str, float], **stated: Any) -> Experiment:
    candidate = Arm("null", **(stated or {"policy": "fcfs"}))
    claim = Hypothesis("x", holds=holds)
    return replace(null_experiment("null", workload=workload, hypothesis=claim), candidate=candidate)


@pytest.mark.parametrize(
    ("metric", "workload", "words"),
    [
        *((metric, FOUR, "a workload of one request") for metric in ALONE),
        *(
            (metric, Workload(8, 8), "a workload of several requests")
            for metric in (*TOGETHER, STEADY, GOODPUT)
        ),
        (STEADY, OPEN, "a closed loop of requests of equal lengths"),
        (STEADY, replace(FOUR, new_tokens_low=8), "a closed loop of requests of equal lengths"),
        (GOODPUT, FOUR, "an objective (ttft_objective_s, tpot_objective_s)"),
        ("tpot_p50_s", replace(FOUR, new_tokens_low=1), "at least 2 are needed to measure 'tpot_p50_s'"),
        (STEADY, replace(FOUR, new_tokens=2), "at least 3 are needed to measure 'aggregate_decode_tps'"),
    ],
)
def test_a_metric_that_a_workload_does_not_give_is_refused(
    metric: str, workload: Workload, words: str
) -> None:
    with pytest.raises(ExperimentInvalid) as refused:
        _with(workload, {metric: 0.1}).validate()
    assert words in str(refused.value)


@pytest.mark.parametrize("workload", [FOUR, replace(FOUR, ttft_objective_s=0.5), OPEN, Workload(8, 8)])
def test_what_is_given_is_let_through(workload: Workload) -> None:
    every = (*ALONE, *TOGETHER, STEADY, GOODPUT)
    given = {metric: 0.1 for metric in every if why_not_measured(metric, workload) is None}
    assert not list(metric_problems(workload, given))
    assert bool(set(given) & set(ALONE)) != bool(set(given) & set(TOGETHER))


def test_a_load_as_a_person_states_it() -> None:
    assert workload_of() == Workload(256, 64, concurrency=4, requests=16)
    assert workload_of(rate=2.0, prompt="64-512", new="8") == Workload(
        512, 8, arrivals="poisson", rate_per_s=2.0, requests=16, prompt_tokens_low=64
    )
    found = workload_of(clients=2, requests=3, ttft_objective_s=0.5, seed=7)
    assert (found.concurrency, found.requests, found.ttft_objective_s, found.seed) == (2, 3, 0.5, 7)


def test_a_trace_brings_its_own_lengths(tmp_path: Path) -> None:
    path = tmp_path / "day.jsonl"
    path.write_text(TRACE)
    found = workload_of(trace=path)
    assert (found.prompt_tokens, found.new_tokens, found.concurrency, found.requests) == (9, 4, 1, None)
    assert workload_of(trace=path, requests=1).count == 1
    with pytest.raises(ExperimentInvalid, match="no lengths are needed beside a trace"):
        workload_of(trace=path, prompt="8")


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({"clients": 2, "rate": 1.0}, "one way in which requests come is needed"),
        ({"prompt": "many"}, "prompt: a number of tokens, or the least and the most"),
        ({"new": "8-"}, "new: a number of tokens, or the least and the most"),
    ],
)
def test_a_load_that_says_two_things_or_none(stated: dict[str, Any], words: str) -> None:
    with pytest.raises(ExperimentInvalid, match=words):
        workload_of(**stated)


def test_a_trace_that_is_none_is_refused_when_the_experiment_is_taken(tmp_path: Path) -> None:
    made = _with(Workload(9, 4, arrivals=f"trace:{tmp_path / 'none.csv'}"), {"kv_bytes": 0.1})
    made.validate()
    with pytest.raises(TraceInvalid, match="a trace that can be read was needed"):
        made.with_files()
