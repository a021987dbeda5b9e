"""The history of a metric: which records belong together, which count, and what changed at a step."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pandas
import pytest

import labkit
from labkit.core.errors import NoRecords, RecordInvalid
from labkit.core.records import Record
from labkit.lab.reading.history import History, history, history_frame
from labkit.lab.reading.series import Wanted
from labkit.plots.files import write_figure
from labkit.plots.history import history_figure
from tests.unit.command_line import labkit as command
from tests.unit.history_lab import at_level, noisy, stepped_lab, write_all
from tests.unit.sample_records import KV8

BASELINE = Wanted(arm="smollm2 kv=bf16")


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    return stepped_lab(tmp_path)


def of_baseline(root: Path, **wanted: object) -> History:
    (found,) = history(root, "decode_tps", replace(BASELINE, **wanted))
    return found


def test_a_step_names_what_changed_there(lab: Path) -> None:
    found = of_baseline(lab)
    (step,) = found.steps
    assert step.direction == "regression"
    assert step.low < 0.85 < step.high < 0.9
    assert step.p_value <= 0.01
    assert step.before.startswith("20261106") and step.after.startswith("20261107")
    assert [change.text() for change in step.changed] == [
        "code a1a1a1a1a1 -> b2b2b2b2b2",
        "mlx 0.32.3 -> 0.32.4",
        "git 1111111111 -> 2222222222",
    ]
    assert [level.results for level in found.levels] == [6, 6]


def test_the_good_direction_is_the_metrics(lab: Path) -> None:
    slower = history(lab, "ttft_s", BASELINE)
    assert not slower[0].steps
    rising = [replace_value(r, "ttft_s", 2.0 if i < 6 else 1.0) for i, r in enumerate(records(12))]
    root = write_all(lab / "other", rising) if (lab / "other").mkdir() is None else lab
    (found,) = history(root, "ttft_s", BASELINE)
    assert [step.direction for step in found.steps] == ["improvement"]


def test_busy_and_stopped_records_are_drawn_and_not_counted(tmp_path: Path) -> None:
    made = records(12)
    made[3] = replace(made[3], quiet={"quiet": False, "reasons": ["load"]})
    made[8] = replace(made[8], state="partial")
    root = write_all(tmp_path, made)
    found = of_baseline(root)
    assert len(found.series.counted) == 10 and len(found.series.results) == 12
    assert found.notes[:2] == ("1 record left out: busy machine", "1 record left out: stopped")
    frame = history_frame([found])
    assert list(frame[~frame["counted"]].index) == [3, 8]
    assert len(of_baseline(root, everything=True).series.counted) == 12


def test_controls_count_only_where_asked(tmp_path: Path) -> None:
    made = records(6)
    made[2] = replace(made[2], kind="control")
    root = write_all(tmp_path, made)
    assert len(of_baseline(root).series.results) == 5
    assert len(of_baseline(root, controls=True).series.results) == 6


def test_a_control_of_equal_arms_is_one_result_a_run(tmp_path: Path) -> None:
    made = [
        replace(r, kind="control", arms=(r.arms[0], replace(r.arms[0], role="candidate"))) for r in records(4)
    ]
    found = of_baseline(write_all(tmp_path, made), controls=True)
    assert [result.role for result in found.series.results] == ["baseline"] * 4


def test_other_machines_and_workloads_are_never_joined(tmp_path: Path) -> None:
    made = records(4)
    made += [replace(r, run_id=f"{r.run_id}-b", workload_hash="w" * 16) for r in records(4)]
    elsewhere = {"slug": "darwin-arm64-metal-m4-10c-32g"}
    made += [replace(r, machine={**r.machine, **elsewhere}) for r in records(4)]
    found = history(write_all(tmp_path, made), "decode_tps", BASELINE)
    assert [len(each.series.results) for each in found] == [4, 4, 4]
    assert len({(each.series.machine, each.series.workload_hash) for each in found}) == 3


def test_scores_on_other_texts_are_never_joined(tmp_path: Path) -> None:
    made = [from_text(r, "one" if i < 3 else "two") for i, r in enumerate(records(6))]
    root = write_all(tmp_path, made)
    assert len(history(root, "kl_mean_nats", Wanted(arm="affine:8"))) == 2
    assert len(history(root, "decode_tps", Wanted(arm="affine:8"))) == 1


def test_an_arm_joins_over_experiments_unless_one_is_named(tmp_path: Path) -> None:
    other = replace(KV8, name="another")
    made = [*records(4), *(at_level(17.0, i + 4, other) for i in range(3))]
    root = write_all(tmp_path, made)
    assert len(of_baseline(root).series.results) == 7
    assert len(of_baseline(root, experiment="another").series.results) == 3


def test_one_record_is_not_yet_a_step(tmp_path: Path) -> None:
    root = write_all(tmp_path, [at_level(r, i) for i, r in enumerate(noisy([17.0] * 8 + [12.0]))])
    found = of_baseline(root)
    assert not found.steps
    assert found.alone == (found.series.results[-1].run_id,)
    assert any("not yet a step" in note for note in found.notes)
    write_all(root, [at_level(12.1, 9)])
    assert [step.before[:8] for step in of_baseline(root).steps] == ["20261108"]


def test_three_records_are_too_few(tmp_path: Path) -> None:
    found = of_baseline(write_all(tmp_path, records(3)))
    assert found.notes == ("3 records: a step needs at least 2 on each side",)


def test_sizes_step_exactly(tmp_path: Path) -> None:
    made = [replace_value(r, "kv_bytes", 1000 if i < 3 else 800) for i, r in enumerate(records(6))]
    (found,) = history(write_all(tmp_path, made), "kv_bytes", BASELINE)
    assert [(s.test, s.size, s.direction) for s in found.steps] == [
        ("exact", pytest.approx(0.8), "improvement")
    ]
    assert found.steps[0].changed == ()


def test_an_arm_is_found_by_label_part_and_hash(lab: Path) -> None:
    hashed = of_baseline(lab).series.arm_hash
    for text in ("smollm2 kv=bf16", "BF16", hashed, hashed[:6]):
        assert [h.series.arm_hash for h in history(lab, "decode_tps", Wanted(arm=text))] == [hashed]
    assert len(history(lab, "decode_tps", Wanted(workload="1024+64", machine="x86"))) == 2


@pytest.mark.parametrize(
    ("metric", "wanted", "says"),
    [
        ("speed", Wanted(), "decode_tps"),
        ("load_s", Wanted(), "labkit run"),
        ("decode_tps", Wanted(arm="kv=paged"), "smollm2 kv=affine:8, smollm2 kv=bf16"),
        ("decode_tps", Wanted(workload="1+1"), "1024+64"),
        ("decode_tps", Wanted(machine="m4"), "linux-x86-64"),
        ("decode_tps", Wanted(experiment="no"), "kv8-at-1k"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(lab: Path, metric: str, wanted: Wanted, says: str) -> None:
    with pytest.raises((NoRecords, RecordInvalid), match=says.replace("+", r"\+")):
        history(lab, metric, wanted)


def test_the_command_prints_a_golden_table(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = command("history", "decode_tps", "--arm", "kv=bf16", "--root", lab)
    assert done.code == 0, done.err
    golden = Path(__file__).parent / "golden" / "history.txt"
    assert done.out == golden.read_text(encoding="utf-8")
    assert max(map(len, done.out.splitlines())) <= 80


def test_the_command_answers_in_json_and_draws(lab: Path) -> None:
    done = command("history", "decode_tps", "--root", lab, "--json", "--picture")
    answer = json.loads(done.out)
    assert [len(each["steps"]) for each in answer["series"]] == [1, 1]
    assert all(Path(figure).is_file() for figure in answer["figures"])


def test_the_command_has_one_message(lab: Path) -> None:
    done = command("history", "speed", "--root", lab)
    assert done.code == 1 and "options: prefill_tps, decode_tps" in done.message()


def test_a_damaged_record_is_told_and_left_out(lab: Path) -> None:
    next((lab / "results").rglob("20261103*.json")).write_text("{", encoding="utf-8")
    done = command("history", "decode_tps", "--root", lab, "--json")
    assert done.code == 0 and "damaged record" in done.err
    assert len(json.loads(done.out)["series"][0]["series"]["results"]) == 11


def test_a_notebook_sees_the_steps(lab: Path) -> None:
    timeline = labkit.history("decode_tps", lab)
    assert repr(timeline) == "<Timeline decode_tps: 2 series, 2 steps>"
    assert list(timeline.steps()["direction"]) == ["regression", "regression"]
    shown = timeline._repr_html_()
    ElementTree.fromstring(f"<div>{shown.replace('<br>', '<br/>').replace('&', '&amp;')}</div>")
    assert "mlx 0.32.3" in shown and "12 records, 1 step<" in shown


def test_the_picture_shows_every_record_and_names_the_step(lab: Path, tmp_path: Path) -> None:
    write_all(lab, [replace(at_level(14.4, 20), quiet={"quiet": False}), at_level(9.0, 21)])
    figure = history_figure(history_frame(history(lab, "decode_tps", BASELINE)))
    (axes,) = figure.axes
    assert "1  0.84" in axes.get_title(loc="left") and "mlx 0.32.3 -> 0.32.4" in axes.get_title(loc="left")
    markers = [line.get_marker() for line in axes.lines if len(line.get_xdata()) == 1]  # type: ignore[arg-type]
    assert markers.count("o") == 13 and markers.count("D") == 1
    first, second = (write_figure(figure, tmp_path / name, "h")[1].read_bytes() for name in ("a", "b"))
    assert first == second


def test_a_picture_needs_records() -> None:
    with pytest.raises(NoRecords):
        history_figure(pandas.DataFrame())


def records(count: int) -> list[Record]:
    return [at_level(rate, day) for day, rate in enumerate(noisy([17.0] * count))]


def replace_value(record: Record, metric: str, value: float) -> Record:
    """The record with a metric of both arms at a value without noise."""
    arms = tuple(
        replace(
            a, metrics={**a.metrics, metric: replace(a.metrics[metric], value=value, low=value, high=value)}
        )
        for a in record.arms
    )
    return replace(record, arms=arms)


def from_text(record: Record, text: str) -> Record:
    return replace(record, provenance={**record.provenance, "windows_hash": text})


def test_the_plan_and_the_experiment_file_are_told_at_a_step(tmp_path: Path) -> None:
    old, new = records(12)[:6], [at_level(rate, 6 + i) for i, rate in enumerate(noisy([14.0] * 6))]
    arms = [
        tuple(replace(a, plan={**a.plan, "prefill_chunk": 64}, plan_hash="b") for a in r.arms) for r in new
    ]
    edited = [
        replace(r, arms=a, experiment={**r.experiment, "source_hash": "b" * 16})
        for r, a in zip(new, arms, strict=True)
    ]
    (step,) = of_baseline(write_all(tmp_path, [*old, *edited])).steps
    assert [change.text() for change in step.changed] == [
        "prefill_chunk none -> 64",
        "experiment file 5f0c2d1e9b -> bbbbbbbbbb",
    ]
    assert "perhaps the machine" not in command("history", "decode_tps", "--root", tmp_path).out


def test_the_series_of_one_answer_share_the_chance_of_a_false_step(lab: Path) -> None:
    assert of_baseline(lab).alpha == 0.05
    assert {each.alpha for each in history(lab, "decode_tps")} == {0.025}
