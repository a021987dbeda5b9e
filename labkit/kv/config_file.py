"""Config file: reads a file of KV settings per layer. Judges nothing of what it holds: the planner does."""

from __future__ import annotations

from pathlib import Path

from labkit.core.kv_file import KVFile

# Far more than one entry a layer takes.
MOST_BYTES = 1 << 20


def read_kv_file(path: str | Path) -> KVFile:
    """The content of a file, or why it could not be read. A relative path begins in the current folder."""
    place = Path(path)
    try:
        if place.exists() and not place.is_file():
            return KVFile(problem="a folder or device")
        if place.stat().st_size > MOST_BYTES:
            return KVFile(problem=f"{place.stat().st_size:,} bytes, and {MOST_BYTES:,} are the most")
        return KVFile(text=place.read_bytes().decode())
    except UnicodeDecodeError:
        return KVFile(problem="not text in UTF-8")
    except FileNotFoundError:
        return KVFile(problem=f"no such file in {Path.cwd()}" if not place.is_absolute() else "no such file")
    except (OSError, ValueError) as error:
        return KVFile(problem=getattr(error, "strerror", None) or str(error))
