"""Hub: repositories of the Hugging Face hub, fetched into the hub client's own cache.

Asks what there is and how large it is before a byte is fetched. Large files go through `resume`, since the
client starts a file anew in every process; the client does the rest, so other programs share the cache.
What becomes of the files is `sources`'s. Imports no mlx.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit.core.errors import ModelUnavailable
from labkit.core.events import Note, Progress, Sink, silent
from labkit.model.hub.download import Download, fetched_bytes, resume
from labkit.model.hub.errors import Unreachable, one_hub_message
from labkit.model.hub.progress import bar_class
from labkit.model.origin import FILE
from labkit.model.soundness import check_directory
from labkit.model.staging import Room, require_rooms
from labkit.model.wording import first_names, one_line

# What mlx-lm fetches (mlx_lm.utils.DEFAULT_ALLOW_PATTERNS), so that both share one snapshot in the hub cache.
HUB_PATTERNS = (
    *("*.json", "model*.safetensors", "*.py", "tokenizer.model", "*.tiktoken"),
    *("tiktoken.model", "*.txt", "*.jsonl", "*.jinja"),
)
# The client fetches smaller files in less time than a second request takes.
RESUMED_BYTES = 1 << 20
_ANSWER_S = 20.0
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NEXT = "free some space, or set HF_HOME and LABKIT_HOME to folders on a larger disk"


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file. blob: what the cache calls its content; sha256 of it where the hub states one."""

    name: str
    size: int
    blob: str
    sha256: str | None


@dataclass(frozen=True, slots=True)
class Repository:
    """What a repository holds at a commit.

    stored: numbers by safetensors code, and parameters: of a GGUF model, where the hub states them.
    """

    name: str
    commit: str
    files: tuple[HubFile, ...]
    stored: Mapping[str, int] = field(default_factory=dict)
    parameters: int = 0

    def ggufs(self) -> list[str]:
        """The GGUF files."""
        return sorted(f.name for f in self.files if f.name.endswith(".gguf"))

    def chosen(self, patterns: Sequence[str]) -> list[HubFile]:
        """The files that match, as the hub client matches, less another's labkit.json."""
        from huggingface_hub.utils import filter_repo_objects

        wanted = {"allow_patterns": list(patterns), "ignore_patterns": [FILE]}
        return list(filter_repo_objects(self.files, **wanted, key=lambda f: f.name))


def read_repository(name: str) -> Repository:
    """What a repository holds. Raises ModelUnavailable; Unreachable where the hub cannot be reached."""
    from huggingface_hub import HfApi

    with one_hub_message(name):
        info = HfApi(library_name="labkit").model_info(name, files_metadata=True, timeout=_ANSWER_S)
        files = tuple(_file(s) for s in info.siblings or ())
        stored = dict(info.safetensors.parameters) if info.safetensors else {}
        total = (info.gguf or {}).get("total")
        parameters = total if isinstance(total, int) else 0
        return Repository(name, info.sha or "", files, stored, parameters)


def fetch_model(name: str, sink: Sink = silent, room: Callable[[Repository], Room] | None = None) -> Path:
    """The snapshot directory of a model in safetensors, fetched where it is not there yet.

    room: what is needed besides. Raises ModelUnavailable where the hub does not give it or it is no such
    model, LabkitError where the disk is too full. Without a connection, a snapshot that is whole is taken.
    """
    try:
        repository = read_repository(name)
    except Unreachable as error:
        cached = _cached_snapshot(name)
        if cached is None:
            raise
        sink(Note(f"{name} is taken as it was fetched before, without asking the hub: {error.got}"))
        return cached
    _check_model(repository)
    return _fetch(repository, HUB_PATTERNS, sink, room(repository) if room else None)


def fetch_files(
    repository: Repository, names: Sequence[str], sink: Sink = silent, room: Room | None = None
) -> list[Path]:
    """Some files of a repository, in the snapshot directory. Raises as `fetch_model` does."""
    absent = sorted(set(names) - {f.name for f in repository.files})
    if absent:
        raise ModelUnavailable(
            f"a file of {repository.name} was needed",
            got=f"no {first_names(absent)}",
            options=[f"{repository.name}:{name}" for name in repository.ggufs()[:12]],
        )
    snapshot = _fetch(repository, names, sink, room)
    return [snapshot / name for name in names]


