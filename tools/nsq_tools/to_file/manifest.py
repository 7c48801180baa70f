"""The manifest: a line of JSON for each finished file, in `_manifest.jsonl` in the output-dir.

    path              relative to the output-dir
    topic, channel, format, compress
    messages          number of messages; for a repaired file in the lines format, number of lines
    first_timestamp   the earliest and the latest timestamp of its messages, ns since the epoch; null if they are
    last_timestamp    unknown, as in a repaired file in the lines format
    offset            position of the first byte; not 0 if the file existed before
    bytes             number of bytes from there on
    crc32c            checksum of these bytes, 8 hex digits; null if other programs wrote between them
    repaired          true if an earlier run left the file unfinished
    cut_bytes         size of the incomplete end that was removed
    closed            time of finishing, ns since the epoch

Spark and other readers of directories skip names that begin with an underscore.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from nsq_tools.to_file.output import MODE
from nsqd_py.runtime.private_files import open_file

MANIFEST = "_manifest.jsonl"
_TAIL_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Entry:
    """One finished file. The module's docstring describes the fields."""

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
    """The manifest of an output-dir. Several processes may append to it at the same time."""

    def __init__(self, output_dir: Path) -> None:
        self._path = output_dir / MANIFEST

    def add(self, entry: Entry) -> None:
        """Append a line. Raises OSError; then nothing was added."""
        descriptor = open_file(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            self._append(descriptor, orjson.dumps(asdict(entry)) + b"\n")
        finally:
            os.close(descriptor)

    def _append(self, descriptor: int, line: bytes) -> None:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            line = b"\n" + line  # end the incomplete line of a killed process
        try:
            if os.write(descriptor, line) != len(line):
                raise OSError("the line of the manifest was written incompletely")
            os.fdatasync(descriptor)
        except OSError:
            os.ftruncate(descriptor, size)
            raise

    def has(self, entry: Entry) -> bool:
        """True if one of the last lines has the same path and offset. Raises OSError."""
        try:
            with open(self._path, "rb", opener=open_file) as file:
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
    return isinstance(values, dict) and (values.get("path"), values.get("offset")) == (entry.path, entry.offset)
