"""The README's Python runs as it stands, block after block in one session."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_its_blocks_run(smollm2_path: Path, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 3
    command = [sys.executable, "-W", "error::UserWarning", "-c", "\n".join(blocks)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "prefill" in done.stdout
    assert (tmp_path / "half-done.safetensors").is_file()
