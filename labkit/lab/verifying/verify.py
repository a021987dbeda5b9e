"""Verify: whether labkit generates with a model what mlx-lm does, as fast; and the badge that says so.

Parity comes first, in a worker of its own for each KV scheme; then a paired run, an ordinary record. A badge
is given where every check that exists passed, and taken back where one failed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from labkit.bench.client import CommandFailed, WorkerClient
from labkit.bench.lease import device_lease, lease_path
from labkit.bench.quiet import standing_probes
from labkit.bench.statistics import MIN_UNITS
from labkit.core.arm import Arm, Workload
from labkit.core.decision import Evidence
from labkit.core.errors import LabkitError, WorkerFailed
from labkit.core.events import Note, Progress, Sink
from labkit.engine.shield import uninterrupted
from labkit.lab.measuring.finished import Finished
from labkit.lab.measuring.keep import check_room
from labkit.lab.measuring.provenance import machine_class
from labkit.lab.measuring.run import run, utc_now
from labkit.lab.notebook import default_sink
from labkit.lab.verifying.carried import copied, fact_of
from labkit.lab.verifying.head_to_head import PAIRS, head_to_head
from labkit.lab.verifying.verification import Verification
from labkit.lab.verifying.verify_checks import (
    SHORT,
    Check,
    open_checks,
    parity_check,
    parity_failed,
    parity_skipped,
    prompt_lengths,
    race_checks,
    scheme_skipped,
    speed_skipped,
)
from labkit.model.artifact import Artifact, measure
from labkit.model.backend import prepare
from labkit.model.null import is_null
from labkit.model.registry import get
from labkit.plan.values import is_whole
from labkit.store.badges import Badge, badge_path, withdraw_badge, write_badge
from labkit.store.lab_folder import find_lab
from labkit.store.read import one_line

# The default must equal mlx-lm; of the others, those that the plan of the model allows.
SCHEMES = ("bf16", "affine:8")
NEW_TOKENS = 32


class NotVerifiable(LabkitError):
    """A model that there is nothing to verify of, or a wish that can give no badge."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A model as it was asked for, its artifact and the machine class."""

    source: str
    artifact: Artifact
    machine: str


def verify(
    model: str | Path,
    *,
    pairs: int = PAIRS,
    root: str | Path | None = None,
    sink: Sink | None = None,
    environ: Mapping[str, str] | None = None,
    now: Callable[[], datetime] = utc_now,
    lease: Path | None = None,
) -> Verification:
    """Check a model against mlx-lm, bit for bit and in a paired race, and give or withdraw its badge.

    model: a name, directory, hub id or .gguf file. pairs: of visits, at least 8. root: the lab; None takes
    the nearest folder upwards with experiments/. sink: None shows bars in a notebook. Raises NotVerifiable
    for a null model and too few pairs, and whatever `labkit.run` raises; a badge then stays as it was.
    """
    source = os.fspath(model)
    _check_wish(source, pairs)
    place, sink = Path(root) if root is not None else find_lab(), sink or default_sink()
    environ = os.environ if environ is None else environ
    check_room(place)
    artifact = measure(get(source, sink=sink), sink=sink)
    wanted = _Wanted(source, artifact, machine_class(prepare())["slug"])
    race = head_to_head(source, artifact.name, pairs)
    race.validate()
    _tell_noise(sink)
    with device_lease(f"labkit verify {artifact.name}", lease or lease_path(), sink=sink):
        checks = tuple(_parity_checks(wanted, environ, sink))
    if any(check.status in ("failed", "void") for check in checks):
        return _concluded(wanted, (*checks, speed_skipped(checks), *open_checks()), None, place)
    # No check rests on an A/A control: the floor of the race is FLOOR.
    ended = run(race, root=place, sink=sink, environ=environ, now=now, lease=lease, floor=False)
    _check_same(wanted, ended.record.arm("candidate").artifact["fingerprint"])
    return _concluded(wanted, (*checks, *race_checks(ended.record), *open_checks()), ended, place)


def _check_wish(source: str, pairs: int) -> None:
    if is_null(source):
        need = "a model with weights is needed: a null model has no oracle to be verified against"
        raise NotVerifiable(need, got=source, next_step="labkit models list")
    if not is_whole(pairs) or pairs < MIN_UNITS:
        raise NotVerifiable(f"at least {MIN_UNITS} pairs are needed for an interval", got=repr(pairs))


