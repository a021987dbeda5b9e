"""Shards: the index of a model in several weight files, checked against the files themselves.

mlx-lm reads every weight file and never the index; an index that disagrees tells of a copy that is not whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from labkit.core.errors import ModelUnavailable
from labkit.model.wording import first_names, one_line

INDEX = "model.safetensors.index.json"
LARGEST = 1 << 26
_MOST = 10_000
_SHARD = re.compile(r"(?P<stem>.+-)\d{5}-of-(?P<count>\d{5})\.safetensors")
Index = Mapping[str, str]


def read_index(file: Path) -> Index | None:
    """Tensor name -> file name of an index; None where there is no index.

    Raises ModelUnavailable where it is damaged, or names what is not a file beside it.
    """
    if not file.exists():
        return None
    weight_map = _weight_map(file)
    outside = sorted({name for name in weight_map.values() if Path(name).name != name or "\\" in name})
    if outside:
        raise damaged_shards(
            f"a path that leads elsewhere: {first_names(outside)}", "only file names may stand in an index"
        )
    return weight_map


def check_files(index: Index | None, present: Sequence[str], directory: Path) -> None:
    """Raise ModelUnavailable where a shard is missing, or one is there that the index does not name."""
    named = set(index.values()) if index is not None else _named_by(present)
    missing, foreign = named - set(present), set(present) - named
    if missing or not present:
        raise ModelUnavailable(
            "weights (model*.safetensors) were needed in the model directory",
            got=f"missing {first_names(sorted(missing))}" if missing else f"none in {directory}",
            next_step="fetch the model again, or name the directory that holds its weights",
        )
    if foreign:
        raise damaged_shards(
            f"{first_names(sorted(foreign))}, which the index does not name", "move it to another folder"
        )


def _named_by(present: Sequence[str]) -> set[str]:
    """The files that belong together by their own numbers, where no index names them."""
    named = set(present)
    for found in filter(None, map(_SHARD.fullmatch, present)):
        count = min(int(found["count"]), _MOST)
        named |= {f"{found['stem']}{i:05}-of-{found['count']}.safetensors" for i in range(1, count + 1)}
    return named


def check_places(index: Index | None, places: Mapping[str, str]) -> None:
    """Raise ModelUnavailable where a tensor of the index is not in the file that the index names."""
    wrong = sorted(name for name, file in (index or {}).items() if places.get(name) != file)
    if wrong:
        raise damaged_shards(f"not where the index says: {first_names(wrong)}")


def damaged_shards(got: str, next_step: str = "fetch the model again") -> ModelUnavailable:
    """The error of weight files that do not belong together."""
    return ModelUnavailable(f"weight files that fit {INDEX} were needed", got=got, next_step=next_step)


def _weight_map(file: Path) -> dict[str, str]:
    try:
        if not file.is_file() or file.stat().st_size > LARGEST:
            raise ValueError("no file of fitting size")
        data: Any = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise damaged_shards(f"an index that is no JSON: {one_line(error)}") from error
    weight_map = data.get("weight_map") if isinstance(data, dict) else None
    if not isinstance(weight_map, dict) or not all(isinstance(v, str) for v in weight_map.values()):
        raise damaged_shards("an index without a weight_map of names")
    return weight_map
