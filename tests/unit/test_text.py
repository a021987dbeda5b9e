"""Evaluation text: documents, halves, windows and refusals. The bundled prose is checked as shipped."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from labkit.core.errors import ScoreInvalid, TextUnusable
from labkit.evals.text import load_text
from labkit.model.windows import Window, Windows


def by_character(text: str) -> list[int]:
    return [ord(character) for character in text]


def folder_of(path: Path, count: int, letters: int = 10) -> Path:
    path.mkdir(exist_ok=True)
    for n in range(count):
        (path / f"{n:02d}.txt").write_text(chr(ord("a") + n) * letters)
    return path


def test_prose_is_bundled_in_two_halves() -> None:
    text = load_text("prose")
    assert len(text.documents) == 24
    assert len(text.of("tune")) == len(text.of("promote")) == 12
    assert {d.sha256 for d in text.of("tune")}.isdisjoint(d.sha256 for d in text.of("promote"))
    assert [d.name for d in text.documents] == sorted(d.name for d in text.documents)
    assert "README.md" not in {d.name for d in text.documents}


def test_prose_documents_have_the_length_they_claim() -> None:
    for document in load_text("prose").documents:
        words = [word for word in document.text.split() if re.search(r"\w", word)]
        assert 380 <= len(words) <= 420, document.name


def test_split_depends_on_content_and_salt_only(tmp_path: Path) -> None:
    halves = {d.sha256: d.split for d in load_text(folder_of(tmp_path / "one", 9)).documents}
    renamed = folder_of(tmp_path / "two", 9)
    for n, file in enumerate(sorted(renamed.iterdir(), reverse=True)):
        file.rename(renamed / f"x{n}.md")
    assert {d.sha256: d.split for d in load_text(renamed).documents} == halves
    assert sorted(halves.values()).count("tune") == 4
    salted = {d.sha256: d.split for d in load_text(renamed, salt="another").documents}
    assert salted != halves


def test_hash_follows_content_and_salt(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "text", 4)
    first = load_text(folder).hash()
    assert load_text(folder).hash() == first
    assert load_text(folder, salt="another").hash() != first
    (folder / "00.txt").write_text("changed")
    assert load_text(folder).hash() != first


def test_equal_documents_share_a_half(tmp_path: Path) -> None:
    file = tmp_path / "song.txt"
    file.write_text("\n\n".join(["refrain", "verse one", "refrain", "verse two", "refrain"]))
    refrains = {d.split for d in load_text(file).documents if d.text == "refrain"}
    assert len(refrains) == 1


def test_file_is_split_at_blank_lines(tmp_path: Path) -> None:
    file = tmp_path / "own.txt"
    file.write_bytes(b"\xef\xbb\xbfone\r\nstill one\r\n\r\n\r\ntwo\n \t\nthree\n")
    documents = load_text(str(file)).documents
    assert [d.text for d in documents] == ["one\nstill one", "two", "three"]
    assert [d.name for d in documents] == ["own.txt#1", "own.txt#2", "own.txt#3"]


def test_folder_takes_text_files_only(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name, content in {"b.md": "b", "a.txt": "a", "sub/c.txt": "c", "d.bin": "d", "e.txt": " \n"}.items():
        (tmp_path / name).write_text(content)
    assert [d.name for d in load_text(tmp_path).documents] == ["a.txt", "b.md", "sub/c.txt"]


def test_windows_are_the_half_in_order(tmp_path: Path) -> None:
    text = load_text(folder_of(tmp_path / "text", 6))
    joined = by_character("".join(d.text for d in text.of("promote")))
    windows = text.windows(by_character, 3, 9)
    assert len(windows) == 3
    assert [token for window in windows.tokens for token in window] == joined[:27]
    assert windows.context_tokens == 4
    assert text.windows(by_character, None, 9).tokens == windows.tokens
    assert set(text.windows(by_character, 1, 9, split="tune").tokens[0]).isdisjoint(joined)
    assert len(text.windows(by_character, 6, 10, split=None)) == 6


def test_each_window_starts_with_bos(tmp_path: Path) -> None:
    text = load_text(folder_of(tmp_path / "text", 6))
    windows = text.windows(by_character, 3, 11, bos=1)
    assert [window[0] for window in windows.tokens] == [1, 1, 1]
    inner = [token for window in windows.tokens for token in window[1:]]
    assert inner == by_character("".join(d.text for d in text.of("promote")))


@pytest.mark.parametrize(("count", "available"), [(4, 3), (0, 3), (-1, 3)])
def test_too_few_windows_says_how_many(tmp_path: Path, count: int, available: int) -> None:
    text = load_text(folder_of(tmp_path / "text", 6))
    with pytest.raises(TextUnusable, match=f"{count} asked for, {available} available in 3 documents"):
        text.windows(by_character, count, 9)


def test_too_short_for_any_window(tmp_path: Path) -> None:
    text = load_text(folder_of(tmp_path / "text", 2))
    with pytest.raises(TextUnusable, match="0 available"):
        text.windows(by_character, None, 512)


def test_unusable_paths(tmp_path: Path) -> None:
    with pytest.raises(TextUnusable, match=r"no_such[\s\S]*prose"):
        load_text(tmp_path / "no_such")
    (tmp_path / "latin.txt").write_bytes("déjà".encode("latin-1"))
    with pytest.raises(TextUnusable, match=r"latin.txt: byte 1[\s\S]*iconv"):
        load_text(tmp_path / "latin.txt")
    (tmp_path / "one.txt").write_text("a single section")
    with pytest.raises(TextUnusable, match=r"two different documents[\s\S]*1 in 'one.txt'"):
        load_text(tmp_path / "one.txt")


def test_window_positions_predict_the_next_token() -> None:
    window = Window((10, 11, 12, 13, 14, 15), 3)
    assert window.context == (10, 11, 12)
    assert window.inputs == (13, 14)
    assert window.targets == (14, 15)
    assert window.scored == 2


def test_cut_gives_whole_windows() -> None:
    windows = Windows.cut(tuple(range(25)), 8)
    assert [window.tokens for window in windows] == [tuple(range(s, s + 8)) for s in (0, 8, 16)]
    assert windows[2].context == (16, 17, 18, 19)
    assert windows.hash() != Windows.cut(tuple(range(25)), 8, 3).hash()
    # As llama-perplexity: the second half of 512 tokens has 255 positions with a next token.
    assert Windows.cut(tuple(range(512)))[0].scored == 255


@pytest.mark.parametrize(("length", "context"), [(8, 0), (8, 7), (9, 4)])
def test_windows_refuse_what_cannot_be_scored(length: int, context: int) -> None:
    with pytest.raises(ScoreInvalid):
        Windows((tuple(range(8)),), length, context)


def test_no_windows_is_refused() -> None:
    with pytest.raises(ScoreInvalid, match="0 windows"):
        Windows.cut((1, 2, 3), 8)
