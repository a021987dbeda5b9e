"""Every reason why a record does not carry a promotion, in words; one that is misshapen by its field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from labkit.core.arm import Arm, Workload
from labkit.core.records import Record
from labkit.lab.deciding.recorded import misshapen
from labkit.store.write import write_record
from tests.unit.decided_lab import (
    CANDIDATE,
    CODE,
    NAME,
    RUN_ID,
    open_lab,
    record_of,
    refusal,
    rejudged,
    unquiet,
    with_axis,
)
from tests.unit.sample_records import from_elsewhere, with_candidate

pytestmark = pytest.mark.usefixtures("sample_code")


BUSY = {"name": "busy_cores", "available": True, "value": 1.0, "limit": 0.2, "ok": False, "advice": "stop"}
REASONS: dict[str, tuple[Callable[[Record], Record], str]] = {
    "partial": (
        lambda r: replace(r, state="partial"),
        f"- record: a complete one is needed, got {RUN_ID}, which is partial; labkit run experiments/",
    ),
    "unresolved": (
        lambda r: with_axis(r, "kl_mean_nats", verdict="unresolved", notes=("3 windows",)),
        "- kl_mean_nats: a verdict is needed, got unresolved (3 windows); labkit plan-run says the pairs",
    ),
    "undecided": (
        lambda r: replace(r, outcome="undecided"),
        "- outcome: supported is needed, got undecided",
    ),
    "failed": (lambda r: replace(r, outcome="failed"), "- outcome: supported is needed, got failed"),
    "other code": (
        lambda r: from_elsewhere(r, code_hash="0ther"),
        f"- code: a record of the checked-out code {CODE} is needed, got 0ther; labkit run exp",
    ),
    "edited file": (
        lambda r: replace(r, experiment={**r.experiment, "source_hash": "beef"}),
        "is needed, got one of beef, before it changed; labkit run experiments/null-ab.py",
    ),
    "notebook": (
        lambda r: replace(r, experiment={**r.experiment, "source_hash": ""}),
        "- file: an experiment that lives in a file is needed, got one that was run from a notebook",
    ),
    "class of a notebook": (
        lambda r: with_candidate(r, plan={"sampler": "__main__.Mine"}),
        "- candidate: classes that live in a file are needed, got one of a notebook in its plan",
    ),
    "class of a notebook in the settings of the candidate": (
        lambda r: with_candidate(r, arm=replace(CANDIDATE, method="__main__.Mine").identity()),
        "- candidate: classes that live in a file are needed, got one of a notebook in its plan",
    ),
    "class of a notebook in the baseline": (
        lambda r: replace(r, arms=(replace(r.arms[0], plan={"sampler": "__main__.Mine"}), r.arms[1])),
        "- baseline: classes that live in a file are needed, got one of a notebook in its plan",
    ),
    "a visit that measured nothing": (
        lambda r: replace(
            r, visits=tuple(replace(v, metrics={**v.metrics, "kv_bytes": 0}) for v in r.visits)
        ),
        "- visits: numbers that carry the verdicts are needed, got positive values of kv_bytes were needed",
    ),
    "a visit without a metric": (
        lambda r: replace(r, visits=tuple(replace(v, metrics={"kv_bytes": 1}) for v in r.visits)),
        "- visits: numbers that carry the verdicts are needed, got 'decode_tps'",
    ),
    "tune": (
        lambda r: replace(
            r, experiment={**r.experiment, "score": {**r.experiment["score"], "split": "tune"}}
        ),
        "- score: text of the split `promote` is needed, got `tune`, which was looked at while tuning",
    ),
    "a recipe in the candidate": (
        lambda r: with_candidate(r, arm={**r.arm("candidate").arm, "recipe": "auto"}),
        "- candidate: an arm that states what it runs is needed, got one with a recipe",
    ),
    "an outcome that its axes do not say": (
        lambda r: replace(r, outcome="trade-off"),
        "- visits: the outcome is trade-off in the record, and its axes say supported",
    ),
    "an axis taken out": (
        lambda r: replace(r, axes=r.axes[:1]),
        "- visits: the axes of the hypothesis are improves kv_bytes 0.4, holds decode_tps 0.2, holds kl_mean",
    ),
    "no axes": (lambda r: replace(r, axes=()), "0.001, and the record has none"),
    "a margin that the hypothesis does not state": (
        lambda r: with_axis(r, "kv_bytes", margin=0.001),
        "and the record has improves kv_bytes 0.001, holds",
    ),
    "another goal": (
        lambda r: with_axis(r, "decode_tps", goal="improves"),
        "and the record has improves kv_bytes 0.4, improves decode_tps 0.2",
    ),
    "margins edited in hypothesis and axis": (
        lambda r: rejudged(replace(r, experiment={**r.experiment, "improves": {"kv_bytes": 0.3}})),
        "improves: {'kv_bytes': 0.3} was measured, and the file states {'kv_bytes': 0.4}",
    ),
    "an interval of the score that its windows do not give": (
        lambda r: with_axis(r, "kl_mean_nats", low=0.5, high=0.9, estimate=0.7),
        "- visits: estimate of kl_mean_nats is 0.7 in the record, and its windows say 0.0002",
    ),
    "windows beyond the margin": (
        lambda r: replace(r, quality={"window_kl_nats": [0.5, 0.9] * 8}),
        "- visits: kl_mean_nats is equivalent in the record, and its windows say worse",
    ),
    "windows taken out": (
        lambda r: replace(r, quality={}),
        "- visits: numbers that carry the verdicts are needed, got 'window_kl_nats'",
    ),
    "an estimate that the visits do not give": (
        lambda r: with_axis(r, "kv_bytes", estimate=9.0),
        "- visits: estimate of kv_bytes is 9 in the record, and its visits say 2.5",
    ),
    "quiet against its visits": (
        lambda r: replace(unquiet(r), quiet={"quiet": True}),
        "- quiet: true in the record, and its probes say foreign_cpu up to 1.20 in 3 of 20 visits",
    ),
    "quiet against the marks of its visits": (
        lambda r: replace(r, visits=tuple(replace(v, quiet={"quiet": False}) for v in r.visits)),
        "- quiet: true in the record, and its probes say 20 of 20 visits not marked as quiet",
    ),
    "quiet against its standing probes": (
        lambda r: replace(r, quiet={"quiet": True, "standing": [BUSY]}),
        "- quiet: true in the record, and its probes say busy_cores 1.00 beyond 0.20 before the run (stop)",
    ),
    **{
        f"the split {split!r}": (
            lambda r, split=split: replace(
                r, experiment={**r.experiment, "score": {**r.experiment["score"], "split": split}}
            ),
            f"score.split: one of tune, promote is needed, got {split!r}",
        )
        for split in ("Tune", "tune ", "")
    },
    "another statement": (
        lambda r: replace(r, experiment={**r.experiment, "statement": "all else"}),
        "statement: 'all else' was measured, and the file states 'less memory at hardly any cost'",
    ),
    "another workload": (
        lambda r: replace(r, experiment={**r.experiment, "workload": Workload(64, 17).identity()}),
        "'new_tokens': 17",
    ),
    "another seed": (
        lambda r: replace(r, experiment={**r.experiment, "seed": 3}),
        "seed: 3 was measured, and the file states 0",
    ),
    "another model": (
        lambda r: with_candidate(r, arm=Arm("smollm2").identity()),
        "candidate.model: smollm2 was measured, and the file states null:kv_bytes_per_token=40",
    ),
    "another setting": (
        lambda r: with_candidate(r, arm=replace(CANDIDATE, prefill_chunk=7).identity()),
        "chunk=7 was measured, and the file states",
    ),
    "a verdict that the visits do not carry": (
        lambda r: with_axis(r, "decode_tps", verdict="better"),
        "- visits: decode_tps is better in the record, and its visits say equivalent",
    ),
}


@pytest.mark.parametrize("case", REASONS)
def test_what_speaks_against_a_record_is_said(case: str, tmp_path: Path) -> None:
    lab = open_lab(tmp_path)
    change, words = REASONS[case]
    write_record(change(record_of(lab)), lab)
    message = refusal(lab)
    assert message.startswith("null-ab cannot be promoted:\n- ")
    assert words in message


def test_every_reason_is_listed_at_once(tmp_path: Path) -> None:
    lab = open_lab(tmp_path)
    record = record_of(lab)
    for case in ("partial", "unresolved", "failed", "other code", "notebook", "class of a notebook", "tune"):
        record = REASONS[case][0](record)
    write_record(REASONS["a recipe in the candidate"][0](record), lab)
    # A partial record's visits are not judged.
    assert refusal(lab, why="  ").count("\n- ") == 9


MISSHAPEN: dict[str, tuple[Callable[[Record], Record], str]] = {
    "workload": (
        lambda r: replace(r, experiment={**r.experiment, "workload": {"prompt_tokens": -1, "new_tokens": 1}}),
        "- record.experiment.workload.prompt_tokens: a whole number of at least 1 is needed, got -1",
    ),
    "half a workload": (
        lambda r: replace(r, experiment={**r.experiment, "workload": {"prompt_tokens": 1}}),
        "- record.experiment.workload: counts of tokens are needed, got ",
    ),
    "no experiment": (
        lambda r: replace(r, experiment={"name": NAME}),
        "- record.experiment.statement: str is",
    ),
    "artifact": (
        lambda r: with_candidate(r, artifact={}),
        "- record.arms.candidate.artifact.family: a text is needed, got None",
    ),
    "an arm missing": (
        lambda r: replace(r, arms=r.arms[:1]),
        "- record.arms: one baseline and one candidate are needed, got baseline",
    ),
    "an arm of numbers": (
        lambda r: with_candidate(r, arm=7),
        "- record.arms.candidate.arm: the settings of an arm are needed, got ",
    ),
    "goal": (
        lambda r: with_axis(r, "kv_bytes", goal="nope"),
        "- record.axes[0].goal: one of improves, holds",
    ),
    "metric": (
        lambda r: replace(r, axes=(replace(r.axes[0], metric="nope"), *r.axes[1:])),
        "- record.axes[0].metric: one of prefill_tps",
    ),
    "p": (lambda r: with_axis(r, "kv_bytes", p_value=None), "- record.axes[0].p_value: a finite number is"),
    "visit": (
        lambda r: replace(r, visits=(replace(r.visits[0], metrics={"kv_bytes": "x"}), *r.visits[1:])),
        "- record.visits[0].metrics: finite numbers are needed",
    ),
    "quiet": (lambda r: replace(r, quiet={"quiet": "yes"}), "- record.quiet.quiet: true or false is needed"),
    "outcome": (lambda r: replace(r, outcome=["supported"]), "- record.outcome: a text is needed"),
}


@pytest.mark.parametrize("case", MISSHAPEN)
def test_a_misshapen_record_is_refused_by_its_field(case: str, tmp_path: Path) -> None:
    lab = open_lab(tmp_path)
    change, words = MISSHAPEN[case]
    record = change(record_of(lab))
    write_record(record, lab)
    assert any(f"- {text}".startswith(words) for text in misshapen(record))
    # What the index cannot hold either is named as damaged.
    message = refusal(lab)
    assert words in message or "- records: whole ones are needed, got results/" in message
