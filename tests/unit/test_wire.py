"""Messages over pipes: whole, cut, too long, too late and not JSON."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Iterator

import pytest

from labkit.bench.wire import MAX_MESSAGE, WireClosed, WireTimeout, receive, send

Pipe = tuple[int, int]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    """Read end and write end; a test may close the write end."""
    read, write = os.pipe()
    ends = {fd: os.fstat(fd).st_ino for fd in (read, write)}
    yield read, write
    for fd, inode in ends.items():
        try:
            still_ours = os.fstat(fd).st_ino == inode
        except OSError:
            continue
        if still_ours:
            os.close(fd)


def test_messages_arrive_whole_and_in_order(pipe: Pipe) -> None:
    for message in ({"do": "open", "text": "é\u2028"}, {}, {"seconds": [0.1, 1e-9]}):
        send(pipe[1], message)
        assert receive(pipe[0], 1.0) == message


def test_a_message_larger_than_the_pipe_arrives_while_it_is_read(pipe: Pipe) -> None:
    message = {"tokens": list(range(200_000))}
    writer = threading.Thread(target=send, args=(pipe[1], message, 10.0))
    writer.start()
    assert receive(pipe[0], 10.0) == message
    writer.join()


@pytest.mark.parametrize("sent", [b"", b"\0\0", struct.pack(">I", 10) + b"{"])
def test_a_cut_message_is_a_closed_wire(pipe: Pipe, sent: bytes) -> None:
    os.write(pipe[1], sent)
    os.close(pipe[1])
    with pytest.raises(WireClosed):
        receive(pipe[0], 1.0)


def test_a_length_that_cannot_be_ours_is_refused_before_it_is_read(pipe: Pipe) -> None:
    os.write(pipe[1], struct.pack(">I", MAX_MESSAGE + 1))
    with pytest.raises(WireClosed, match=f"{MAX_MESSAGE + 1} bytes"):
        receive(pipe[0], 1.0)


@pytest.mark.parametrize("sent", [b"", struct.pack(">I", 10) + b"{"])
def test_a_message_that_does_not_come_is_a_timeout(pipe: Pipe, sent: bytes) -> None:
    os.write(pipe[1], sent)
    with pytest.raises(WireTimeout):
        receive(pipe[0], 0.05)


def test_a_message_that_nobody_reads_is_a_timeout(pipe: Pipe) -> None:
    with pytest.raises(WireTimeout):
        send(pipe[1], {"text": "x" * 2**20}, 0.05)


def test_sending_to_nobody_is_a_closed_wire(pipe: Pipe) -> None:
    os.close(pipe[0])
    with pytest.raises(WireClosed):
        send(pipe[1], {}, 1.0)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_json_does_not_know_is_refused_and_nothing_is_sent(pipe: Pipe, value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        send(pipe[1], {"value": value})
    with pytest.raises(WireTimeout):
        receive(pipe[0], 0.05)


def test_a_message_over_the_limit_is_refused_where_it_is_made(pipe: Pipe) -> None:
    with pytest.raises(ValueError, match=f"over {MAX_MESSAGE}"):
        send(pipe[1], {"text": "x" * MAX_MESSAGE})
