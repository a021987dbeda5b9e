"""What a record tells beside its axes has to follow from what it holds: looks, A/A floor, parity, quality."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from labkit.bench.floor import floors, spread
from labkit.core.metrics import METRICS
from labkit.core.records import Record
from labkit.lab.deciding.following import unfollowed
from labkit.lab.deciding.recorded import misshapen
from labkit.lab.deciding.rejudging import judged_at, planned
from labkit.lab.deciding.situation import look
from labkit.lab.deciding.sturdiness import contradictions
from labkit.model.quality import WindowScore, summarize
from tests.unit.decided_lab import SUPPORTED, rejudged, with_visits_failed
from tests.unit.sample_records import APART, EQUAL, sample_record

SCORES = [
    WindowScore((1e-4 * (n + 1), 3e-4), (2.0, 2.5), (2.0 + 1e-4 * n, 2.5), (True, n > 1)) for n in range(16)
]
FOUND = spread("decode_tps", [100.0 + n for n in range(8)], [100.0 + (n * 3) % 8 for n in range(8)])
PARITY = {"candidate": {"equals": ["baseline"], "oracles": {"baseline": EQUAL}, "prompt_tokens": 64}}


def made(pairs: int = 16, looks: int = 2) -> Record:
    """A complete record whose every part follows from the others; all looks were taken."""
    assert FOUND is not None
    record = sample_record(SUPPORTED, pairs=pairs)
    floor = floors({"decode_tps": FOUND}, 8, pairs)["decode_tps"]
    ends = {"estimate": FOUND.estimate, "low": FOUND.low, "high": FOUND.high, "floor": floor}
    record = replace(
        record,
        experiment={**record.experiment, "looks": looks},
        quality=summarize(SCORES).to_json(),
        parity=PARITY,
        floor={"run_id": "x", "started_at": "", "pairs": 8, "metrics": {"decode_tps": ends}},
    )
    due = planned(record)
    record = replace(record, looks=tuple({"pairs": n} for n in due))
    return rejudged(replace(record, looks=tuple(_told(record, n) for n in range(looks))))


def _told(record: Record, number: int) -> dict[str, Any]:
    due = planned(record)
    axes = [a for a in judged_at(record, number) if METRICS[a.metric].source == "visit"]
    verdicts, stopped = {a.metric: a.verdict for a in axes}, number == len(due) - 1
    return {
        "pairs": due[number],
        "planned": due[number],
        "alpha": axes[0].alpha,
        "verdicts": verdicts,
        "stopped": stopped,
    }


RECORD = made(looks=1)


def looked(**changes: Any) -> Record:
    return replace(RECORD, looks=({**RECORD.looks[0], **changes},))


def asked(**changes: Any) -> Record:
    return replace(RECORD, experiment={**RECORD.experiment, **changes})


def scored(**changes: Any) -> Record:
    kept = {name: value for name, value in {**RECORD.quality, **changes}.items() if value != "gone"}
    return replace(RECORD, quality=kept)


def equal_to(equals: list[str], compared: dict[str, Any]) -> Record:
    candidate = {**PARITY["candidate"], "equals": equals, "oracles": {"baseline": compared}}
    return replace(RECORD, parity={"candidate": candidate})


def floored(**changes: Any) -> Record:
    known = {**RECORD.floor["metrics"]["decode_tps"], **changes}
    return replace(RECORD, floor={**RECORD.floor, "metrics": {"decode_tps": known}})


def test_a_record_whose_parts_follow_contradicts_nothing() -> None:
    assert list(misshapen(RECORD)) == [] == list(contradictions(RECORD))


EDITS: dict[str, tuple[Record, str]] = {
    "planned": (looked(planned=17), "planned of look 1 is 17 in the record, and 16 follows"),
    "alpha": (looked(alpha=0.04), "alpha of look 1 is 0.04 in the record, and 0.05 follows"),
    "verdicts": (looked(verdicts={"kv_bytes": "better"}), "verdicts of look 1 is {'kv_bytes': 'better'}"),
    "stopped": (looked(stopped=False), "the last look did not stop the run"),
    "pairs of a look": (looked(pairs=15), "the last look is after 15 pairs in the record, and 16 are good"),
    "fewer than planned": (looked(pairs=15), "look 1 is after 15 pairs in the record, planned 16, and no v"),
    "pairs asked for": (asked(pairs=20), "planned of look 1 is 16 in the record, and 20 follows"),
    "fewer were asked for": (asked(pairs=12), "look 1 is after 16 pairs in the record, planned 12"),
    "looks asked for": (asked(looks=2), "planned of look 1 is 16 in the record, and 8 follows"),
    "no look told": (
        replace(asked(looks=2), looks=()),
        "2 looks were planned, and the record tells of none",
    ),
    "looks too many": (
        replace(RECORD, looks=RECORD.looks * 2),
        "2 looks are in the record, and 1 were planned",
    ),
    "floor": (floored(floor=0.0), "the A/A floor of decode_tps is 0 in the record, and its spread says 0.0"),
    "spread": (floored(high=0.2), "the A/A floor of decode_tps is 0.0"),
    "equals nothing": (
        equal_to([], EQUAL),
        "the candidate equals nothing in the record, and its oracles say bas",
    ),
    "equals the baseline": (
        equal_to(["baseline"], APART),
        "the candidate equals baseline in the record, and its oracles say none",
    ),
    "equal tokens that differ": (
        equal_to([], {**APART, "tokens_equal": True}),
        "candidate against baseline: tokens_equal is True, and first_token 7",
    ),
    "equal log-probabilities that differ": (
        equal_to(["baseline"], {**EQUAL, "first_logprobs": 3}),
        "candidate against baseline: logprobs_equal is True, and first_logprobs 3",
    ),
    "no distance": (
        scored(kl_mean_nats=0.0, kl_max_nats=0.0),
        "kl_mean_nats is 0 in the record, and its windows say 0.0",
    ),
    "a smaller largest": (scored(kl_max_nats=6e-4), "kl_max_nats is 0.0006 in the record, and a window has"),
    "agreement": (scored(top1_agreement=1.0), "top1_agreement is 1 in the record, and its windows say 0.9"),
    "perplexity": (scored(ppl_ratio=0.9), "ppl_ratio is 0.9 in the record, and its windows say 1.0"),
    "a mean gone": (scored(kl_mean_nats="gone"), "kl_mean_nats and window_kl_nats belong together"),
    "windows gone": (scored(window_top1="gone"), "top1_agreement and window_top1 belong together"),
    "windows counted": (scored(windows=15), "windows is 15 in the record, and window_kl_nats has 16"),
    "all of it gone": (scored(**dict.fromkeys(RECORD.quality, "gone")), "text was scored by the provenance"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_is_told(edit: str) -> None:
    record, words = EDITS[edit]
    found = list(unfollowed(record))
    assert any(text.startswith(words) for text in found), found


@pytest.mark.parametrize("edit", EDITS)
def test_no_edit_is_ever_default_on(edit: str) -> None:
    assert look(EDITS[edit][0]).situation.record == "contradicted"


def test_every_look_is_judged_on_the_pairs_that_were_there() -> None:
    record = made(looks=2)
    first, last = record.looks
    assert (first["planned"], last["planned"]) == (8, 16)
    earlier = list(unfollowed(record))
    # Two looks that both decide: the first would have ended the run.
    assert earlier == ["stopped of look 1 is False in the record, and True follows"]
    other = {**first, "verdicts": {**first["verdicts"], "decode_tps": "worse"}}
    assert "verdicts of look 1 is " in "; ".join(unfollowed(replace(record, looks=(other, last))))


def test_text_is_scored_after_the_last_look_so_its_axes_do_not_count_there() -> None:
    axes = {axis.metric: axis for axis in judged_at(RECORD, 0)}
    assert axes["kl_mean_nats"].n == 0 and axes["decode_tps"].n == 16
    assert {axis.metric: axis.n for axis in RECORD.axes}["kl_mean_nats"] == 16


def test_fewer_pairs_than_planned_need_a_visit_that_failed() -> None:
    record = replace(RECORD, visits=tuple(v for v in RECORD.visits if v.pair != 3))
    fewer = replace(record, looks=({**record.looks[0], "pairs": 15},))
    assert any("and no visit failed" in text for text in unfollowed(fewer))
    failed = with_visits_failed(fewer, "candidate", 1)
    assert not any("and no visit failed" in text for text in unfollowed(failed))


def test_a_floor_shrinks_with_the_pairs_that_are_good() -> None:
    told = RECORD.floor["metrics"]["decode_tps"]
    half = math.log1p(told["floor"])
    assert half == pytest.approx((told["high"] - told["low"]) / 2 * math.sqrt(8 / 16))


@pytest.mark.parametrize(
    "change",
    [
        lambda r: replace(r, looks=({"pairs": 16},)),
        lambda r: replace(r, parity={"candidate": {}}),
        lambda r: replace(r, experiment={**r.experiment, "pairs": 0}),
    ],
)
def test_what_cannot_be_read_is_told_and_never_raised(change: Callable[[Record], Record]) -> None:
    assert list(contradictions(change(RECORD)))
