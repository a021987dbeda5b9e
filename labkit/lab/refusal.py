"""Refusal: every reason why a decision is not made, in one message; and what is wrong with given words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from labkit.core.errors import DecisionRefused


def refused(name: str, verb: str, reasons: Sequence[str], next_step: str | None = None) -> DecisionRefused:
    """One message with all reasons. verb: `promoted`, `deleted` or `renewed`."""
    listed = "\n".join(f"- {reason}" for reason in reasons)
    return DecisionRefused(f"{name} cannot be {verb}:\n{listed}", next_step=next_step)


def unsaid(why: str) -> Iterator[str]:
    """What is wrong with the reason that a person gave; nothing where it can be kept."""
    if not why.strip():
        yield "why: a reason in words is needed, got none"
    yield from unwritable("why", why)


def unwritable(what: str, text: str) -> Iterator[str]:
    """What is wrong with a text that is to stand in a file of decisions."""
    if text != text.encode("utf-8", "replace").decode("utf-8"):
        yield f"{what}: text in Unicode is needed, got bytes of another encoding"
