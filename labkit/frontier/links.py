"""Links: where a record lies as seen from a picture or a page. Reads and writes no files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    import pandas


def linked(frame: pandas.DataFrame, root: Path, folder: Path) -> pandas.DataFrame:
    """The frame with a column `link`: the URL of each row's `record`, below `root`, relative to `folder`."""
    top, start = root.resolve(), folder.resolve()
    return frame.assign(
        link=[quote(Path(os.path.relpath(top / p, start)).as_posix()) for p in frame["record"]]
    )
