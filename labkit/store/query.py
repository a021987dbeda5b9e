"""Query: the results of a lab as frames, from the index where it is current, else from the records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from labkit.store.index import open_current, open_in_memory
from labkit.store.lab_folder import find_lab

if TYPE_CHECKING:
    import pandas


def database_path(root: Path | str) -> Path:
    """Where the index of a lab lies."""
    return Path(root) / "results" / "lab.duckdb"


def results(root: Path | str | None = None) -> pandas.DataFrame:
    """One row per record x arm: provenance, and each metric as `name`, `name_low`, `name_high`, `name_n`."""
    return sql(root, "SELECT * FROM results")


def axes(root: Path | str | None = None) -> pandas.DataFrame:
    """One row per verdict: estimate, interval, margin, p values; the metric's title and good direction."""
    return sql(root, "SELECT * FROM axes")


def visits(root: Path | str | None = None) -> pandas.DataFrame:
    """One row per visit, warm-ups and failures included, with each metric as a column."""
    return sql(root, "SELECT * FROM visits")


def pairs(root: Path | str | None = None) -> pandas.DataFrame:
    """One row per pair x ratio metric. ratio: an improvement, above 1 where the candidate is better."""
    return sql(root, "SELECT * FROM pairs")


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


def damaged(root: Path | str | None = None) -> pandas.DataFrame:
    """Files among the records that could not be read: path below the lab root, and reason."""
    return sql(root, "SELECT * FROM damaged")


def sql(root: Path | str | None, query: str) -> pandas.DataFrame:
    """Any query over the index's tables and views (`labkit.store.schema`), as a frame.

    root: the lab; None, here and in the other queries, takes the nearest folder upwards with experiments/.
    """
    root = find_lab() if root is None else root
    with open_current(root, database_path(root)) or open_in_memory(root) as connection:
        return connection.execute(query).df()
