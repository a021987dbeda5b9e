"""Floor evidence: whether the A/A control that a record rests on is in the lab and says what it tells."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from labkit.bench.floor import Spread
from labkit.core.errors import LabkitError, RecordInvalid
from labkit.core.records import Record
from labkit.lab.measuring.floor import Floor, floor_of
from labkit.store.read import one_line, read_record

_ROUNDING = 1e-6


def floor_problems(record: Record, root: Path) -> Iterator[str]:
    """Why the floor of a record, which must not be misshapen, is not that of a control; none without one."""
    if not record.floor:
        return
    told = Floor.from_json(record.floor)
    if "/" in told.run_id or "\\" in told.run_id:
        yield f"{told.run_id!r}, which is no id"
        return
    place = root / "results" / str(record.machine.get("slug")) / f"{told.run_id}.json"
    if not place.is_file():
        yield f"{told.run_id}, which is not in this lab"
        return
    try:
        yield from list(_other(told, read_record(place), record))
    except RecordInvalid as error:
        yield f"{told.run_id}, which is damaged: {one_line(error)}"
    except (LabkitError, KeyError, TypeError, ValueError, AttributeError) as error:
        yield f"{told.run_id}, whose visits cannot be read: {' '.join(str(error).split())}"


def _other(told: Floor, control: Record, record: Record) -> Iterator[str]:
    """What the control is otherwise than the record tells."""
    run_id = told.run_id
    if control.kind != "control" or control.state != "complete":
        yield f"{run_id}, which is no complete control"
        return
    if {arm.arm_hash for arm in control.arms} != {record.arm("baseline").arm_hash}:
        yield f"{run_id}, whose arms are not both the baseline"
    if control.workload_hash != record.workload_hash:
        yield f"{run_id}, which is of another workload"
    if control.experiment.get("design") != record.experiment.get("design"):
        yield f"{run_id}, which is of another design"
    found = floor_of(control)
    if found is None or (found.pairs, found.started_at) != (told.pairs, told.started_at):
        yield f"{run_id}, which has another number of pairs or another start"
    elif found.spreads.keys() != told.spreads.keys():
        yield f"{run_id}, which measured other metrics"
    else:
        other = [name for name in told.spreads if not _same(told.spreads[name], found.spreads[name])]
        yield from (f"{run_id}, which has another spread of {name}" for name in other)


def _same(told: Spread, found: Spread) -> bool:
    pairs = ((told.estimate, found.estimate), (told.low, found.low), (told.high, found.high))
    return all(math.isclose(a, b, rel_tol=_ROUNDING, abs_tol=_ROUNDING * _ROUNDING) for a, b in pairs)
