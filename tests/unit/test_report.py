"""How a run reads in a terminal of 80 columns: a golden text for each way that one can end."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from labkit.bench.stability import Stability
from labkit.cli.console import Console
from labkit.cli.report import print_verdicts, sentence
from labkit.core.records import AxisResult, Record
from labkit.lab.measuring.finished import Finished
from labkit.lab.reading.remarks import remarks
from tests.unit.sample_records import BLAS, KV8, full_record, sample_record

GOLDEN = Path(__file__).parent / "golden"
FLOORS = "no A/A floor is known for this arm, workload and machine: labkit control measures it"


def report(record: Record) -> str:
    """What `labkit run` prints of a record, without its path."""
    console = Console(file=io.StringIO(), width=80, color_system=None)
    print_verdicts(console, record)
    console.print(sentence(record), highlight=False, markup=False)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def with_axis(record: Record, metric: str, **changes: Any) -> Record:
    axes = tuple(replace(axis, **changes) if axis.metric == metric else axis for axis in record.axes)
    return replace(record, axes=axes)


def expecting(record: Record, **expects: str) -> Record:
    return replace(record, experiment={**record.experiment, "expects": expects})


def improved() -> Record:
    return sample_record(BLAS, run_id="improved")


def worse() -> Record:
    """Stopped at the first of two looks, with everything there is to say beside the verdicts."""
    return expecting(full_record(), decode_tps="equivalent", kv_bytes="better")


def equivalent() -> Record:
    record = replace(sample_record(run_id="equivalent"), outcome="refuted")
    tie = {"estimate": 1.003, "low": 0.995, "high": 1.011, "verdict": "equivalent"}
    return with_axis(with_axis(record, "kv_bytes", **tie), "decode_tps", **tie, floor=0.0123)


def unresolved() -> Record:
    """The last of two looks, on a machine that was busy, above a floor that exceeds the margin."""
    record = full_record()
    note = (
        "the A/A floor of 4.10% exceeds the margin of 3.00%, so nothing is equivalent: more pairs, a quieter "
        "machine or a wider margin would help"
    )
    wide = {
        "estimate": 0.99,
        "low": 0.95,
        "high": 1.03,
        "verdict": "unresolved",
        "notes": (note,),
        "floor": 0.041,
    }
    looks = ({**record.looks[0], "verdicts": {}}, {**record.looks[0], "pairs": 16})
    quiet = {"quiet": False, "reasons": ["load_1m 5.00 beyond 2.00 before the run (close what runs)"]}
    changed = replace(
        record, outcome="undecided", looks=looks, quiet={**quiet, "unstable": ["baseline decode_tps"]}
    )
    return with_axis(changed, "decode_tps", **wide)


def failed() -> Record:
    record = sample_record(run_id="failed", pairs=8)
    died = tuple(
        replace(v, status="failed", metrics={}, error="killed") if v.status == "ok" else v
        for v in record.visits
    )
    return replace(
        record, outcome="failed", state="partial", visits=died[:6], axes=tuple(map(unmeasured, record.axes))
    )


def missing() -> Record:
    """A quality axis that nothing was scored on, in a run that was resumed twice."""
    record = replace(sample_record(run_id="missing"), outcome="undecided", resumed=({}, {}))
    return replace(record, axes=(*record.axes[:2], unmeasured(record.axes[2])))


def unmeasured(axis: AxisResult) -> AxisResult:
    neutral = dict.fromkeys(("estimate", "low", "high"), 0.0)
    notes = ("no sample: it was not measured",)
    return replace(axis, n=0, verdict="unresolved", notes=notes, p_value=1.0, p_holm=1.0, **neutral)


CASES: dict[str, Callable[[], Record]] = {
    case.__name__: case for case in (improved, worse, equivalent, unresolved, failed, missing)
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_reads_as_its_golden_text(case: str) -> None:
    assert report(CASES[case]()) == (GOLDEN / f"run_{case}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("case", CASES)
def test_no_line_is_longer_than_80_columns(case: str) -> None:
    assert max(map(len, report(CASES[case]()).splitlines())) <= 80


def test_a_run_of_one_look_says_nothing_of_looks_and_a_plain_one_only_that_no_floor_is_known() -> None:
    record = replace(sample_record(), looks=({"pairs": 10, "alpha": 0.05, "verdicts": {}},))
    assert remarks(record) == (FLOORS,)


def test_a_run_that_reached_its_last_look_undecided_says_so() -> None:
    assert remarks(unresolved())[0] == "not decided by look 2 of 2, after 16 of 16 pairs (intervals of 96.9%)"


@pytest.mark.parametrize(("decode", "said"), [("better", "decided at"), ("unresolved", "not decided by")])
def test_a_partial_run_says_what_its_visits_had_decided_by_its_last_look(decode: str, said: str) -> None:
    """Its axes keep no verdict, since a stop that nobody planned decides nothing."""
    record = full_record()
    look = {**record.looks[-1], "verdicts": {"decode_tps": decode}, "stopped": decode != "unresolved"}
    axes = tuple(replace(axis, verdict="unresolved") for axis in record.axes)
    (line, *_) = remarks(replace(record, state="partial", axes=axes, looks=(look,)))
    ended = "; the run ended before the rest was done" if look["stopped"] else ""
    assert line == f"{said} look 1 of 2, after 8 of 16 pairs (intervals of 96.9%){ended}"


def test_a_fresh_design_and_an_axis_without_a_floor_are_said() -> None:
    record = full_record()
    floor = {**record.floor, "metrics": {"kv_bytes": record.floor["metrics"]["kv_bytes"]}}
    fresh = replace(record, experiment={**record.experiment, "design": "fresh"}, floor=floor)
    said = remarks(fresh)
    assert any(text.startswith("design fresh: every visit had a new process") for text in said)
    assert "no A/A floor is known of decode" in said


def test_a_control_decides_nothing_and_rests_on_no_floor() -> None:
    record = replace(sample_record(), kind="control")
    assert remarks(record) == ()
    text = "a control, which decides nothing (KV cache better, decode worse, KL to the reference equivalent)."
    assert sentence(record) == f"{KV8.name}: {text}"
    assert "(a control)" in Finished(record, Path("x.json"))._repr_html_()


def test_the_phrases_of_a_drift_are_said_as_they_were_found() -> None:
    steady = Stability(16, True, *([0.0, 1.0] * 4))
    drifting = replace(steady, level_drift=-0.061, level_drift_p=0.001)
    assert steady.phrases("decode") == ()
    noise = {"decode_tps": {**drifting.to_json(), "phrases": list(drifting.phrases("decode"))}}
    assert "decode drifted by -6.1% over the run (p 0.004)" in remarks(replace(sample_record(), noise=noise))


def test_an_arm_that_equals_no_oracle_says_where_it_parts() -> None:
    record = full_record()
    apart = record.parity["candidate"]["oracles"]["baseline"]
    arm = {"equals": [], "oracles": {"mlx-lm kv=affine:8": apart}, "prompt_tokens": 1024}
    (line,) = [t for t in remarks(replace(record, parity={"candidate": arm})) if t.startswith("parity")]
    assert (
        line == "parity: the candidate equals no oracle (mlx-lm kv=affine:8: tokens differ from token 7 on)"
    )


def test_a_difference_in_seconds_is_shown_with_its_sign() -> None:
    record = sample_record()
    axis = replace(record.axes[2], metric="compile_s", estimate=-0.8, low=-1.0, high=0.1, unit="pair", n=8)
    text = report(replace(record, axes=(axis,)))
    assert "-0.8 s" in text and "-1 to +0.1" in text


def test_a_finished_run_shows_its_remarks_in_a_notebook_escaped() -> None:
    record = replace(full_record(), noise={"decode_tps": {"phrases": ["decode <drifted>"]}})
    html = Finished(record, Path("x.json"))._repr_html_()
    assert "<li>decode &lt;drifted&gt;</li>" in html and "decided at look 1 of 2" in html
    frame = Finished(record, Path("x.json")).verdicts()
    assert frame["alpha"].tolist() == [0.031] * 3 and frame["floor"].tolist() == [0.0, 0.004, 0.0]
