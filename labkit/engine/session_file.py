"""Session file: a half-done session on disk, whole or not at all. Knows the file, not models or methods.

A safetensors file: the arrays of the execution, and one JSON text in its metadata with everything else and a
hash over both. Nothing in it is executed when it is read.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from labkit.core.errors import SessionFailed
from labkit.core.kv_file import KVFile
from labkit.core.request import Request
from labkit.core.sampling import Sampling
from labkit.core.taps import Taps
from labkit.engine.method import Execution, Frozen, Saving

if TYPE_CHECKING:
    from labkit.engine.session import Session

SCHEMA = 1
_KEY = "labkit_session"
# What data of another shape than a session's makes of the code that reads it.
UNREADABLE = (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError)
# A different version may compute other bits, so a session does not go on under it.
_DECIDING = ("mlx", "mlx-lm")


@dataclass(frozen=True, slots=True)
class SavedSession:
    """model: name, source and fingerprint. plan: its hash. frozen: None where nothing was started."""

    model: Mapping[str, Any]
    plan: str
    request: Request
    tokens: tuple[int, ...]
    state: str
    kv_bytes: int
    versions: Mapping[str, str]
    frozen: Frozen | None


def versions() -> dict[str, str]:
    """The installed versions that decide numerics."""
    return {name: metadata.version(name) for name in _DECIDING}


def write_session(
    session: Session, execution: Execution | None, model: Mapping[str, Any], path: Path
) -> Path:
    """Write a session between two steps by a rename at the end. Raises SessionFailed where it cannot be."""
    own = _own_code(session.request)
    if own:
        raise SessionFailed(
            "a request made of data was needed to save a session",
            got=f"{' and '.join(own)} of your own",
            next_step="use Sampling(...) in their place, or fork() within this process",
        )
    frozen = cast(Saving, execution).freeze() if execution else None
    text = json.dumps(
        {
            "schema": SCHEMA,
            "model": dict(model),
            "plan": session.plan.hash(),
            "request": _request_data(session.request),
            "tokens": list(session.tokens),
            "session_state": str(session.state),
            "kv_bytes": session.kv_bytes,
            "versions": versions(),
            "state": frozen.state if frozen else None,
        }
    )
    arrays = dict(frozen.arrays) if frozen else {}
    content = save(arrays, {_KEY: text, "sha256": _digest(text, arrays)})
    return _write_whole(path, content)


def read_session(path: Path) -> SavedSession:
    """Read a saved session. Raises SessionFailed with one message for what is none, or is damaged."""
    try:
        if path.exists() and not path.is_file():
            raise ValueError("a folder, pipe or device")
        text, arrays = _read_checked(path)
        data = json.loads(text)
        return SavedSession(
            model=data["model"],
            plan=data["plan"],
            request=_request(data["request"]),
            tokens=tuple(data["tokens"]),
            state=data["session_state"],
            kv_bytes=data["kv_bytes"],
            versions=data["versions"],
            frozen=None if data["state"] is None else Frozen(data["state"], tuple(data["tokens"]), arrays),
        )
    except (*UNREADABLE, OSError, SafetensorError, MemoryError) as error:
        raise not_whole(path, error) from error


def not_whole(path: Path, error: Exception) -> SessionFailed:
    """The one message for a file that is no session, or a damaged one."""
    absent = isinstance(error, FileNotFoundError)
    return SessionFailed(
        f"a whole session saved by labkit was needed: {path.name}",
        got=f"{path.absolute()}: no such file" if absent else f"{type(error).__name__}: {error}",
        next_step="check the path" if absent else "save the session again",
    )


def _read_checked(path: Path) -> tuple[str, dict[str, np.ndarray]]:
    with safe_open(path, framework="numpy") as file:
        about = file.metadata() or {}
        if _KEY not in about:
            raise ValueError("no session in it")
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    text = about[_KEY]
    if about.get("sha256") != _digest(text, arrays):
        raise ValueError("its content is not what was written")
    schema = json.loads(text)["schema"]
    if schema != SCHEMA:
        raise ValueError(f"schema {schema}; this labkit reads {SCHEMA}")
    return text, arrays


def _digest(text: str, arrays: Mapping[str, np.ndarray]) -> str:
    content = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        content.update(f"{name} {array.dtype} {array.shape}".encode())
        content.update(np.ascontiguousarray(array).data)
    return content.hexdigest()


def _own_code(request: Request) -> list[str]:
    found = {
        "a sampler": request.sampler,
        "logits processors": request.logits_processors,
        "a tap's call": request.taps.call,
    }
    return [name for name, value in found.items() if value]


def _request_data(request: Request) -> dict[str, Any]:
    """Data only: of a KV scheme of one's own its label."""
    return asdict(replace(request, sampler=None, logits_processors=(), kv_class=None))


def _request(data: Mapping[str, Any]) -> Request:
    plain = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
    parts = {"sampling": _sampling(data["sampling"]), "taps": Taps(**data["taps"])}
    file = data.get("kv_file")
    return Request(**{**plain, **parts, "kv_file": None if file is None else KVFile(**file)})


def _sampling(data: Mapping[str, Any]) -> Sampling:
    return Sampling(**{**data, "logit_bias": tuple((i, value) for i, value in data["logit_bias"])})


def _write_whole(path: Path, content: bytes) -> Path:
    temporary = None
    try:
        if path.exists() and not path.is_file():
            # A rename would put a plain file in the place of a device.
            raise SessionFailed(
                "the name of a file was needed to save a session", got=f"{path}, which is none"
            )
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        temporary = Path(name)
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(0o644)
        return temporary.replace(path)
    except (OSError, ValueError) as error:
        raise SessionFailed(
            f"{len(content) / 1e6:.1f} MB that can be written were needed for {path}",
            got=getattr(error, "strerror", None) or error,
            next_step="name a file in a folder that exists, on a disk with room",
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
