"""A process whose batch ran on a thread of its own ends as any other."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import labkit
with labkit.load("smollm2").batch().turn_alone() as batch:
    print(len(batch.session("Hello there", max_tokens=4, stop_tokens=()).run().tokens))
"""


def test_it_ends_with_0_after_the_thread_has_ended() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "4"), done.stderr
