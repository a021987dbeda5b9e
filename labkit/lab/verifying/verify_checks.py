"""Checks of `labkit verify`: the status of each and what was found, of parity answers and a record. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from labkit.core.arm import Arm
from labkit.core.records import Record
from labkit.lab.measuring.parity import describe, is_equal, parity
from labkit.lab.verifying.head_to_head import FLOOR, decode_axis, raced_parity

# void: measured, and no evidence either way. skipped: not run, for the reason found. open: does not exist.
Status = Literal["passed", "failed", "void", "skipped", "open"]
# Checks that a later suite brings: name -> what is said of it until then.
OPEN: Mapping[str, str] = {
    "evals": "no eval suite yet: tasks are not scored, and the badge says nothing of them"
}
SHORT = 7


@dataclass(frozen=True, slots=True)
class Check:
    """One check of a verification. found: what was seen, in words.

    kv, prompt_tokens: of a parity check; no prompt where the model cannot run the scheme at all.
    """

    name: str
    status: Status
    found: str
    kv: str = ""
    prompt_tokens: int = 0

    @property
    def is_parity(self) -> bool:
        return self.kv != ""


def prompt_lengths(chunk: int) -> Mapping[str, int]:
    """Prompts by where their prefill ends: before the first chunk does, with it, and within a second one.

    The last token of a prompt belongs to the first decode step, so a chunk is filled by chunk + 1 tokens.
    """
    return {"short": SHORT, "one chunk": chunk + 1, "past it": chunk + 34}


def parity_check(kv: str, where: str, prompt_tokens: int, answer: Mapping[str, Any]) -> Check:
    """The check of one answer of a worker to `parity`, whose arm must equal its oracle in every bit.

    Void where mlx-lm itself did not run: that says nothing of the arm.
    """
    (compared,) = parity({"candidate": answer})["candidate"]["oracles"].values()
    return _parity(kv, where, prompt_tokens, _status(compared), describe(compared))


def parity_failed(kv: str, where: str, prompt_tokens: int, reason: str) -> Check:
    """The check of a scheme that was planned and did not run."""
    return _parity(kv, where, prompt_tokens, "failed", reason)


def parity_skipped(kv: str, where: str, prompt_tokens: int, reason: str) -> Check:
    """The check of a prompt that the model cannot take."""
    return _parity(kv, where, prompt_tokens, "skipped", reason)


def scheme_skipped(kv: str, reason: str) -> Check:
    """The check of a scheme that the model cannot run at all."""
    return Check(f"parity {kv}", "skipped", f"refused: {reason}", kv)


def race_checks(record: Record) -> tuple[Check, ...]:
    """What the record of the race says: its own parity, quietness, and whether decode holds FLOOR.

    Decode is void where the machine was not quiet.
    """
    return (raced_check(record), *_speed_checks(record))


def raced_check(record: Record) -> Check:
    """The parity of the race's own prompt; void where its record compares nothing with mlx-lm."""
    compared, prompt_tokens = raced_parity(record), record.experiment["workload"]["prompt_tokens"]
    found = describe(compared) if compared else "its record holds no comparison"
    return _parity(str(Arm("").kv), "race", prompt_tokens, _status(compared), found)


def _status(compared: Mapping[str, Any]) -> Status:
    """What a comparison with mlx-lm is as a check: the oracle's own failure is no evidence either way."""
    if not compared or "unavailable" in compared:
        return "void"
    return "passed" if is_equal(compared) and not compared.get("itself") else "failed"


def _speed_checks(record: Record) -> tuple[Check, Check]:
    quiet = record.quiet.get("quiet") is True
    reasons = "; ".join(map(str, record.quiet.get("reasons", ()))) or "its probes say so"
    axis = decode_axis(record)
    if axis is None:
        return _quietness(quiet, reasons), Check(
            "decode", "void", "too few pairs were measured for an interval"
        )
    interval = f"{axis.estimate:.3f}x mlx-lm ({axis.low:.3f} to {axis.high:.3f}), {axis.n} {axis.unit}s"
    holds = axis.low >= FLOOR
    end = f"the lower end {'reaches' if holds else 'does not reach'} {FLOOR}"
    wide = "; more --pairs narrow the interval" if not holds and axis.high >= FLOOR else ""
    found = f"{interval}: {end}{wide}"
    status: Status = ("passed" if holds else "failed") if quiet else "void"
    return _quietness(quiet, reasons), Check("decode", status, found)


def speed_skipped(checks: Sequence[Check]) -> Check:
    """The check of a race that was not run: what is not shown to be the same need not be as fast."""
    failed = any(check.status == "failed" for check in checks)
    why = "parity failed" if failed else "mlx-lm had nothing to compare with"
    return Check("decode", "skipped", f"not measured, since {why}")


def open_checks() -> tuple[Check, ...]:
    """What nothing checks yet."""
    return tuple(Check(name, "open", found) for name, found in OPEN.items())


def _quietness(quiet: bool, reasons: str) -> Check:
    return Check("quiet machine", "passed" if quiet else "void", "every probe held" if quiet else reasons)


def _parity(kv: str, where: str, prompt_tokens: int, status: Status, found: str) -> Check:
    return Check(
        f"parity {kv}, {where}", status, f"{prompt_tokens} prompt tokens: {found}", kv, prompt_tokens
    )
