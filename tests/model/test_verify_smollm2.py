"""`labkit verify` on the bundled model with real workers and a real race: its flow, not its timing."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from labkit.core.arm import Workload
from labkit.lab.verifying import head_to_head
from labkit.lab.verifying.badge import here
from labkit.lab.verifying.head_to_head import decode_axis
from labkit.lab.verifying.verify import verify
from labkit.store.badges import read_badges
from labkit.store.read import read_record
from tests.unit.command_line import labkit


@pytest.mark.slow
@pytest.mark.timeout(900)  # a race is made again where a machine that others use disturbs it
def test_the_bundled_model_has_mlx_lms_bits_and_a_badge_where_the_race_carries_it(
    smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_to_head, "WORKLOAD", Workload(prompt_tokens=9, new_tokens=8))
    (tmp_path / "experiments").mkdir()
    found = verify(smollm2_path, pairs=8, root=tmp_path, lease=tmp_path / "lease")
    parity = [(c.kv, c.prompt_tokens, c.status) for c in found.checks if c.is_parity]
    expected = [(kv, prompt) for kv in ("bf16", "affine:8") for prompt in (7, 257, 290)]
    assert parity == [(*which, "passed") for which in (*expected, ("bf16", 9))]
    assert found.record is not None
    record = read_record(found.record)
    axis = decode_axis(record)
    assert axis is not None and axis.n == 8
    # Whether this machine was quiet decides the badge, and is nothing to assert.
    assert found.verified == (record.quiet["quiet"] and axis.low >= 0.98)
    assert [b.lower_bound for b in read_badges(tmp_path).found] == ([axis.low] if found.verified else [])
    shown = json.loads(labkit("models", "show", smollm2_path, "--root", tmp_path, "--json").out)
    told = shown["artifact"]["verification"]
    assert (told["verified"] if told else False) == found.verified
    if found.badge is not None:
        sha256 = hashlib.sha256(found.record.read_bytes()).hexdigest()
        assert [item.sha256 for item in found.badge.records] == [sha256]
        assert found.badge.packages == here().packages
