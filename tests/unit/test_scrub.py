"""What must not stand in a record: paths, host and user names."""

from __future__ import annotations

import getpass
import platform
from pathlib import Path

import pytest

from labkit.lab.measuring.scrub import scrub


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ('File "/opt/venv/lib/site.py", line 3', 'File ".../site.py", line 3'),
        ("no such file: /a/b/c.safetensors", "no such file: .../c.safetensors"),
        ("a/b and 3/4 and https://example.org/x/y stay", "a/b and 3/4 and https://example.org/x/y stay"),
        ("1 / 2", "1 / 2"),
        ("/tmp alone", "/tmp alone"),
    ],
)
def test_absolute_paths_keep_their_last_part(text: str, clean: str) -> None:
    assert scrub(text) == clean


def test_home_and_given_folders_become_a_tilde(tmp_path: Path) -> None:
    text = f"{Path.home()}/models/x and {tmp_path}/results/y"
    assert scrub(text, tmp_path) == "~/models/x and ~/results/y"


def test_host_and_user_are_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "node", lambda: "lab-7")
    monkeypatch.setattr(getpass, "getuser", lambda: "mirja")
    assert scrub("mirja on lab-7: admirjant") == "user on host: admirjant"
