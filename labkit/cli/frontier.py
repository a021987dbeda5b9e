"""`labkit frontier`: what is not dominated, what is and by whom, what bytes buy, and the pictures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labkit.cli.console import Console
from labkit.cli.damage import tell
from labkit.cli.frontier_json import (
    groups_json,
    incomparable_json,
    moments_json,
    upgrades_json,
    within_json,
)
from labkit.cli.frontier_prices import print_moments, print_upgrades, print_within
from labkit.cli.frontier_table import print_group
from labkit.cli.pictures import FIGURES, draw_growth, draw_standings
from labkit.cli.root import Root
from labkit.frontier.byte_count import byte_count
from labkit.frontier.dominance import Standing, judge
from labkit.frontier.growth import Moment, moments
from labkit.frontier.marginal import MORE_BYTES, upgrades, within
from labkit.frontier.points import no_points, points
from labkit.frontier.versions import Gathered, gather
from labkit.store import query
from labkit.store.read import Damaged

if TYPE_CHECKING:
    import pandas
    from duckdb import DuckDBPyConnection


_Out = Annotated[
    Path | None,
    typer.Option("--out", help="Folder of the pictures; results/figures below the lab by default."),
]
_AcrossVersions = Annotated[
    bool,
    typer.Option(
        "--across-versions",
        help="Compare points of different labkit code and packages, which are kept apart otherwise.",
    ),
]
_Buys = Annotated[
    str | None,
    typer.Option("--buys", metavar="BYTES", help="What so many more bytes buy, such as 100MB, step by step."),
]
_Budget = Annotated[
    str | None,
    typer.Option("--within", metavar="BYTES", help="What is best within a budget, and what --buys more add."),
]
_OverTime = Annotated[
    bool, typer.Option("--over-time", help="The frontier's hypervolume after every record, with a picture.")
]
_AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def frontier(
    root: Root = Path(),
    out: _Out = None,
    across_versions: _AcrossVersions = False,
    buys: _Buys = None,
    budget: _Budget = None,
    over_time: _OverTime = False,
    as_json: _AsJson = False,
) -> None:
    """Show the non-dominated arms in speed, quality and size, and draw them flat and in three dimensions.

    Of each workload the newest code and packages are shown; --over-time spans all, since it takes every arm
    relative to the reference of its own record. At least one complete record is needed below results/.
    """
    wanted = Wanted(_counted(buys), _counted(budget), over_time)
    asked = _asked(root, over_time)
    standings = judge(points(asked.latest, across_versions=across_versions))
    gathered = gather(asked.latest, across_versions=across_versions)
    grown = () if asked.records is None else moments(asked.records)
    figures = _draw(standings, grown, wanted, root, out or root / FIGURES)
    notes = _left_out(gathered.hidden if wanted.points else 0, asked.tuned)
    tell(asked.damaged)
    if as_json:
        answer = _json(standings, gathered, grown, wanted)
        answer |= {"notes": notes, "figures": [str(f) for f in figures]}
        typer.echo(json.dumps(answer, indent=2, allow_nan=False))
        return
    console = Console(highlight=False)
    _print(console, standings, gathered, grown, wanted)
    for line in notes:
        console.print(f"Note: {line}", markup=False)
    if figures:
        console.print("Pictures: " + ", ".join(str(f) for f in figures), markup=False, soft_wrap=True)


def _counted(written: str | None) -> float | None:
    return None if written is None else byte_count(written)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for instead of the standings. buys, budget: bytes."""

    buys: float | None
    budget: float | None
    over_time: bool

    @property
    def standings(self) -> bool:
        return not (self.buys or self.budget or self.over_time)

    @property
    def points(self) -> bool:
        """Whether points of one version are shown; only the history over time spans all versions."""
        return bool(self.buys or self.budget or not self.over_time)

    @property
    def more(self) -> float:
        return self.buys or MORE_BYTES


@dataclass(frozen=True, slots=True)
class _Read:
    """What a lab has. latest: the rows that stand for arms; records: all rows, None where not asked for."""

    latest: pandas.DataFrame
    records: pandas.DataFrame | None
    tuned: int
    damaged: tuple[Damaged, ...]


def _draw(
    standings: Sequence[Standing], grown: Sequence[Moment], wanted: Wanted, root: Path, folder: Path
) -> tuple[Path, ...]:
    if wanted.over_time:
        return draw_growth(grown, root, folder)
    return draw_standings(standings, root, folder) if wanted.standings else ()


def _json(
    standings: Sequence[Standing], gathered: Gathered, grown: Sequence[Moment], wanted: Wanted
) -> dict[str, Any]:
    answer: dict[str, Any] = {"groups": groups_json(standings, gathered)} if wanted.standings else {}
    if wanted.budget:
        answer["within"] = within_json(within(standings, wanted.budget, wanted.more))
    elif wanted.buys:
        answer["upgrades"] = upgrades_json(upgrades(standings, wanted.more))
        answer["incomparable"] = incomparable_json(standings)
    if wanted.over_time:
        answer["over_time"] = moments_json(grown)
    return answer


def _print(
    console: Console,
    standings: Sequence[Standing],
    gathered: Gathered,
    grown: Sequence[Moment],
    wanted: Wanted,
) -> None:
    groups = tuple(dict.fromkeys(s.point.group for s in standings))
    for group in groups if wanted.standings else ():
        print_group(console, group, [s for s in standings if s.point.group == group], gathered)
    if wanted.budget:
        print_within(console, within(standings, wanted.budget, wanted.more))
    elif wanted.buys:
        print_upgrades(console, standings, upgrades(standings, wanted.more), wanted.more)
    if wanted.over_time:
        print_moments(console, grown)


def _asked(root: Path, over_time: bool) -> _Read:
    """What the lab has. Raises NoRecords where it has no point."""
    found = query.ask(root, lambda connection: _read(connection, over_time))
    if not found.latest.empty:
        return found
    others = [f"{len(found.damaged)} damaged (labkit store list says why)"] if found.damaged else []
    others += [f"{found.tuned} scored on text of the split `tune`"] if found.tuned else []
    raise no_points(", and ".join(["none", *others]))


def _read(connection: DuckDBPyConnection, over_time: bool) -> _Read:
    (tuned,) = connection.execute("SELECT count(*) FROM tuned").fetchone() or (0,)
    latest = connection.execute(query.FRONTIER_POINTS).df()
    records = connection.execute(query.FRONTIER_RECORDS).df() if over_time else None
    return _Read(latest, records, tuned, query.damaged_files(connection))


def _left_out(hidden: int, tuned: int) -> list[str]:
    """What was measured and is not shown, and how to see it."""
    lines = []
    if hidden:
        groups = "1 older group" if hidden == 1 else f"{hidden} older groups"
        lines.append(
            f"{groups} hidden, measured by other code or packages, which is no fair comparison: "
            "labkit frontier --across-versions puts all side by side."
        )
    if tuned:
        records = "1 record was" if tuned == 1 else f"{tuned} records were"
        lines.append(
            f"{records} scored on text of the split `tune` and left out; labkit decides on `promote`."
        )
    return lines
