"""A record opened: by which names, what it shows, and what is said where it cannot be."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import labkit
from labkit.core.errors import NoRecords, RecordInvalid
from labkit.core.records import Record
from labkit.lab.reading.lookup import look_up
from labkit.lab.reading.show import predictions
from labkit.store.write import write_record
from tests.unit.command_line import labkit as command
from tests.unit.history_lab import at_level, write_all
from tests.unit.sample_records import BLAS, sample_record

RUN = "20261105T101500Z-kv8-at-1k-0a1b2c"


def look(pairs: int, alpha: float, verdict: str) -> dict[str, Any]:
    ended = verdict != "unresolved"
    verdicts = {"decode_tps": verdict}
    return {"pairs": pairs, "planned": pairs, "alpha": alpha, "verdicts": verdicts, "stopped": ended}


def full() -> Record:
    """A record in which every field says something."""
    made = sample_record()
    return replace(
        made,
        experiment={**made.experiment, "looks": 2, "design": "process-pair"},
        looks=(look(8, 0.003, "unresolved"), look(10, 0.049, "worse")),
        floor={
            "run_id": "20261101T000000Z-control",
            "started_at": "2026-11-01T00:00:00Z",
            "pairs": 16,
            "metrics": {"decode_tps": {"estimate": 0.0, "low": -0.01, "high": 0.01, "floor": 0.0123}},
        },
        noise={"decode_tps": {"phrases": ["decode drifted by -4.0% over the run (p .001)"]}, "ttft_s": {}},
        parity={
            "candidate": {
                "equals": ["mlx-lm kv=affine:8"],
                "prompt_tokens": 64,
                "oracles": {"mlx-lm kv=affine:8": {"itself": True}},
            }
        },
        prediction={"candidate": {"peak_bytes": 5e8, "decode_tps": 15.0}},
        quiet={"quiet": False, "reasons": ["load of 3.1"], "unstable": ["candidate decode_tps"]},
        notes=("a note of the run",),
    )


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    return write_all(tmp_path, [full()])


def test_everything_that_a_record_says_is_shown(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = command("show", RUN, "--root", lab)
    assert done.code == 0, done.err
    text = " ".join(done.out.split())
    for said in (
        "8-bit KV frees memory at 1k context and nobody notices",
        "candidate smollm2 kv=affine:8",
        "1. after 8 pairs, alpha 0.003: decode_tps unresolved",
        "2. after 10 pairs, alpha 0.049: decode_tps worse",
        "20261101T000000Z-control: 16 pairs, 2026-11-01",
        "decode: 1.23%",
        "decode drifted by -4.0% over the run",
        "time to first token: steady",
        "candidate and mlx-lm kv=affine:8: it is that oracle",
        "candidate, peak device memory: 500 MB predicted, not measured",
        "not quiet: load of 3.1",
        "unstable from visit to visit: candidate decode_tps",
        "a note of the run",
        "code c0de0123456789ab",
        "mlx 0.32.4",
        f"record: results/linux-x86-64-cpu-generic-2c-8g/{RUN}.json",
    ):
        assert said in text
    path_line = f"record: results/linux-x86-64-cpu-generic-2c-8g/{RUN}.json"
    assert all(len(line) <= 80 for line in done.out.splitlines() if line != path_line)


def test_predictions_stand_beside_measurements() -> None:
    found = {each.metric: each for each in predictions(full())}
    assert found["peak_bytes"].measured is None and found["peak_bytes"].ratio is None
    decode = full().arm("candidate").metrics["decode_tps"].value
    assert found["decode_tps"].ratio == pytest.approx(decode / 15.0)


def test_json_is_the_record(lab: Path) -> None:
    answer = json.loads(command("show", RUN, "--root", lab, "--json").out)
    assert Record.from_json(answer["record"]) == full()
    assert (lab / answer["path"]).is_file()


def test_a_control_says_that_it_decides_nothing(tmp_path: Path) -> None:
    write_record(replace(sample_record(), kind="control"), tmp_path)
    assert "decides nothing" in command("show", RUN, "--root", tmp_path).out


def test_a_misshapen_field_is_one_message(tmp_path: Path) -> None:
    write_record(replace(full(), looks=({"pairs": "many"},)), tmp_path)
    done = command("show", RUN, "--root", tmp_path)
    assert done.code == 1 and "looks[0].pairs" in done.message() and "--json" in done.message()
    assert command("show", RUN, "--root", tmp_path, "--json").code == 0


@pytest.mark.parametrize("broken", [{"quiet": {}}, {"experiment": {"name": "kv8-at-1k"}}])
def test_a_missing_field_is_one_message(tmp_path: Path, broken: dict[str, Any]) -> None:
    write_record(replace(full(), **broken), tmp_path)
    done = command("show", RUN, "--root", tmp_path)
    assert done.code == 1 and "is needed" in done.message()


def test_a_run_that_failed_is_shown(tmp_path: Path) -> None:
    made = sample_record()
    visits = tuple(replace(v, status="failed", metrics={}, error="the worker died") for v in made.visits)
    arms = tuple(replace(arm, metrics={}) for arm in made.arms)
    write_record(replace(made, outcome="failed", visits=visits, arms=arms, axes=()), tmp_path)
    done = command("show", RUN, "--root", tmp_path)
    assert done.code == 0 and "failed: the worker died" in done.out


@pytest.mark.parametrize(
    "text", [RUN, "20261105", "0a1b2c", "kv8-at-1k", f"linux-x86-64-cpu-generic-2c-8g/{RUN}"]
)
def test_a_record_is_found_by_what_it_is_called(lab: Path, text: str) -> None:
    assert look_up(lab, text).record.run_id == RUN
    path = next((lab / "results").rglob("*.json")).relative_to(lab).as_posix()
    assert look_up(lab, path).path == path


def test_an_experiment_means_its_newest_complete_record(tmp_path: Path) -> None:
    made = [at_level(17.0, day) for day in range(3)]
    made[2] = replace(made[2], state="partial")
    write_all(tmp_path, made)
    assert look_up(tmp_path, "kv8-at-1k").record.run_id == made[1].run_id
    assert look_up(tmp_path, made[2].run_id).record.state == "partial"


def test_an_experiment_with_a_name_like_a_run_id_is_the_experiment(tmp_path: Path) -> None:
    write_all(tmp_path, [at_level(17.0, 0), at_level(17.0, 1, replace(BLAS, name="2026"))])
    assert look_up(tmp_path, "2026").record.experiment["name"] == "2026"


def test_several_are_refused_with_their_names(tmp_path: Path) -> None:
    write_all(tmp_path, [at_level(17.0, 0), at_level(17.0, 1)])
    with pytest.raises(RecordInvalid, match="2026, which 2 have") as raised:
        look_up(tmp_path, "2026")
    assert raised.value.options == tuple(at_level(17.0, day).run_id for day in range(2))


def test_one_id_on_two_machines_is_told_apart_by_path(tmp_path: Path) -> None:
    write_all(tmp_path, [sample_record(), sample_record(slug="darwin-arm64-metal-m4-10c-32g")])
    with pytest.raises(RecordInvalid, match="results/darwin-arm64-metal-m4-10c-32g"):
        look_up(tmp_path, RUN)
    assert (
        look_up(tmp_path, f"darwin-arm64-metal-m4-10c-32g/{RUN}").record.machine["slug"].startswith("darwin")
    )


@pytest.mark.parametrize("text", ["nope", "", "2027"])
def test_an_unknown_one_is_one_message_with_the_options(lab: Path, text: str) -> None:
    done = command("show", text, "--root", lab)
    assert done.code == 1
    assert "options: kv8-at-1k" in done.message()


def test_a_lab_without_records_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "experiments").mkdir()
    with pytest.raises(NoRecords, match="labkit run"):
        look_up(tmp_path, "kv8-at-1k")


@pytest.mark.parametrize("text", [RUN, "0a1b2c"])
def test_a_damaged_one_is_one_message_with_the_reason(lab: Path, text: str) -> None:
    next((lab / "results").rglob("*.json")).write_text("{", encoding="utf-8")
    done = command("show", text, "--root", lab)
    assert done.code == 1 and "broken JSON" in done.message() and "set-aside" in done.message()


def test_a_notebook_opens_a_record(lab: Path) -> None:
    found = labkit.record("kv8-at-1k", lab)
    assert repr(found).startswith("<Finished kv8-at-1k: trade-off")
    assert found.path.is_file() and "kv8-at-1k" in found._repr_html_()
