"""Renewal: an open experiment is given longer, once. Its file stays as it is, since records name its hash."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path

from labkit.core.decision import Decision, Renewal
from labkit.engine.shield import uninterrupted
from labkit.lab.deciding.decided import Decided
from labkit.lab.deciding.ledger import MOST_DAYS, TORN, Ledger, days, lab_root, latest_expiry, read_ledger
from labkit.lab.deciding.refusal import refused, unsaid
from labkit.store.decisions import deciding
from labkit.store.renewals import add_renewal


def renew(
    name: str,
    *,
    until: str | date,
    why: str,
    root: str | Path | None = None,
    today: date | None = None,
) -> Decided:
    """Give an open experiment until a later date; a second time is refused.

    until: an ISO date after today and after the present expiry, and within MOST_DAYS. root: the lab; None
    takes the nearest folder upwards with experiments/. Raises DecisionRefused with every reason,
    RecipeInvalid where a file of decisions is broken.
    """
    place, now = lab_root(root), today or datetime.now(UTC).date()
    with deciding(place):
        ledger = read_ledger(place)
        reasons = [*unsaid(why), *_against(ledger, name, str(until), now)]
        if reasons:
            raise refused(name, "renewed", reasons)
        file = ledger.the_file(name)
        renewal = Renewal(name, _date(str(until)).isoformat(), why.strip(), now.isoformat())
        with uninterrupted():
            add_renewal(place, renewal)
    before = ledger.expiry(file)
    decision = Decision("renewed", name, renewal.decided_at, renewal.why, f"until {renewal.until}")
    lines = (
        ("expires", f"{renewal.until}, {days((_date(renewal.until) - now).days)} from now (was {before})"),
        ("file", f"{ledger.shown(file.path)}, unchanged"),
        ("next", f"labkit promote {name} or labkit delete {name} by then; no second renewal"),
        ("commit", "git add experiments/renewed.toml"),
    )
    return Decided(decision, file.path, lines)


def _against(ledger: Ledger, name: str, until: str, today: date) -> Iterator[str]:
    if ledger.decided(name):
        yield f"state: an open experiment is needed, got {ledger.decided(name)}"
        return
    if ledger.torn_reopening(name):
        yield f"state: an open experiment is needed, {TORN}; labkit revalidate {name} ends that"
        return
    file, renewal = ledger.the_file(name), ledger.renewal(name)
    if renewal is not None:
        got = f"until {renewal.until}, on {renewal.decided_at}: {renewal.why}"
        yield f"state: one that was not renewed yet is needed, got renewed {got}; promote or delete it"
    expiry = ledger.expiry(file)
    if expiry is None:
        yield f"file: one that loads is needed, got: {file.problem}"
    try:
        wanted = _date(until)
    except ValueError:
        yield f"until: a date such as 2027-02-01 is needed, got {until!r}"
        return
    for what, least in (("today", today), ("its expiry", expiry)):
        if least is not None and wanted <= least:
            yield f"until: a date after {what}, {least}, is needed, got {wanted}"
    latest = latest_expiry(today)
    if wanted > latest:
        yield f"until: a date within {MOST_DAYS} days, by {latest}, is needed, got {wanted}"


def _date(text: str) -> date:
    """Raises ValueError for other ways to write a date that ISO 8601 knows, such as weeks."""
    found = date.fromisoformat(text)
    if text != found.isoformat():
        raise ValueError(text)
    return found
