"""Query: the results of a lab as frames, from the index where it is current, else from the records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.store.index import open_index
from labkit.store.lab_folder import find_lab

if TYPE_CHECKING:
    import pandas
    from duckdb import DuckDBPyConnection


def database_path(root: Path | str) -> Path:
    """Where the index of a lab lies."""
    return Path(root) / "results" / "lab.duckdb"


def results(root: Path | str | None = None) -> pandas.DataFrame:
    """One row per record x arm: provenance, and each metric as `name`, `name_low`, `name_high`, `name_n`."""
    return sql(root, "SELECT * FROM results")


def axes(root: Path | str | None = None, run_id: str | None = None) -> pandas.DataFrame:
    """One row per verdict: estimate, interval, margin, p values; the metric's title and good direction."""
    return _of_run(root, "axes", run_id)


def visits(root: Path | str | None = None, run_id: str | None = None) -> pandas.DataFrame:
    """One row per visit, warm-ups and failures included, with each metric as a column."""
    return _of_run(root, "visits", run_id)


def pairs(root: Path | str | None = None, run_id: str | None = None) -> pandas.DataFrame:
    """One row per pair x ratio metric. ratio: an improvement, above 1 where the candidate is better."""
    return _of_run(root, "pairs", run_id)


def frontier_points(root: Path | str | None = None) -> pandas.DataFrame:
    """The rows of `results` that may stand on the frontier: per arm, plan and group one complete record.

    Quiet records come before unquiet ones, then the newest. Groups are (machine, family, workload_hash,
    reference_hash, windows_hash, packages_hash, code_hash); group_newest_at is a group's last start. Records
    scored on `tune` text are left out; see `tuned`.
    """
    return sql(root, "SELECT * FROM latest")


def tuned(root: Path | str | None = None) -> pandas.DataFrame:
    """One row per complete record that was scored on `tune` text, which no decision may rest on."""
    return sql(root, "SELECT * FROM tuned")


def history(root: Path | str | None = None) -> pandas.DataFrame:
    """One row per record x arm x metric, oldest first: the value with its interval and the code hash.

    previous: the value before it of the same machine, family, workload, experiment, arm and metric. ratio:
    value / previous, as measured, whatever the metric's good direction.
    """
    return sql(root, "SELECT * FROM history")


def decisions(root: Path | str | None = None) -> pandas.DataFrame:
    """One row per decision, oldest first: kind, name, decided_at, why, outcome and the run ids (evidence)."""
    return sql(root, "SELECT * FROM decisions ORDER BY decided_at, name, kind")


def evidence(root: Path | str | None = None) -> pandas.DataFrame:
    """One row per decision x run id that it rests on, with the record's place and state, or `missing`."""
    return sql(root, "SELECT * FROM evidence")


def damaged(root: Path | str | None = None) -> pandas.DataFrame:
    """Files among the records and decisions that could not be read: path below the lab root, and reason."""
    return sql(root, "SELECT * FROM damaged ORDER BY path")


def open_results(root: Path | str | None = None) -> DuckDBPyConnection:
    """A connection to the tables and views of a lab (`labkit.store.views`), for the caller to close.

    root: the lab; None, here and in the queries, takes the nearest folder upwards with experiments/.
    """
    root = find_lab() if root is None else Path(root)
    return open_index(root, database_path(root))


def sql(root: Path | str | None, query: str, parameters: Sequence[object] = ()) -> pandas.DataFrame:
    """Any query over the index's tables and views, as a frame. parameters: the values of its `?`."""
    with open_results(root) as connection:
        return connection.execute(query, list(parameters)).df()


def _of_run(root: Path | str | None, view: str, run_id: str | None) -> pandas.DataFrame:
    if run_id is None:
        return sql(root, f"SELECT * FROM {view}")
    return sql(root, f"SELECT * FROM {view} WHERE run_id = ?", [run_id])
