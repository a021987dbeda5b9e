"""Python of the guide that needs a model with weights runs as it stands, page by page.

`{code-cell}`s are executed where the documentation is built, on models without weights.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guide"


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


PAGES = tuple(sorted(page.name for page in GUIDE.glob("*.md") if blocks(page)))


def test_there_are_such_pages() -> None:
    assert "kv-schemes.md" in PAGES


@pytest.mark.parametrize("name", PAGES)
def test_its_blocks_run(name: str, smollm2_path: Path, tmp_path: Path) -> None:
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks(GUIDE / name)), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