def _check_same(wanted: _Wanted, fingerprint: str) -> None:
    if fingerprint != wanted.artifact.fingerprint:
        need = f"the artifact that the verification of {wanted.artifact.name} began with was needed"
        raise NotVerifiable(need, got="one that was changed meanwhile", next_step="verify it again")


def _tell_noise(sink: Sink) -> None:
    """Say it before minutes are spent that a race on this machine, as it is now, would be no evidence."""
    busy = [f"{probe.name} ({probe.advice})" for probe in standing_probes() if not probe.ok]
    if busy:
        sink(Note(f"the machine is not quiet, and a badge needs one that is: {'; '.join(busy)}"))


def _parity_checks(wanted: _Wanted, environ: Mapping[str, str], sink: Sink) -> Iterator[Check]:
    for done, kv in enumerate(SCHEMES):
        sink(Progress("parity", done, len(SCHEMES), f"kv={kv} against mlx-lm"))
        with closing(WorkerClient(Arm(wanted.source, kv=kv), environ)) as client:
            yield from _scheme_checks(client, wanted, kv)
    sink(Progress("parity", len(SCHEMES), len(SCHEMES)))


def _scheme_checks(client: WorkerClient, wanted: _Wanted, kv: str) -> Iterator[Check]:
    """The checks of one KV scheme. Only a scheme beyond the default may be refused by the plan."""
    try:
        opened = client.open(Workload(SHORT, NEW_TOKENS))
    except CommandFailed:
        raise
    except WorkerFailed as error:
        if kv == SCHEMES[0]:
            raise
        yield scheme_skipped(kv, _reasons(error))
        return
    _check_same(wanted, opened["artifact"]["fingerprint"])
    for where, length in prompt_lengths(opened["plan"]["prefill_chunk"]).items():
        yield _prompt_check(client, opened, kv, where, length)


def _prompt_check(client: WorkerClient, opened: Mapping[str, Any], kv: str, where: str, length: int) -> Check:
    room = opened["context_length"]
    if length + NEW_TOKENS > room:
        reason = f"with {NEW_TOKENS} new ones longer than the context of {room}"
        return parity_skipped(kv, where, length, reason)
    try:
        answer = client.ask("parity", workload=Workload(length, NEW_TOKENS).identity())
    except CommandFailed:  # a worker that was killed says nothing of the model
        raise
    except WorkerFailed as error:
        return parity_failed(kv, where, length, _reasons(error))
    return parity_check(kv, where, length, answer)


def _reasons(error: LabkitError) -> str:
    """An error in a line: of a refused plan its reasons alone, else what was needed and what was got."""
    reasons = [line.removeprefix("- ") for line in error.need.splitlines() if line.startswith("- ")]
    return "; ".join(reasons) or " ".join(one_line(error).split())


def _concluded(
    wanted: _Wanted, checks: tuple[Check, ...], ended: Finished | None, root: Path
) -> Verification:
    """The result, with its badge written or an older one withdrawn."""
    which = (wanted.artifact.name, wanted.artifact.fingerprint, wanted.machine)
    statuses = {check.status for check in checks}
    record = ended.path if ended else None
    if ended is not None and not statuses & {"failed", "void"}:
        badge = make_badge(ended, checks, root)
        with uninterrupted():
            path = write_badge(badge, root)
        return Verification(*which, checks, badge=badge, path=path, record=record)
    with uninterrupted():
        withdrawn = "failed" in statuses and withdraw_badge(root, *which)
    kept = not withdrawn and badge_path(root, *which).is_file()
    return Verification(*which, checks, record=record, withdrawn=withdrawn, kept=kept)


def make_badge(ended: Finished, checks: tuple[Check, ...], root: Path) -> Badge:
    """The badge of a run whose checks all passed; of code and packages it says what the record says."""
    path = ended.path.relative_to(root).as_posix()
    sha256 = hashlib.sha256(ended.path.read_bytes()).hexdigest()
    return Badge(
        **copied(ended.record),
        parity=tuple(fact_of(check) for check in checks if check.is_parity),
        open_checks=tuple(check.name for check in checks if check.status == "open"),
        records=(Evidence(ended.record.run_id, path, sha256),),
    )
