"""The manifest: a line of JSON for each finished file, in `_manifest.jsonl` in the output-dir.

    path              in the output-dir
    topic, channel, format, compress
    messages          how many; with lines: how many lines, where the file was repaired
    first_timestamp   the earliest and the latest of its messages, ns since the epoch; null where nobody knows, as
    last_timestamp    lines do not tell
    offset            where in the file this begins: not 0 where the file was there before
    bytes             how many from there on
    crc32c            of those, 8 hex digits; null where other programs wrote in between
    repaired          true where an earlier run left the file behind
    cut_bytes         how many bytes at its end were torn, and were cut off
    closed            when, ns since the epoch

Spark and other readers of directories pass over names that begin with an underscore.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

MANIFEST = "_manifest.jsonl"
_TAIL_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Entry:
    """One finished file; see the module."""

    path: str
    topic: str
    channel: str
    format: str
    compress: str
    messages: int
    first_timestamp: int | None
    last_timestamp: int | None
    offset: int
    bytes: int
    crc32c: str | None
    repaired: bool
    cut_bytes: int
    closed: int


class Manifest:
    """Appends to the file, which several processes may do at a time."""

    def __init__(self, output_dir: Path) -> None:
        self._path = output_dir / MANIFEST

    def add(self, entry: Entry) -> None:
        """Raises OSError; then nothing was added."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            self._append(descriptor, orjson.dumps(asdict(entry)) + b"\n")
        finally:
            os.close(descriptor)

    def _append(self, descriptor: int, line: bytes) -> None:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            line = b"\n" + line  # behind what a kill left
        try:
            if os.write(descriptor, line) != len(line):
                raise OSError("the line of the manifest could be written in part only")
            os.fdatasync(descriptor)
        except OSError:
            os.ftruncate(descriptor, size)
            raise

    def has(self, entry: Entry) -> bool:
        """Whether one of its last lines is about the same bytes of the same file. Raises OSError."""
        try:
            with self._path.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
                lines = file.read().splitlines()
        except FileNotFoundError:
            return False
        return any(_is_about(line, entry) for line in lines)


def _is_about(line: bytes, entry: Entry) -> bool:
    try:
        values = orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return (values.get("path"), values.get("offset")) == (entry.path, entry.offset)
