"""Query: the results of a lab as frames, from the index where it is current, else from the records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from labkit.store.database import is_whole
from labkit.store.index import open_anew, open_index
from labkit.store.lab_folder import find_lab
from labkit.store.read import Damaged
from labkit.store.views import GROUP, MAY_BE_POINT

if TYPE_CHECKING:
    import pandas
    from duckdb import DuckDBPyConnection


T = TypeVar("T")
_DAMAGED = "SELECT * FROM damaged ORDER BY path"

# What each experiment registered before it ran, as three lists of one length.
_WITH_MARGINS = """
SELECT found.*, margin_metrics, margin_goals, margins FROM ({found}) AS found LEFT JOIN (
    SELECT run_id, machine, list(metric ORDER BY position) AS margin_metrics,
           list(goal ORDER BY position) AS margin_goals, list(margin ORDER BY position) AS margins
    FROM verdicts GROUP BY run_id, machine) USING (run_id, machine)
ORDER BY {order}
"""
FRONTIER_POINTS = _WITH_MARGINS.format(
    found="SELECT * FROM latest", order=f"{GROUP}, label, arm_hash, plan_hash"
)
FRONTIER_RECORDS = _WITH_MARGINS.format(
    found=f"""
SELECT *, max(started_at) OVER (PARTITION BY {GROUP}) AS group_newest_at FROM results
WHERE {MAY_BE_POINT}""",
    order="started_at, run_id, machine, role",
)


def database_path(root: Path | str) -> Path:
    """Where the index of a lab lies."""
    return Path(root) / "results" / "lab.duckdb"


def results(root: Path | str | None = None) -> pandas.DataFrame:
    """One row per record x arm: provenance, and each metric as `name`, `name_low`, `name_high`, `name_n`.

    Left out, here and in the other queries, are the records that `superseded` lists: a stop of a run that
    went on.
    """
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
    scored on `tune` text and of controls are left out; see `tuned`. margin_metrics, margin_goals, margins:
    what the record's experiment registered, as lists of one length.
    """
    return sql(root, FRONTIER_POINTS)


def frontier_records(root: Path | str | None = None) -> pandas.DataFrame:
    """The same rows of every such record, oldest first, also where another speaks for its arm."""
    return sql(root, FRONTIER_RECORDS)


def tuned(root: Path | str | None = None) -> pandas.DataFrame:
    """One row per complete record that was scored on `tune` text, which no decision may rest on."""
    return sql(root, "SELECT * FROM tuned")


def history(root: Path | str | None = None) -> pandas.DataFrame:
    """One row per record x arm x metric, oldest first: the value with its interval and the code hash.

    previous: the value before it of the same machine, family, workload, experiment, arm and metric. ratio:
    value / previous, as measured, whatever the metric's good direction.
    """
    return sql(root, "SELECT * FROM history")


def superseded(root: Path | str | None = None) -> pandas.DataFrame:
    """One row per partial record of a run that went on, with the run id of its last record: superseded_by."""
    return sql(root, "SELECT * FROM superseded")


def decisions(root: Path | str | None = None) -> pandas.DataFrame:
    """One row per decision, oldest first: kind, name, decided_at, why, outcome and the run ids (evidence)."""
    return sql(root, "SELECT * FROM decisions ORDER BY decided_at, name, kind")


def evidence(root: Path | str | None = None) -> pandas.DataFrame:
    """One row per decision x run id that it rests on, with the record's place and state, or `missing`."""
    return sql(root, "SELECT * FROM evidence")


def damaged(root: Path | str | None = None) -> pandas.DataFrame:
    """Files among the records and decisions that could not be read: path below the lab root, and reason."""
    return sql(root, _DAMAGED)


def damaged_files(connection: DuckDBPyConnection) -> tuple[Damaged, ...]:
    """The same of an open index."""
    return tuple(Damaged(*row) for row in connection.execute(_DAMAGED).fetchall())


def open_results(root: Path | str | None = None) -> DuckDBPyConnection:
    """A connection to the tables and views of a lab (`labkit.store.views`), for the caller to close.

    root: the lab; None, here and in the queries, takes the nearest folder upwards with experiments/. That the
    index is damaged shows where it is read: `ask` mends that.
    """
    root = find_lab() if root is None else Path(root)
    return open_index(root, database_path(root))


def ask(root: Path | str | None, work: Callable[[DuckDBPyConnection], T]) -> T:
    """What `work` makes of a connection to a lab's tables and views.

    Where DuckDB fails and the index turns out to be damaged, it is made again of the records, and `work` is
    called once more. What else `work` raises is passed on.
    """
    root = find_lab() if root is None else Path(root)
    with open_index(root, database_path(root)) as connection:
        try:
            return work(connection)
        except Exception as error:
            if not _may_be_damage(error) or is_whole(connection):
                raise
    with open_anew(root, database_path(root)) as connection:
        return work(connection)


def sql(root: Path | str | None, query: str, parameters: Sequence[object] = ()) -> pandas.DataFrame:
    """Any query over the index's tables and views, as a frame. parameters: the values of its `?`."""
    return ask(root, lambda connection: connection.execute(query, list(parameters)).df())


def _may_be_damage(error: Exception) -> bool:
    """Whether DuckDB failed, and not because of a query that it would not even begin."""
    import duckdb

    causes = [cause for cause in (error, error.__cause__) if isinstance(cause, duckdb.Error)]
    wrong = (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException)
    return bool(causes) and not isinstance(causes[0], wrong)


def _of_run(root: Path | str | None, view: str, run_id: str | None) -> pandas.DataFrame:
    if run_id is None:
        return sql(root, f"SELECT * FROM {view}")
    return sql(root, f"SELECT * FROM {view} WHERE run_id = ?", [run_id])
