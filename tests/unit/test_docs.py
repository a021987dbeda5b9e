"""The documentation: builds offline without a warning, executes its examples, names every command and API."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.main import get_command

import labkit
from labkit.cli.app import app
from tests.unit.shipped import NOTEBOOKS

ROOT = Path(labkit.__file__).parent.parent
DOCS = ROOT / "docs"
# A proxy that refuses: whoever tries to download anything fails at once.
OFFLINE = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built pages, made of a copy of docs/ beside the package."""
    folder = tmp_path_factory.mktemp("docs")
    unwanted = shutil.ignore_patterns("_build", "__pycache__", "api", "commands.md")
    shutil.copytree(DOCS, folder / "docs", ignore=unwanted)
    shutil.copytree(ROOT / "notebooks", folder / "notebooks", ignore=shutil.ignore_patterns(".*"))
    shutil.copy(ROOT / "notebooks" / NOTEBOOKS[0], folder / "notebooks" / "somebodys-own.ipynb")
    shutil.copy(ROOT / "CONTRIBUTING.md", folder)
    (folder / "labkit").symlink_to(ROOT / "labkit")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "docs", "site"]
    environ = {**os.environ, **OFFLINE, "no_proxy": "127.0.0.1", "TMPDIR": str(folder)}
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=280
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-4000:]
    return folder / "site"


def text_of(page: Path) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8")))


def commands(command: object, path: str) -> Mapping[str, list[str]]:
    """Every command of the app: its full name -> its long options."""
    found: dict[str, list[str]] = {}
    for name, member in getattr(command, "commands", {}).items():
        found |= commands(member, f"{path} {name}")
    if not found:
        options = [o for p in getattr(command, "params", ()) for o in p.opts if o.startswith("--")]
        found[path] = options
    return found


@pytest.mark.slow
def test_examples_were_executed(site: Path) -> None:
    assert "prefill" in text_of(site / "guide" / "step_by_hand.html")
    verdicts = text_of(site / "guide" / "experiments.html")
    assert re.search(r"decode_tps[^a-z]*worse", verdicts)
    assert "one of the bits that 'affine' stores" in text_of(site / "guide" / "step_by_hand.html")
    assert "trade-off" in verdicts
    for page in (site / "guide").glob("*.html"):
        assert "Traceback" not in text_of(page), page.name


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loaded = re.compile(r"<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=\"(?:https?:)?//[^\"]+\"[^>]*>")
    remote = re.compile(r"url\(\s*['\"]?(?:https?:)?//|@import\s+['\"]?https?:")
    for page in site.rglob("*.html"):
        assert not loaded.search(page.read_text(encoding="utf-8")), page
    for sheet in site.rglob("*.css"):
        assert not remote.search(sheet.read_text(encoding="utf-8")), sheet


@pytest.mark.slow
def test_every_command_and_option_is_in_the_reference(site: Path) -> None:
    page = text_of(site / "reference" / "commands.html")
    found = commands(get_command(app), "labkit")
    assert {"labkit run", "labkit models get", "labkit new experiment"} <= set(found)
    for command, options in found.items():
        assert command in page
        for option in options:
            assert option in page, f"{command} {option}"


@pytest.mark.slow
def test_every_public_name_is_in_the_reference(site: Path) -> None:
    page = (site / "reference" / "public.html").read_text(encoding="utf-8")
    for name in labkit.__all__:
        if name != "__version__":
            assert f'id="{name.lower().replace("_", "-")}"' in page, name


@pytest.mark.slow
def test_the_notebooks_are_there(site: Path) -> None:
    """Those that are shipped, nobody's own beside them; the one on null models with its outputs."""
    pages = {page.stem for page in (site / "notebooks").glob("*.html")}
    assert pages == {Path(name).stem for name in NOTEBOOKS}
    assert "GRAVEYARD.md has its line" in text_of(site / "notebooks" / "05_promote.html")


def test_no_command_of_the_guide_is_made_up() -> None:
    known = commands(get_command(app), "labkit")
    pages = [*(DOCS / "guide").glob("*.md"), DOCS / "index.md", ROOT / "CONTRIBUTING.md"]
    for page in pages:
        for line in re.findall(r"^labkit [^#\n]*|`labkit [^`]+`", page.read_text(encoding="utf-8"), re.M):
            words = line.strip("`").split()
            if words[1].startswith("--") or words[1].isupper():
                continue
            name = next((n for n in (" ".join(words[:3]), " ".join(words[:2])) if n in known), None)
            assert name, f"{page.name}: {line}"
            for option in re.findall(r"(?<!\S)--[a-z-]+", line.partition("&&")[0]):
                assert option in known[name], f"{page.name}: {line}"


@pytest.mark.parametrize(
    ("line", "rest"),
    [
        ("a `name` and |log ratio|", "a ``name`` and \\|log ratio\\|"),
        ("`kv_bits`s of a *list", "``kv_bits``\\ s of a \\*list"),
        ("a trailing_ name_of things", "a trailing\\_ name_of things"),
    ],
)
def test_docstrings_mean_what_they_say_in_rest(line: str, rest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS / "_extensions"))
    assert __import__("docstrings").to_rest([line, ""]) == [rest, ""]


def test_tables_of_docstrings_stay_as_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS / "_extensions"))
    made = __import__("docstrings").to_rest(["Head.", "", "| a | b |", "|---|---|", "", "Tail."])
    assert made == ["Head.", "", "::", "", "   | a | b |", "   |---|---|", "", "", "Tail."]
