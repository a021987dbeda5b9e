"""Resume: go on with a saved session, in this process or another, bit for bit."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from labkit.core.errors import ModelUnavailable, SessionFailed
from labkit.core.own_class import class_label, import_class
from labkit.engine.load import load
from labkit.engine.model import Model
from labkit.engine.session import Session
from labkit.engine.session_file import UNREADABLE, SavedSession, not_whole, read_session, versions
from labkit.plan.values import is_token


def resume(path: str | os.PathLike[str], *, model: Model | None = None, kv: type | None = None) -> Session:
    """The session that `session.save(path)` wrote, ready for its next step.

    model: the loaded model, where it is at hand; None loads it again from where it was. kv: the class of a
    KV scheme of one's own, where no import finds it; the file holds its name alone. Raises SessionFailed
    where the file is damaged, the model's content, the backend or a deciding version differs, so that the
    rest would not be what it would have been; and without the class that the session had.
    """
    file = Path(path)
    saved = read_session(file)
    try:
        return _restored(saved, model, kv)
    except UNREADABLE as error:
        raise not_whole(file, error) from error


def _restored(saved: SavedSession, model: Model | None, kv: type | None) -> Session:
    model = model or _load(saved)
    _check("the model that was saved with it", saved.model["fingerprint"], model.profile.fingerprint)
    for name, version in versions().items():
        _check(f"the {name} that it was saved under", saved.versions.get(name), version)
    saved = replace(saved, request=replace(saved.request, kv_class=_own_scheme(saved, model, kv)))
    plan = model.resolve(saved.request)
    _check("the plan that it was saved under", saved.plan, plan.hash(), f" (on {plan.backend})")
    strange = [token for token in saved.tokens if not is_token(token, model.profile.vocab_size)]
    if strange:
        raise ValueError(f"{strange[0]!r} is no token of the model")
    return Session.restored(model, plan, saved)


def _own_scheme(saved: SavedSession, model: Model, given: type | None) -> type | None:
    """The class that the saved name is the label of, given or imported; None for a scheme of the catalog."""
    label = saved.request.kv
    if label.partition(":")[0] in model.engine.catalog.kv:
        return None
    found = given or import_class(label)
    if found is None or class_label(found) != label:
        got = "none" if found is None else class_label(found)
        next_step = f"labkit.resume(path, kv={label.partition('@')[0]}), with the class as it was"
        raise SessionFailed(f"the KV scheme {label} was needed", got=got, next_step=next_step)
    return found


def _load(saved: SavedSession) -> Model:
    try:
        return load(saved.model["source"])
    except ModelUnavailable as error:
        raise SessionFailed(
            f"the model of the session was needed: {saved.model['name']}",
            got=str(error).splitlines()[0],
            next_step="labkit.resume(path, model=labkit.load(...))",
        ) from error


def _check(what: str, saved: object, here: object, note: str = "") -> None:
    if saved != here:
        raise SessionFailed(f"{what} was needed: {saved}", got=f"{here}{note}")
