"""Traces: both forms give the same requests, and what is malformed is named by its line."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from labkit.schedule.arrivals import Arrival
from labkit.schedule.trace import TraceInvalid, read_trace

JSONL = """\
{"timestamp": 100.5, "prompt_tokens": 12, "new_tokens": 3, "user": "a"}

{"timestamp": 101.25, "prompt_tokens": 7, "new_tokens": 1}
"""
CSV = "user,timestamp,prompt_tokens,new_tokens\na,100.5,12,3\n\nb,101.25,7,1\n"
HEAD = "timestamp,prompt_tokens,new_tokens\n"


def written(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    ("name", "text"), [("t.jsonl", JSONL), ("t.csv", CSV), ("t.csv", "\ufeff" + CSV.replace("\n", "\r\n"))]
)
def test_requests_come_at_seconds_after_the_first(tmp_path: Path, name: str, text: str) -> None:
    trace = read_trace(written(tmp_path, name, text))
    assert trace.arrivals == (Arrival("r0", 0.0, 12, 3), Arrival("r1", 0.75, 7, 1))
    assert trace.sha256 == hashlib.sha256(text.encode()).hexdigest()[:16]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("t.jsonl", JSONL + "{", "t.jsonl, line 4: an object in JSON is needed"),
        ("t.jsonl", JSONL + "[1, 2, 3]", "t.jsonl, line 4: an object with timestamp, prompt_tokens"),
        ("t.jsonl", '{"timestamp": 1, "prompt_tokens": 2}', "line 1: the field 'new_tokens' is needed"),
        ("t.jsonl", JSONL.replace(": 7", ": 0"), "line 3: a whole number of at least 1 as prompt_tokens"),
        ("t.jsonl", JSONL.replace(": 7", ": true"), "line 3: a whole number of at least 1 as prompt_tokens"),
        ("t.jsonl", JSONL.replace(": 7", ": 7.5"), "line 3: a whole number of at least 1 as prompt_tokens"),
        ("t.jsonl", JSONL.replace(": 1}", ": 1e999}"), "line 3: a whole number of at least 1 as new_tokens"),
        ("t.jsonl", JSONL.replace("101.25", "99"), "line 3: a timestamp of 100.5 or later is needed"),
        ("t.jsonl", JSONL.replace("100.5", '"NaN"'), "line 1: a timestamp of 0 or more seconds is needed"),
        ("t.csv", HEAD + "0,1,1\n1,x,1\n", "t.csv, line 3: a whole number of at least 1 as prompt_tokens"),
        ("t.csv", HEAD + "0,1\n", "t.csv, line 2: the field 'new_tokens' is needed"),
        ("t.csv", "0,1,1\n", "t.csv, line 1: a head with the column 'timestamp' is needed"),
        ("t.csv", "", "t.csv, line 1: a head with the column 'timestamp' is needed"),
        ("t.csv", HEAD, "a trace with at least one request was needed"),
        ("t.jsonl", "\n\n", "a trace with at least one request was needed"),
        ("t.jsonl", b"\xff\xfe", "a trace in UTF-8 was needed"),
        ("t.txt", "0 1 1", "a trace in a file of a known kind was needed"),
    ],
)
def test_what_is_malformed_is_named(tmp_path: Path, name: str, text: str | bytes, words: str) -> None:
    with pytest.raises(TraceInvalid) as refused:
        read_trace(written(tmp_path, name, text))
    assert words in str(refused.value)


def test_a_trace_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TraceInvalid, match="a trace that can be read was needed"):
        read_trace(tmp_path / "none.csv")
