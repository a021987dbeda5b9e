"""Sampling as data: what it keeps of what it is given, and that records bring it back as it was."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from labkit.core.arm import Arm
from labkit.core.canonical import canonical_json, plain
from labkit.core.sampling import Sampling
from labkit.lab.problems import problems
from labkit.store.read import read_record, read_records
from labkit.store.write import write_record
from tests.unit.null_experiment import null_experiment
from tests.unit.sample_records import KV8, sample_record

FULL = Sampling(
    temperature=0.7,
    top_p=0.95,
    top_k=40,
    min_p=0.05,
    min_tokens_to_keep=2,
    xtc_probability=0.5,
    xtc_threshold=0.2,
    xtc_special_tokens=(2, 0),
    repetition_penalty=1.1,
    repetition_context_size=64,
    presence_penalty=0.3,
    presence_context_size=32,
    frequency_penalty=-0.2,
    frequency_context_size=16,
    logit_bias={7: -10.0, 3: 2.5},
)
COMMITTED = read_records(Path(__file__).parents[2])


def test_the_full_sampling_here_leaves_no_field_at_its_default() -> None:
    assert [f.name for f in fields(FULL) if getattr(FULL, f.name) == getattr(Sampling(), f.name)] == []


def test_an_arm_is_read_back_from_its_json_as_it_was() -> None:
    arm = Arm("smollm2", kv="affine:8", sampling=FULL)
    sent = json.loads(canonical_json(arm.identity()))
    assert sent == arm.identity()
    assert Arm.from_identity(sent) == arm
    assert Arm.from_identity(sent).hash() == arm.hash()


def test_a_record_of_an_arm_with_full_sampling_survives_the_disk(tmp_path: Path) -> None:
    record = sample_record(replace(KV8, candidate=replace(KV8.candidate, sampling=FULL)))
    read = read_record(write_record(record, tmp_path))
    assert read == record
    assert Arm.from_identity(read.arm("candidate").arm).sampling == FULL


@pytest.mark.parametrize("record", COMMITTED.records, ids=lambda r: r.run_id)
def test_arms_of_committed_records_have_the_hashes_they_were_written_with(record: Any) -> None:
    for result in record.arms:
        assert Arm.from_identity(result.arm).hash() == result.arm_hash


def test_there_are_committed_records_to_check_and_none_is_damaged() -> None:
    assert len(COMMITTED.records) >= 5
    assert COMMITTED.damaged == ()


def test_tables_are_kept_sorted_however_they_are_given() -> None:
    kept = ((3, 2.5), (7, -10.0))
    assert FULL.logit_bias == kept
    assert Sampling(logit_bias=[(7, -10.0), (3, 2.5)]).logit_bias == kept
    assert Sampling(logit_bias=cast(Any, [[7, -10], [3, 2.5]])).logit_bias == kept
    assert hash(FULL) == hash(replace(FULL))


def test_numbers_of_array_libraries_are_the_numbers_they_equal() -> None:
    made = Sampling(
        cast(Any, np.float64(0.7)),
        top_k=cast(Any, np.int64(40)),
        xtc_special_tokens=cast(Any, np.array([2, 0])),
        logit_bias=cast(Any, {np.int32(7): np.float32(-0.5)}),
    )
    assert made == Sampling(0.7, top_k=40, xtc_special_tokens=(2, 0), logit_bias={7: -0.5})
    assert canonical_json(plain(made))
    # The f32 next to 0.7 is another number.
    assert Sampling(cast(Any, np.float32(0.7))) != Sampling(0.7)


def test_equal_arms_have_equal_hashes_whether_whole_numbers_or_floats() -> None:
    whole = Arm("x", sampling=Sampling(1, repetition_penalty=2, logit_bias={1: 5}))
    floats = Arm("x", sampling=Sampling(1.0, repetition_penalty=2.0, logit_bias={1: 5.0}))
    assert whole == floats
    assert whole.hash() == floats.hash()


@pytest.mark.parametrize("value", [None, 5, "ab", b"ab", [1, 2], [(1, 2, 3)], [("a", 1), (2, 3)], np.eye(2)])
def test_garbage_is_kept_for_the_planner_to_judge(value: Any) -> None:
    Sampling(temperature=value, logit_bias=value, xtc_special_tokens=value)


def test_labels_tell_arms_apart_by_what_they_sample_with() -> None:
    assert Arm("m", sampling=Sampling(0.8)).label() == "m kv=bf16 T=0.8"
    label = Arm("m", sampling=Sampling(0.8, top_k=20, logit_bias={3: 1.0})).label()
    assert label == "m kv=bf16 T=0.8 top_k=20 logit_bias=<1>"


@pytest.mark.parametrize(
    ("sampling", "words"),
    [
        (Sampling(top_k=cast(Any, "x")), "candidate.sampling.top_k: a finite number is needed, got 'x'"),
        (Sampling(min_p=float("nan")), "candidate.sampling.min_p: a finite number is needed, got nan"),
        (Sampling(logit_bias={1: float("inf")}), "logit_bias: token ids with finite numbers are needed"),
        (Sampling(xtc_special_tokens=cast(Any, [{}])), "xtc_special_tokens: token ids with finite numbers"),
    ],
)
def test_what_no_worker_can_be_sent_is_a_problem_of_the_experiment(sampling: Sampling, words: str) -> None:
    good = null_experiment("null", "null:slowdown=0.8")
    experiment = replace(good, candidate=replace(good.candidate, sampling=sampling))
    assert [words in problem for problem in problems(experiment)] == [True]
