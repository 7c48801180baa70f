"""What one task writes down of what was acknowledged, as it comes; and how it is read again.

A file of lines `<crc32c in hex> <JSON>`, each about a range of marks: [lane, low, high, messages]. It is only added
to. What a killed process wrote is kept by the system; fsync, at most twice a second, is for a machine that fails. A
line that is torn ends what counts of a file.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import orjson
from google_crc32c import value as crc32c

from spark.replay.marks import Mark, Range

SYNC_INTERVAL_S = 0.5


class Entry(NamedTuple):
    """So many messages were acknowledged, and there are no others to be sent in the range."""

    lane: str
    range: Range
    messages: int


class Ledger:
    """Collects ranges, puts together those that adjoin, and writes them when it is told to.

    The file is locked as long as this process lives: who finds it free knows that nothing will be added.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._file = path.open("ab", buffering=0)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._open: dict[str, Entry] = {}
        self._closed: list[Entry] = []
        self._synced_s = clock()
        self._is_synced = True

    def add(self, lane: str, low: Mark, high: Mark, count: int) -> None:
        last = self._open.get(lane)
        if last is not None and last.range.high == low:
            self._open[lane] = Entry(lane, Range(last.range.low, high), last.messages + count)
            return
        if last is not None:
            self._closed.append(last)
        self._open[lane] = Entry(lane, Range(low, high), count)

    def write(self) -> None:
        """All that was added since the last time."""
        entries = [*self._closed, *self._open.values()]
        if entries:
            self._closed.clear()
            self._open.clear()
            _write_all(self._file, b"".join(map(encoded, entries)))
            self._is_synced = False
        if not self._is_synced and self._clock() - self._synced_s >= SYNC_INTERVAL_S:
            self._sync()

    def close(self) -> None:
        self.write()
        if not self._is_synced:
            self._sync()
        self._file.close()

    def abandon(self) -> None:
        """Let go of the file, and write nothing more: others wait for that."""
        self._file.close()

    def _sync(self) -> None:
        os.fsync(self._file.fileno())
        self._synced_s = self._clock()
        self._is_synced = True


def _write_all(file: FileIO, data: bytes) -> None:
    while data:
        data = data[file.write(data) :]


class NoLedger:
    """Where there is no checkpoint."""

    def add(self, lane: str, low: Mark, high: Mark, count: int) -> None:
        pass

    def write(self) -> None:
        pass

    def close(self) -> None:
        pass

    def abandon(self) -> None:
        pass


def encoded(entry: Entry) -> bytes:
    text = orjson.dumps([entry.lane, entry.range.low, entry.range.high, entry.messages])
    return b"%08x %b\n" % (crc32c(text), text)


def entries_in(data: bytes) -> Iterator[Entry]:
    """Those before the first line that is not whole."""
    for line in data.split(b"\n")[:-1]:
        checksum, _, text = line.partition(b" ")
        if checksum != b"%08x" % crc32c(text):
            return
        lane, low, high, count = orjson.loads(text)
        yield Entry(lane, Range((*low,), (*high,)), count)


def is_free(path: Path) -> bool:
    """Whether nobody writes it any more."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
