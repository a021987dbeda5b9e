"""SQL over the results and their export: reads only, one message for a wrong query, files whole or none."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import duckdb
import pandas
import pytest

import labkit as lab_api
from labkit.lab.reading.question import QueryInvalid, answer, relation_names, relations
from labkit.lab.reading.standings import open_lab
from labkit.store import export as exporting
from labkit.store.export import ExportRefused, export
from labkit.store.index import refresh
from labkit.store.query import database_path
from labkit.store.write import write_record
from tests.unit.command_line import files, labkit
from tests.unit.sample_records import BLAS, sample_record


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    root = tmp_path / "lab"
    write_record(sample_record(run_id="run-1", pairs=2), root)
    write_record(sample_record(BLAS, run_id="run-2", started_at="2026-11-06T10:15:00Z", pairs=2), root)
    return root


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_every_relation_reads_back_equal(lab: Path, tmp_path: Path, form: str) -> None:
    out = tmp_path / "out"
    done = labkit("export", f"--{form}", out, "--root", lab, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out) == [str(out / f"{name}.{form}") for name in relation_names()]
    assert files(out) == {f"{name}.{form}" for name in relation_names()}
    with open_lab(lab) as connection:
        for name in relation_names():
            columns = connection.execute(f"DESCRIBE {name}").fetchall()
            path = out / f"{name}.{form}"
            if form == "parquet":
                read = f"SELECT * FROM '{path}'"
            else:
                types = {c: "VARCHAR" if t.endswith("[]") else t for c, t, *_ in columns}
                cast = ", ".join(
                    f'"{c}"::JSON::{t} AS "{c}"' if t.endswith("[]") else f'"{c}"' for c, t, *_ in columns
                )
                read = (
                    f"SELECT {cast} FROM read_csv('{path}', header = true, columns = {types}, nullstr = '')"
                )
            expected, found = (
                sorted(map(str, connection.execute(q).fetchall())) for q in (f"FROM {name}", read)
            )
            # An empty text and no text are one thing in csv.
            alike = [row.replace("''", "None") for row in expected] if form == "csv" else expected
            assert [row.replace("''", "None") for row in found] == alike if form == "csv" else found == alike


def test_an_export_never_replaces_files_unasked(lab: Path, tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("mine")
    refused = labkit("export", "--csv", tmp_path, "--root", lab)
    assert refused.code == 1
    assert "runs.csv, which exists" in refused.message() and "--force" in refused.message()
    assert not (tmp_path / "arms.csv").exists()
    assert labkit("export", "--csv", tmp_path, "--root", lab, "--force").code == 0
    assert (tmp_path / "runs.csv").read_text().startswith("run_id,")


def test_a_folder_in_the_place_of_a_file_is_never_replaced(lab: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / "runs.csv").mkdir(parents=True)
    with open_lab(lab) as connection, pytest.raises(ExportRefused, match="is a folder"):
        export(connection, relation_names(), tmp_path / "out", "csv", force=True)


@pytest.mark.parametrize("at", ["write", "publish"])
def test_an_export_that_fails_leaves_the_old_files(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "arms.csv").write_text("old")
    if at == "write":
        write = exporting._write
        monkeypatch.setattr(
            exporting, "_write", lambda c, n, p, f: 1 / 0 if n == "runs" else write(c, n, p, f)
        )
    else:
        rename = Path.rename
        monkeypatch.setattr(
            Path, "rename", lambda a, b: 1 / 0 if Path(b).name == "runs.csv" else rename(a, b)
        )
    with open_lab(lab) as connection, pytest.raises(ZeroDivisionError):
        export(connection, relation_names(), out, "csv", force=True)
    assert {p.name: p.read_text() for p in out.iterdir()} == {"arms.csv": "old"}


@pytest.mark.parametrize("options", [(), ("--csv", "a", "--parquet", "b")])
def test_export_takes_one_folder(lab: Path, options: tuple[str, ...]) -> None:
    ended = labkit("export", *options, "--root", lab)
    assert ended.code == 1
    assert "--parquet DIR, --csv DIR" in ended.message()


WRITES = [
    "DROP TABLE runs", "DELETE FROM runs", "CREATE TABLE x (y INT)", "COPY runs TO 'x.csv'",
    "SET threads = 1",
    "ATTACH 'x.duckdb'", "SELECT 1; DROP TABLE runs", "INSTALL httpfs", "EXPLAIN ANALYZE DELETE FROM runs",
    "WITH a AS (SELECT 1) INSERT INTO runs SELECT * FROM runs", "PRAGMA version", "", "-- nothing",
]  # fmt: skip


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("query", WRITES)
def test_only_one_select_is_answered(lab: Path, query: str, indexed: bool) -> None:
    if indexed:
        refresh(lab, database_path(lab))
    before = files(lab)
    with pytest.raises(QueryInvalid, match="one SELECT was needed"):
        answer(query, lab)
    assert files(lab) == before
    assert len(lab_api.sql("SELECT * FROM runs", lab)) == 2


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_text('{0}')",
        "SELECT * FROM glob('{0}')",
        "SELECT * FROM read_csv('{0}')",
        "FROM '{0}'",
    ],
)
def test_files_of_the_machine_are_out_of_reach(lab: Path, tmp_path: Path, query: str) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a,b\n1,2\n")
    with pytest.raises(QueryInvalid):
        answer(query.format(secret), lab)


def test_variables_of_the_calling_python_are_no_tables(lab: Path) -> None:
    mine = pandas.DataFrame({"x": [1]})
    assert len(mine) == 1
    with pytest.raises(QueryInvalid, match="a known table or view"):
        lab_api.sql("SELECT * FROM mine", lab)


def test_wrong_names_are_answered_with_the_right_ones(lab: Path) -> None:
    with pytest.raises(QueryInvalid) as table:
        answer("SELECT * FROM result", lab)
    assert set(relation_names()) == set(table.value.options)
    with pytest.raises(QueryInvalid) as column:
        answer("SELECT outcme FROM runs", lab)
    assert "outcome" in column.value.options
    ended = labkit("sql", "SELEC 1", "--root", lab)
    assert ended.code == 1
    assert "syntax error" in ended.message() and "look at: SELEC 1" in ended.message()


def test_an_error_while_rows_are_fetched_is_one_message_too(lab: Path) -> None:
    ended = labkit("sql", "SELECT (label || 'x')::INT FROM arms", "--root", lab)
    assert ended.code == 1
    assert "Could not convert" in ended.message()


def test_rows_are_limited_and_the_rest_is_counted(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    some = labkit("sql", "SELECT range AS n FROM range(100)", "--root", lab)
    assert "60 more rows: --all shows them" in some.err
    assert " 39" in some.out and " 40" not in some.out
    everything = labkit("sql", "SELECT range AS n FROM range(100)", "--root", lab, "--all")
    assert " 99" in everything.out and not everything.err
    for query in ("SELECT * FROM results", "SELECT run_id, label, plan_hash, statement FROM results"):
        wide = labkit("sql", query, "--root", lab).out
        assert max(map(len, wide.splitlines())) <= 80
        assert "run-1" in wide


def test_json_and_csv_hold_all_rows(lab: Path) -> None:
    query = "SELECT run_id, holds, prompt_tokens, NULL AS no, 'nan'::DOUBLE AS nan FROM runs ORDER BY run_id"
    rows = json.loads(labkit("sql", query, "--root", lab, "--json").out)
    assert rows[0] == {
        "run_id": "run-1", "holds": ["decode_tps", "kl_mean_nats"], "prompt_tokens": 1024,
        "no": None, "nan": None,
    }  # fmt: skip
    table = list(csv.reader(io.StringIO(labkit("sql", query, "--root", lab, "--csv").out)))
    assert table[1] == ["run-1", '["decode_tps", "kl_mean_nats"]', "1024", "", "nan"]
    assert labkit("sql", query, "--root", lab, "--csv", "--json").code == 1


def test_without_a_query_the_relations_are_listed(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    rows = json.loads(labkit("sql", "--root", lab, "--json").out)
    assert [row["name"] for row in rows] == list(relation_names()) == [r.name for r in relations(lab)]
    by_name = {row["name"]: {c["name"]: c["type"] for c in row["columns"]} for row in rows}
    assert by_name["frontier"]["dominated_by"] == "VARCHAR[]"
    assert by_name["results"]["decode_tps_low"] == "DOUBLE"
    text = labkit("sql", "--root", lab).out
    assert all(name in text for name in relation_names())
    assert max(map(len, text.splitlines())) <= 80


def test_a_pivot_over_the_values_of_a_column_is_answered_from_an_index(lab: Path) -> None:
    refresh(lab, database_path(lab))
    found = lab_api.sql("PIVOT runs ON outcome USING count(*) GROUP BY machine", lab)
    assert sorted(found.columns) == ["machine", "supported", "trade-off"]


def test_the_frontier_is_judged_only_when_it_is_named(lab: Path) -> None:
    with open_lab(lab, "SELECT 1") as connection, pytest.raises(duckdb.CatalogException):
        connection.execute("FROM frontier")


WRITING = {
    "WITH x AS (INSERT INTO runs FROM runs RETURNING *) FROM x": "INSERT",
    "SELECT * FROM (WITH x AS (DELETE FROM runs RETURNING *) FROM x)": "DELETE",
    "EXPLAIN ANALYZE WITH x AS (UPDATE runs SET run_id = '' RETURNING *) FROM x": "UPDATE",
    "CREATE TEMP TABLE x AS PIVOT runs ON machine USING count(*)": "CREATE",
    "/* SELECT */ COPY (PIVOT runs ON machine USING count(*)) TO 'x.csv'": "COPY",
    "INSERT INTO runs PIVOT runs ON machine USING count(*)": "INSERT",
    "WITH x AS (PIVOT runs ON machine USING count(*)) INSERT INTO runs FROM x": "INSERT",
}


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("query", WRITING)
def test_what_writes_within_a_select_or_pivot_is_refused_with_and_without_an_index(
    lab: Path, query: str, indexed: bool
) -> None:
    if indexed:
        refresh(lab, database_path(lab))
    with pytest.raises(QueryInvalid, match="one SELECT was needed") as caught:
        answer(query, lab)
    assert WRITING[query] in str(caught.value.got)


@pytest.mark.parametrize(
    "query",
    [
        "-- INSERT\nPIVOT runs ON machine USING count(*)",
        "(PIVOT runs ON machine USING count(*))",
        "SELECT 'COPY', '\"type\":\"INSERT_QUERY_NODE\"' FROM runs",
        "WITH x AS (FROM runs) PIVOT x ON machine USING count(*)",
        "SUMMARIZE runs",
    ],
)
def test_words_that_only_look_like_writing_are_answered(lab: Path, query: str) -> None:
    assert answer(query, lab).rows


def test_without_an_index_nothing_can_be_written_either(lab: Path) -> None:
    with (
        open_lab(lab, "SELECT 1") as connection,
        pytest.raises(duckdb.InvalidInputException, match="read-only"),
    ):
        connection.execute("DELETE FROM runs")


def test_control_characters_reach_a_terminal_escaped_and_a_file_as_they_are(lab: Path) -> None:
    query = "SELECT '\x1b[31mred\u202e' || chr(10) || 'below' AS \"\x1b]0;title\x07\""
    table = labkit("sql", query, "--root", lab)
    assert not {"\x1b", "\x07", "\u202e"} & set(table.out)
    assert r"\x1b]0;title\x07" in table.out
    assert r"\x1b[31mred\u202e" in table.out
    assert "\x1b[31mred" in labkit("sql", query, "--csv", "--root", lab).out
    assert json.loads(labkit("sql", query, "--json", "--root", lab).out)[0]["\x1b]0;title\x07"].startswith(
        "\x1b"
    )
