"""The index at scale: several readers, quick checks of whole columns, and a refresh that equals a rebuild."""

from __future__ import annotations

import copy
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labkit.store import database as tables_of
from labkit.store import index, query, readers
from labkit.store.batch import BATCH_TABLES, Batch, read_batch
from labkit.store.damage import damage_of
from labkit.store.files import file_table, is_record
from labkit.store.read import record_files
from labkit.store.schema import TABLES
from labkit.store.turn import turn
from labkit.store.views import VIEWS
from labkit.store.write import record_text, write_record
from tests.unit.sample_records import BLAS, KV8, SLUG, sample_record


def _lab(root: Path, count: int) -> Path:
    for number in range(count):
        write_record(sample_record((KV8, BLAS)[number % 2], run_id=f"run-{number:03}", pairs=2), root)
    return root


def _paths(root: Path) -> list[str]:
    return [path for path in file_table(root)["path"].to_pylist() if is_record(path)]


def _merged(batches: list[Batch]) -> dict[str, list[str]]:
    """Every row as text, sorted: batches come in no order."""
    return {name: sorted(str(row) for b in batches for row in b[name].to_pylist()) for name in BATCH_TABLES}


def _contents(connection: duckdb.DuckDBPyConnection) -> dict[str, list[str]]:
    """Every row of every table and view, sorted where the relation has no order of its own."""
    ordered = set(VIEWS) - {"arm_metrics", "visit_metrics"}
    found = {n: [str(r) for r in connection.execute(f"FROM {n}").fetchall()] for n in (*TABLES, *VIEWS)}
    return {name: rows if name in ordered else sorted(rows) for name, rows in found.items()}


def test_several_processes_read_what_one_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "CHUNK", 5)
    _lab(tmp_path, 23)
    (tmp_path / "results" / SLUG / "torn.json").write_text("{")
    paths = _paths(tmp_path)
    alone = _merged(list(readers.read_batches(tmp_path, paths, processes=0)))
    together = _merged(list(readers.read_batches(tmp_path, paths, processes=2)))
    assert together == alone
    assert len(alone["runs"]) == 23 and len(alone["damaged"]) == 1


@pytest.mark.parametrize("code", ["pass", "import sys; sys.stdin.readline(); print('no batch')"])
def test_a_reader_that_dies_costs_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.setattr(readers, "CHUNK", 3)
    _lab(tmp_path, 8)

    def broken(_: Path) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [sys.executable, "-c", code], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
        )

    monkeypatch.setattr(readers, "_start", broken)
    found = _merged(list(readers.read_batches(tmp_path, _paths(tmp_path), processes=2)))
    assert len(found["runs"]) == 8


def test_no_reader_outlives_an_interrupted_rebuild(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "CHUNK", 2)
    _lab(tmp_path, 9)
    started: list[subprocess.Popen[bytes]] = []
    start = readers._start
    monkeypatch.setattr(readers, "_start", lambda root: started.append(start(root)) or started[-1])
    batches = readers.read_batches(tmp_path, _paths(tmp_path), processes=2)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert len(started) == 2
    assert all(process.poll() is not None for process in started)


def _places(data: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [at, *(place for key, value in items for place in _places(value, (*at, key)))]


MUTANTS = (
    *(None, True, 0, -1, 3.0, 3.5, 2**63, -(2**63), 10**400, 1e308, "", "fast", "12", [], ["a"], [1], {}),
    *({"a": 1}, "DELETE", "EXTRA", float("inf")),
)


def _mutate(data: dict[str, Any], source: random.Random) -> dict[str, Any]:
    data = copy.deepcopy(data)
    place = source.choice(_places(data)[1:])
    parent, mutant = data, source.choice(MUTANTS)
    for key in place[:-1]:
        parent = parent[key]
    if mutant == "DELETE":
        del parent[place[-1]]
    elif mutant == "EXTRA" and isinstance(parent, dict):
        parent["extra"] = 1
    else:
        parent[place[-1]] = mutant
    return data


def test_whole_columns_and_single_values_agree_on_what_is_damaged(tmp_path: Path) -> None:
    """600 records with one value changed each: the quick check accepts none that the careful one refuses."""
    source = random.Random(4)
    base = sample_record(pairs=2).to_json()
    folder = tmp_path / "results" / SLUG
    folder.mkdir(parents=True)
    for number in range(600):
        mutant = _mutate({**json.loads(json.dumps(base)), "run_id": f"run-{number:03}"}, source)
        (folder / f"run-{number:03}.json").write_text(json.dumps(mutant).replace("Infinity", "1e999"))
    careful = {p.relative_to(tmp_path).as_posix(): damage_of(p, tmp_path) for p in record_files(tmp_path)}
    expected = {path: reason for path, reason in careful.items() if reason is not None}
    assert 100 < len(expected) < 500, "both kinds are tried"
    for path in careful:
        batch = read_batch(tmp_path, [path])
        assert {row["path"]: row["reason"] for row in batch["damaged"].to_pylist()} == {
            p: r for p, r in expected.items() if p == path
        }
    # One bad record among good ones condemns itself alone.
    together = read_batch(tmp_path, sorted(careful))
    assert {row["path"]: row["reason"] for row in together["damaged"].to_pylist()} == expected
    assert together["runs"].num_rows == 600 - len(expected)
    assert index.rebuild(tmp_path, query.database_path(tmp_path)).records == 600 - len(expected)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            '"prompt_tokens": 1024',
            '"prompt_tokens": 9223372036854775808',
            "runs.prompt_tokens: a whole number",
        ),
        ('"prompt_tokens": 1024', '"prompt_tokens": true', "got True"),
        ('"git_dirty": false', '"git_dirty": "false"', "runs.git_dirty: true or false was needed"),
        ('"memory_gib": 8', '"memory_gib": 1e999', "a finite number was needed, got inf"),
        ('"memory_gib": 8', '"memory_gib": NaN', "the number NaN"),
        ('"label": "smollm2 kv=bf16"', '"label": 5', "arms.label: text was needed"),
        ('"chip": "generic"', '"chip": "\\ud800"', "surrogates not allowed"),
    ],
)
def test_values_of_a_wrong_type_are_damage_with_a_reason(
    tmp_path: Path, old: str, new: str, reason: str
) -> None:
    path = write_record(sample_record(), tmp_path)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    built = index.rebuild(tmp_path, query.database_path(tmp_path))
    assert built.records == 0
    assert reason in built.damaged[0].reason


