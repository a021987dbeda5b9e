"""Reader process: reads record files for another process. Its lines in are chunks of paths as JSON; for each
it writes the tables of `batch`, every one as a length and an Arrow stream. Ends when its input does."""

from __future__ import annotations

import gc
import json
import signal
import struct
import sys
from pathlib import Path
from typing import BinaryIO

from labkit.store.batch import BATCH_TABLES, Batch, read_batch

LENGTH = struct.Struct("<Q")


def main(root: Path, asked: BinaryIO, answers: BinaryIO) -> None:
    """Answer until `asked` ends."""
    # Ctrl-C is for the process that asks, which then closes the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Rows by the hundred thousand and no cycles: the collector would double the time.
    gc.disable()
    for line in asked:
        send_batch(answers, read_batch(root, json.loads(line)))


def send_batch(out: BinaryIO, batch: Batch) -> None:
    """Write a batch as `receive_batch` reads it."""
    import pyarrow

    for name in BATCH_TABLES:
        sink = pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_stream(sink, batch[name].schema) as stream:
            stream.write_table(batch[name])
        data = sink.getvalue()
        out.write(LENGTH.pack(data.size))
        out.write(data)
    out.flush()


def receive_batch(source: BinaryIO) -> Batch:
    """Read a batch. Raise EOFError where the other side is gone."""
    import pyarrow

    return {name: pyarrow.ipc.open_stream(_part(source)).read_all() for name in BATCH_TABLES}


def _part(source: BinaryIO) -> bytes:
    (size,) = LENGTH.unpack(_exactly(source, LENGTH.size))
    return _exactly(source, size)


def _exactly(source: BinaryIO, size: int) -> bytes:
    data = source.read(size)
    if len(data) < size:
        raise EOFError("the reader process is gone")
    return data


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
