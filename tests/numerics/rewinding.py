"""What caches say when tokens are taken back."""

from __future__ import annotations

from labkit.core.errors import SessionFailed
from labkit.engine.session import Session


def rewound(session: Session, count: int) -> str | None:
    """None where the caches gave the tokens back, else why not."""
    try:
        session.rewind(count)
    except SessionFailed as refused:
        return str(refused)
    return None