def test_a_metric_without_a_name_here_is_kept_beside_the_others(tmp_path: Path) -> None:
    data = sample_record(run_id="run-1", pairs=2).to_json()
    data["visits"][0]["metrics"]["joules"] = 3.5
    folder = tmp_path / "results" / SLUG
    folder.mkdir(parents=True)
    (folder / "run-1.json").write_text(json.dumps(data))
    found = query.sql(tmp_path, "SELECT other_metrics FROM visit_runs WHERE other_metrics IS NOT NULL")
    assert found["other_metrics"].tolist() == ['{"joules":3.5}']


def test_a_file_name_of_other_bytes_is_damage_and_no_crash(tmp_path: Path) -> None:
    write_record(sample_record(), tmp_path)
    try:
        (tmp_path / "results" / SLUG / "\udcff.json").write_text("{}")
    except (OSError, UnicodeEncodeError):
        pytest.skip("this file system takes no such name")
    built = index.rebuild(tmp_path, query.database_path(tmp_path))
    assert (built.records, [bad.path for bad in built.damaged]) == (1, [f"results/{SLUG}/\\udcff.json"])
    assert not index.refresh(tmp_path, built.database).rebuilt


def test_a_refresh_reads_only_what_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _lab(tmp_path, 6)
    database = query.database_path(tmp_path)
    index.refresh(tmp_path, database)
    asked: list[str] = []
    read = tables_of.read_batches
    monkeypatch.setattr(
        tables_of, "read_batches", lambda root, paths, n: asked.extend(paths) or read(root, paths, n)
    )
    write_record(sample_record(run_id="run-new", pairs=2), tmp_path)
    (tmp_path / "results" / SLUG / "run-001.json").unlink()
    assert index.refresh(tmp_path, database).records == 6
    assert asked == [f"results/{SLUG}/run-new.json"]


@pytest.mark.parametrize(
    "statement",
    ["CREATE TABLE mine (x INTEGER)", "DROP VIEW latest", "UPDATE index_info SET schema_hash = 'another'"],
)
def test_an_index_that_someone_changed_is_made_anew(tmp_path: Path, statement: str) -> None:
    _lab(tmp_path, 2)
    database = query.database_path(tmp_path)
    index.rebuild(tmp_path, database)
    with index.open_index(tmp_path, database) as connection:
        expected = _contents(connection)
    with duckdb.connect(str(database)) as connection:
        connection.execute(statement)
    assert index.open_current(tmp_path, database) is None
    assert index.refresh(tmp_path, database).rebuilt
    with duckdb.connect(str(database), read_only=True) as connection:
        assert _contents(connection) == expected


EDITS = st.lists(
    st.tuples(st.sampled_from(["add", "edit", "remove", "tear", "mend", "refresh"]), st.integers(0, 5)),
    min_size=1,
    max_size=8,
)


def _apply(root: Path, kind: str, number: int, step: int) -> None:
    path = root / "results" / SLUG / f"run-{number}.json"
    if kind == "refresh":
        index.refresh(root, query.database_path(root))
    elif kind == "remove":
        path.unlink(missing_ok=True)
    elif kind == "tear":
        path.write_text("{" * (step + 1))
    elif kind == "mend" or not path.exists():
        record = sample_record((KV8, BLAS)[number % 2], run_id=f"run-{number}", pairs=2)
        path.write_text(record_text(record), encoding="utf-8")
    elif kind == "edit":
        # Another length each time: a file system's clock may not tell two edits apart.
        path.write_text(path.read_text().replace("nobody notices", "nobody notices" + "!" * (step + 1)))


@pytest.mark.slow
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=EDITS)
def test_a_refreshed_index_equals_a_rebuilt_one(
    tmp_path_factory: pytest.TempPathFactory, edits: list[Any]
) -> None:
    root = tmp_path_factory.mktemp("lab")
    _lab(root, 2)
    index.refresh(root, query.database_path(root))
    for step, (kind, number) in enumerate(edits):
        _apply(root, kind, number, step)
    # While somebody builds, a query brings the index up to date in a copy of its own.
    with turn(root / "results"), index.open_index(root, query.database_path(root)) as patched:
        unpublished = _contents(patched)
    refreshed = index.refresh(root, query.database_path(root))
    rebuilt = index.rebuild(root, root / "other.duckdb")
    assert (refreshed.records, refreshed.damaged) == (rebuilt.records, rebuilt.damaged)
    with duckdb.connect(str(refreshed.database), read_only=True) as one:
        contents = _contents(one)
    with duckdb.connect(str(rebuilt.database), read_only=True) as other:
        assert contents == _contents(other)
    assert unpublished == contents