def _file(stated: Any) -> HubFile:
    """stated: a RepoSibling with its metadata."""
    sha256 = stated.lfs.sha256 if stated.lfs else None
    return HubFile(stated.rfilename, stated.size or 0, sha256 or stated.blob_id or "", sha256)


def _check_model(repository: Repository) -> None:
    names = [f.name for f in repository.files]
    weights = [f.name for f in repository.chosen(("model*.safetensors",)) if "/" not in f.name]
    if "config.json" in names and weights:
        return
    ggufs = repository.ggufs()
    if ggufs:
        raise ModelUnavailable(
            f"the name of one GGUF file was needed: {repository.name} has no safetensors model",
            got=repository.name,
            options=[f"{repository.name}:{one_line(name, 120)}" for name in ggufs[:24]],
            next_step=f"labkit models get {repository.name}:{one_line(ggufs[0], 120)}",
        )
    missing = "no config.json" if "config.json" not in names else "no model*.safetensors"
    raise ModelUnavailable(
        f"a model in safetensors or GGUF was needed: {repository.name}",
        got=f"{missing}; it holds {first_names(sorted(names)) or 'nothing'}",
        next_step="name another repository, or convert this one to safetensors",
    )


def _fetch(repository: Repository, patterns: Sequence[str], sink: Sink, room: Room | None) -> Path:
    from huggingface_hub import snapshot_download

    blobs = _blobs(repository.name)
    missing = [f for f in repository.chosen(patterns) if not (blobs / f.blob).is_file()]
    needed = sum(f.size - fetched_bytes(blobs / f.blob) for f in missing)
    sink(Progress("fetch", 0, None, repository.name))
    with one_hub_message(repository.name):
        if missing:
            rooms = [Room(blobs.parent.parent, needed), *([room] if room else ())]
            besides = " and what is made of it" if room and room.nbytes else ""
            require_rooms(rooms, f"fetching {repository.name}{besides}", _NEXT)
            blobs.mkdir(parents=True, exist_ok=True)
        _resume(repository, missing, blobs, sink)
        # Not by commit, since the client then notes which one `main` is, for use without a connection.
        bars = bar_class(sink, repository.name)
        only: dict[str, Any] = {"allow_patterns": list(patterns), "ignore_patterns": [FILE]}
        return Path(snapshot_download(repository.name, **only, tqdm_class=bars))


def _resume(repository: Repository, missing: Iterable[HubFile], blobs: Path, sink: Sink) -> None:
    """Fetch the large files of known content straight to where the client would put them."""
    from huggingface_hub import hf_hub_url
    from huggingface_hub.constants import MAX_HTTP_DOWNLOAD_SIZE

    for file in missing:
        known = file.sha256 is not None and _SHA256.fullmatch(file.sha256)
        if known and file.sha256 and RESUMED_BYTES <= file.size <= MAX_HTTP_DOWNLOAD_SIZE:
            url = hf_hub_url(repository.name, file.name, revision=repository.commit)
            note = f"{repository.name} {file.name}"
            resume(Download(url, blobs / file.blob, file.size, file.sha256), bar_class(sink, note))


def _cached_snapshot(name: str) -> Path | None:
    """What an earlier call has fetched, where all of it is there."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        found = Path(snapshot_download(name, allow_patterns=list(HUB_PATTERNS), local_files_only=True))
        check_directory(found)
    except (LocalEntryNotFoundError, ModelUnavailable):
        return None
    return found


def _blobs(name: str) -> Path:
    """Where the client's cache keeps the contents of a repository's files."""
    from huggingface_hub import constants

    return (
        Path(constants.HF_HUB_CACHE).expanduser().resolve() / f"models--{name.replace('/', '--')}" / "blobs"
    )
