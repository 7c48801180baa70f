"""The ledger of one task: the ranges of messages that nsqd has acknowledged, written as they come.

A file of lines `<crc32c in hex> <JSON>`, one for each range: [lane, low, high, messages, bytes, {topic: messages}]. The
line ["end"] says that nothing was unanswered when the file was closed. Lines are only appended. The kernel keeps what a
killed process has written; fsync, at most twice a second, is for a machine that fails. A torn line ends the file.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import orjson
from google_crc32c import value as crc32c

from nsq_spark.replay.positions import Mark, Range

SYNC_INTERVAL_S = 0.5
_END = ["end"]


class Entry(NamedTuple):
    """The number of acknowledged messages in a range, in which there are no others to send."""

    lane: str
    range: Range
    messages: int
    size_bytes: int = 0
    topics: dict[str, int] = {}


class Ledger:
    """Collects ranges, joins those that adjoin, and writes them when `write` is called.

    The file is locked as long as this process lives. A reader that finds it unlocked knows that it is complete. Without
    a path, nothing is written.
    """

    def __init__(self, path: Path | None, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._file = None if path is None else path.open("ab", buffering=0)
        if self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_EX)
        self._open: dict[str, Entry] = {}
        self._closed: list[Entry] = []
        self._synced_s = clock()
        self._is_synced = True

    def add(self, lane: str, low: Mark, high: Mark, count: int, size_bytes: int = 0, topic: str = "") -> None:
        last = self._open.get(lane)
        if last is None or last.range.high != low:
            if last is not None:
                self._closed.append(last)
            last = Entry(lane, Range(low, low), 0)
        topics = {**last.topics, topic: last.topics.get(topic, 0) + count} if count else last.topics
        self._open[lane] = Entry(
            lane, Range(last.range.low, high), last.messages + count, last.size_bytes + size_bytes, topics
        )

    def write(self) -> None:
        """Write all ranges that were added since the last call."""
        entries = [*self._closed, *self._open.values()]
        self._closed.clear()
        self._open.clear()
        if entries:
            self._append(b"".join(map(encoded, entries)))
        if not self._is_synced and self._clock() - self._synced_s >= SYNC_INTERVAL_S:
            self._sync()

    def close(self, *, is_settled: bool = True) -> None:
        """Write the rest. `is_settled`: nsqd has answered every publish."""
        self.write()
        if is_settled:
            self._append(_line(_END))
        if not self._is_synced:
            self._sync()
        self.abandon()

    def abandon(self) -> None:
        """Close the file without writing: others wait for its lock."""
        if self._file is not None:
            self._file.close()

    def _append(self, data: bytes) -> None:
        while data and self._file is not None:
            self._is_synced = False
            data = data[self._file.write(data) :]

    def _sync(self) -> None:
        assert self._file is not None
        os.fsync(self._file.fileno())
        self._synced_s = self._clock()
        self._is_synced = True


def encoded(entry: Entry) -> bytes:
    return _line([entry.lane, entry.range.low, entry.range.high, entry.messages, entry.size_bytes, entry.topics])


def _line(fields: list[Any]) -> bytes:
    text = orjson.dumps(fields)
    return b"%08x %b\n" % (crc32c(text), text)


def is_settled(data: bytes) -> bool:
    """True if nothing was unanswered when the file was closed."""
    return data.endswith(_line(_END))


def entries_in(data: bytes) -> Iterator[Entry]:
    """Yield the entries before the first torn line."""
    for line in data.split(b"\n")[:-1]:
        checksum, _, text = line.partition(b" ")
        if checksum != b"%08x" % crc32c(text):
            return
        fields = orjson.loads(text)
        if fields != _END:
            lane, low, high, *rest = fields
            yield Entry(lane, Range((*low,), (*high,)), *rest)


def is_free(path: Path) -> bool:
    """True if no process writes to the file any more."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
