"""Records on disk: whole or absent, never overwritten, and the damaged ones named."""

from __future__ import annotations

import errno
import json
import math
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from labkit.core.errors import RecordInvalid
from labkit.core.migrations import SCHEMA
from labkit.core.records import Estimate, Record
from labkit.store.read import read_record, read_records
from labkit.store.write import write_record
from tests.unit.sample_records import BLAS, SLUG, sample_record, with_candidate

KILLED = """
import os, sys
from tests.unit.sample_records import sample_record
from labkit.store.write import write_record
os.link = lambda *_, **__: os._exit(9)
write_record(sample_record(), sys.argv[1])
"""


@pytest.mark.parametrize("shape_name", ["kv8", "blas"])
def test_record_survives_the_disk(tmp_path: Path, shape_name: str) -> None:
    record = sample_record() if shape_name == "kv8" else sample_record(BLAS)
    path = write_record(record, tmp_path)
    assert path == tmp_path / "results" / SLUG / f"{record.run_id}.json"
    assert read_record(path) == record
    assert Record.from_json(json.loads(path.read_text())) == record


def test_file_is_pretty_sorted_and_ends_in_a_newline(tmp_path: Path) -> None:
    text = write_record(sample_record(), tmp_path).read_text(encoding="utf-8")
    keys = list(json.loads(text))
    assert keys == sorted(keys)
    assert text.endswith("}\n")
    assert text.startswith('{\n  "arms"')


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_not_finite_numbers_are_refused_by_place(tmp_path: Path, bad: float) -> None:
    record = with_candidate(sample_record(), metrics={"decode_tps": Estimate(14.0, bad, 14.5, 10, "visit")})
    with pytest.raises(RecordInvalid, match=r"arms\[1\]\.metrics\.decode_tps\.low"):
        write_record(record, tmp_path)
    assert not (tmp_path / "results").exists()


def test_values_json_cannot_hold_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordInvalid, match="plain JSON values"):
        write_record(replace(sample_record(), quality={"model": object()}), tmp_path)


@pytest.mark.parametrize("name", ["../escape", "a/b", ".hidden", "", "with space"])
def test_unsafe_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RecordInvalid, match="run id"):
        write_record(sample_record(run_id=name), tmp_path)
    with pytest.raises(RecordInvalid, match="machine slug"):
        write_record(sample_record(slug=name), tmp_path)


def test_second_writer_of_a_run_id_is_refused(tmp_path: Path) -> None:
    first = sample_record()
    path = write_record(first, tmp_path)
    with pytest.raises(RecordInvalid, match="never overwritten"):
        write_record(replace(first, outcome="refuted"), tmp_path)
    assert read_record(path) == first
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def _race(tmp_path: Path, writers: int) -> tuple[list[Record], list[RecordInvalid]]:
    """Writers of one run id, released together: what was written and what was refused."""
    gate, written, refused = threading.Barrier(writers), [], []

    def write(number: int) -> None:
        record = sample_record(noise=0.01 * (number + 1))
        gate.wait()
        try:
            write_record(record, tmp_path)
            written.append(record)
        except RecordInvalid as error:
            refused.append(error)

    threads = [threading.Thread(target=write, args=(i,)) for i in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return written, refused


def test_of_racing_writers_exactly_one_wins(tmp_path: Path) -> None:
    written, refused = _race(tmp_path, writers=4)
    assert (len(written), len(refused)) == (1, 3)
    assert read_records(tmp_path).records == tuple(written)


def _no_links(*_: object, **__: object) -> None:
    raise OSError(errno.EOPNOTSUPP, "no hard links here")


def test_file_systems_without_hard_links_keep_the_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", _no_links)
    written, refused = _race(tmp_path, writers=4)
    assert (len(written), len(refused)) == (1, 3)
    assert read_records(tmp_path).records == tuple(written)
    assert [p.suffix for p in (tmp_path / "results" / SLUG).iterdir()] == [".json"]


def test_a_killed_writer_leaves_no_half_record(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    assert subprocess.run(command, cwd=Path(__file__).parents[2], check=False).returncode == 9
    assert list((tmp_path / "results" / SLUG).glob(".*.tmp")), "the kill came before the temporary file"
    loaded = read_records(tmp_path)
    assert (loaded.stored, loaded.damaged) == ((), ())
    assert write_record(sample_record(), tmp_path).exists()


def test_an_interrupted_writer_cleans_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "link", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_record(sample_record(), tmp_path)
    assert list((tmp_path / "results" / SLUG).iterdir()) == []


DAMAGE = {
    "truncated": (lambda text: text[: len(text) // 2], "broken JSON at line"),
    "empty": (lambda _: "", "broken JSON at line 1"),
    "a list": (lambda _: "[]", "schema 1, 2, 3 was needed"),
    "another schema": (lambda text: text.replace(f'"schema": {SCHEMA}', '"schema": 99'), "got 99"),
    "a missing field": (lambda text: text.replace('"outcome": ', '"result": '), "complete record"),
    "NaN inside": (lambda text: text.replace('"p_value": 0.002', '"p_value": NaN'), "the number NaN"),
    "a machine that is none": (lambda _: _as_text(machine="here"), "a machine and a start"),
}


def _as_text(**changes: object) -> str:
    return json.dumps({**sample_record().to_json(), **changes})


@pytest.mark.parametrize("kind", sorted(DAMAGE))
def test_damaged_records_are_listed_with_a_reason_and_left_alone(tmp_path: Path, kind: str) -> None:
    good = sample_record(BLAS, run_id="good", started_at="2026-11-06T00:00:00Z")
    write_record(good, tmp_path)
    path = write_record(sample_record(run_id="bad"), tmp_path)
    damage, reason = DAMAGE[kind]
    path.write_text(damage(path.read_text()))
    before = path.read_bytes()
    loaded = read_records(tmp_path)
    assert loaded.records == (good,)
    assert [d.path for d in loaded.damaged] == [f"results/{SLUG}/bad.json"]
    assert reason in loaded.damaged[0].reason
    assert path.read_bytes() == before


def test_bytes_that_are_no_text_are_damage(tmp_path: Path) -> None:
    write_record(sample_record(), tmp_path).write_bytes(b"\xff\xfe\x00")
    assert "UnicodeDecodeError" in read_records(tmp_path).damaged[0].reason


def test_a_copy_under_another_name_does_not_count_twice(tmp_path: Path) -> None:
    path = write_record(sample_record(), tmp_path)
    path.with_name("copy.json").write_bytes(path.read_bytes())
    loaded = read_records(tmp_path)
    assert len(loaded.records) == 1
    assert "belongs at" in loaded.damaged[0].reason


def test_records_come_oldest_first_over_all_machines(tmp_path: Path) -> None:
    late = sample_record(run_id="a", started_at="2026-12-01T00:00:00Z")
    early = sample_record(run_id="z", started_at="2026-11-01T00:00:00Z", slug="macos-arm64-metal-m4-10c-32g")
    for record in (late, early):
        write_record(record, tmp_path)
    assert read_records(tmp_path).records == (early, late)


def test_a_lab_without_results_has_no_records(tmp_path: Path) -> None:
    assert read_records(tmp_path).records == ()
