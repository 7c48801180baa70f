"""What one task writes down of what was acknowledged, as it comes; and how it is read again.

A file of lines `<crc32c in hex> <JSON>`, each about a range of marks:
[lane, low, high, messages, bytes, {topic: messages}]. A line ["end"] says that nothing was on the way when the file was
closed. It is only added to. What a killed process wrote is kept by the system; fsync, at most twice a second, is for a
machine that fails. A line that is torn ends what counts of a file.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import orjson
from google_crc32c import value as crc32c

from nsq_spark.replay.marks import Mark, Range

SYNC_INTERVAL_S = 0.5
_END = ["end"]


class Entry(NamedTuple):
    """So many messages were acknowledged, and there are no others to be sent in the range."""

    lane: str
    range: Range
    messages: int
    size_bytes: int = 0
    topics: dict[str, int] = {}


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

    def add(self, lane: str, low: Mark, high: Mark, count: int, size_bytes: int = 0, topic: str = "") -> None:
        last = self._open.get(lane)
        topics = {topic: count} if count else {}
        if last is not None and last.range.high == low:
            if topics:
                topics = {**last.topics, topic: last.topics.get(topic, 0) + count}
            self._open[lane] = Entry(
                lane, Range(last.range.low, high), last.messages + count, last.size_bytes + size_bytes,
                topics or last.topics,
            )  # fmt: skip
            return
        if last is not None:
            self._closed.append(last)
        self._open[lane] = Entry(lane, Range(low, high), count, size_bytes, topics)

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

    def close(self, *, is_settled: bool = True) -> None:
        """`is_settled`: nsqd has answered for all that was sent."""
        self.write()
        if is_settled:
            _write_all(self._file, _line(_END))
            self._is_synced = False
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

    def add(self, lane: str, low: Mark, high: Mark, count: int, size_bytes: int = 0, topic: str = "") -> None:
        pass

    def write(self) -> None:
        pass

    def close(self, *, is_settled: bool = True) -> None:
        pass

    def abandon(self) -> None:
        pass


def encoded(entry: Entry) -> bytes:
    return _line([entry.lane, entry.range.low, entry.range.high, entry.messages, entry.size_bytes, entry.topics])


def _line(fields: list[Any]) -> bytes:
    text = orjson.dumps(fields)
    return b"%08x %b\n" % (crc32c(text), text)


def is_settled(data: bytes) -> bool:
    """Whether a file ends with the word that nothing was on the way."""
    return data.endswith(_line(_END))


def entries_in(data: bytes) -> Iterator[Entry]:
    """Those before the first line that is not whole."""
    for line in data.split(b"\n")[:-1]:
        checksum, _, text = line.partition(b" ")
        if checksum != b"%08x" % crc32c(text):
            return
        fields = orjson.loads(text)
        if fields != _END:
            lane, low, high, *rest = fields
            yield Entry(lane, Range((*low,), (*high,)), *rest)


def is_free(path: Path) -> bool:
    """Whether nobody writes it any more."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
