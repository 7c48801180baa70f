"""A scrub: it reads all log files again and again, slowly, and checks the records that no consumer reads.

A disk may return other bytes than were written to it, and a file may be changed or removed. A consumer finds that when it
reads the bytes, perhaps much too late. So each file is read once a day or more often, in a thread, and what is damaged is
counted, logged, and repaired if there is a good copy.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import gevent

from nsqd_py.broker.services import BrokerServices
from nsqd_py.diskqueue.checking import check_piece
from nsqd_py.diskqueue.journals.ranges import Range, count_of
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, Damaged, FileHeader
from nsqd_py.runtime.pacing import PAUSE_S, WorkSlices
from nsqd_py.runtime.threads import in_thread
from nsqd_py.server.options import AUTO

_PASS_S = 20 * 3600.0  # a day, with time for pauses
_LEAST_RATE = 1_000_000
_SHORTEST_PASS_S = 60.0
_TURN_S = 0.25
_MOST_AT_ONCE_BYTES = 4 * 1024 * 1024
_LEAST_AT_ONCE_BYTES = 64 * 1024
_TURN_COSTS_BYTES = 16 * 1024  # for thousands of small files
_LONGEST_PAUSE_S = 5.0
_SLOW_S = 0.1
_SLOW_PAUSES = 10  # after slow reads, rest as many times as long
_SLOW_DISK_PAUSE_S = 1.0  # after each turn, as long as something else finds the disk slow
_SLOW_DISK_AT_ONCE_BYTES = 256 * 1024
_CONFIRM_AFTER_S = 0.05
_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_BLOCK_BYTES = 4096  # the smallest part of a file that a disk cannot read


class ScrubbedFile(NamedTuple):
    """A log file as it must be.

    salt        in its header
    end_offset  the end of its last record
    is_closed   nothing is appended any more
    """

    path: Path
    salt: int
    end_offset: int
    is_closed: bool = True


class ScrubSource(Protocol):
    """The files of a data path. Methods may block their greenlet.

    damaged_bytes   found since the start
    repaired_bytes  of these
    """

    @property
    def damaged_bytes(self) -> int: ...

    @property
    def repaired_bytes(self) -> int: ...

    def files(self) -> Sequence[Hashable]:
        """Return a key for each log file that there is now."""

    def file(self, key: Any) -> ScrubbedFile | None:
        """Return how the file must be now; None if it was dropped in the meantime."""

    def damaged(self, key: Any, ranges: list[Range]) -> None:
        """Count, report and repair the damaged bytes of a file; they may be known already."""

    def end_pass(self) -> None:
        """Check what is small, such as journals."""


def reading_what_it_can(descriptor: int) -> Callable[[int, int], bytes]:
    """Return a function that reads through a descriptor, with zeros for blocks that the disk cannot read."""

    def read_if_possible(offset: int, size: int) -> bytes | None:
        try:
            return os.pread(descriptor, size, offset)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
        return None

    def read(offset: int, size: int) -> bytes:
        data = read_if_possible(offset, size)
        if data is not None:
            return data
        blocks = []
        for start in range(offset, offset + size, _BLOCK_BYTES):
            block_bytes = min(_BLOCK_BYTES, offset + size - start)
            block = read_if_possible(start, block_bytes)
            blocks.append(bytes(block_bytes) if block is None else block)
        return b"".join(blocks)

    return read


@dataclass(slots=True)
class _Turn:
    """The part of a file that a thread checks at a time: records of `file` from `offset` on, about `most_bytes`.

    took_s  for all of it
    read_s  of that, in calls of the disk: on a busy machine, a thread waits for the interpreter much longer than that
    """

    file: ScrubbedFile
    offset: int
    most_bytes: int
    damaged: list[Range] = field(default_factory=list)
    took_s: float = 0.0
    read_s: float = 0.0

    def run(self) -> None:
        """Check them; runs in a thread. Raises OSError."""
        file = self.file
        began_s = time.monotonic()
        with open(file.path, "rb", buffering=0) as opened:
            read = self._timed(reading_what_it_can(opened.fileno()))
            start = self.offset
            if not self.offset:
                self._check_header(read(0, FILE_HEADER_BYTES))
            while self.offset < file.end_offset and self.offset < start + self.most_bytes:
                # It reads, and so lets the event loop run.
                piece = check_piece(read, file.salt, self.offset, file.end_offset)
                self.offset = piece.offset
                self.damaged += piece.damaged
            if file.is_closed:  # the next pass must read the disk, and consumers need the memory more
                os.posix_fadvise(opened.fileno(), start, self.offset - start, os.POSIX_FADV_DONTNEED)
        self.took_s = time.monotonic() - began_s

    def _timed(self, read: Callable[[int, int], bytes]) -> Callable[[int, int], bytes]:
        def timed_read(offset: int, size: int) -> bytes:
            began_s = time.monotonic()
            data = read(offset, size)
            self.read_s += time.monotonic() - began_s
            return data

        return timed_read

    def _check_header(self, data: bytes) -> None:
        try:
            is_right = FileHeader.decode(data).salt == self.file.salt
        except Damaged:
            is_right = False
        if not is_right:
            self.damaged.append((0, FILE_HEADER_BYTES))
        self.offset = FILE_HEADER_BYTES


@dataclass(eq=False, repr=False)
class Scrub:
    """The scrub of one nsqd.

    source          the files
    checked_bytes   since the start
    pass_count      complete passes
    last_pass_ns    wall time of the end of the last one; 0 before
    """

    _services: BrokerServices
    source: ScrubSource
    checked_bytes: int = 0
    pass_count: int = 0
    last_pass_ns: int = 0
    _rate: float = 0.0
    _greenlet: Any = None

    def start(self) -> None:
        """Begin, unless --scrub-rate=0."""
        if self._services.options.scrub_rate:
            self._greenlet = gevent.spawn(self._run)

    def stop(self) -> None:
        """End. A thread may still read a file; it changes nothing."""
        if self._greenlet is not None:
            self._greenlet.kill(block=False)
            self._greenlet = None

    def statistics(self) -> dict[str, Any]:
        """Return what /stats shows."""
        return {
            "rate": round(self._rate),
            "checked_bytes": self.checked_bytes,
            "passes": self.pass_count,
            "last_pass": self.last_pass_ns // 1_000_000_000 or None,
            "damaged_bytes": self.source.damaged_bytes,
            "repaired_bytes": self.source.repaired_bytes,
        }

    # ---- in its greenlet

    def _run(self) -> None:
        while True:
            began_s = time.monotonic()
            try:
                self._pass()
            except Exception as error:  # after a bug with one file, the next pass must come
                self._services.log.exception("SCRUB: failed - %r", error)
            shortest_s = 0.0
            if self._services.options.scrub_rate == AUTO:
                shortest_s = _SHORTEST_PASS_S
            gevent.sleep(max(1.0, shortest_s - (time.monotonic() - began_s)))

    def _pass(self) -> None:
        """Check all files, beginning anywhere: a daemon that restarts each day must come to the last one too."""
        keys = list(self.source.files())
        self._rate = self._rate_of(self._size_of(keys))
        first = 0
        if keys:
            first = int.from_bytes(os.urandom(4), "big") % len(keys)
        for key in [*keys[first:], *keys[:first]]:
            self._check(key)
        self.source.end_pass()
        self.pass_count += 1
        self.last_pass_ns = time.time_ns()

    def _size_of(self, keys: Iterable[Hashable]) -> int:
        """Return the bytes of these files."""
        slices = WorkSlices()
        total_bytes = 0
        for key in keys:
            file = self.source.file(key)
            total_bytes += file.end_offset if file is not None else 0
            slices.sleep_if_due()
        return total_bytes

    def _rate_of(self, total_bytes: int) -> float:
        """Return the bytes a second of a pass."""
        rate = self._services.options.scrub_rate
        if rate != AUTO:
            return float(rate)
        return max(_LEAST_RATE, total_bytes / _PASS_S)

    def _check(self, key: Hashable) -> None:
        """Check one file to its present end."""
        offset = 0
        found = []
        while (file := self.source.file(key)) is not None and offset < file.end_offset:
            turn = _Turn(file, offset, self._turn_bytes())
            try:
                in_thread(self._services.threadpool, turn.run)
            except FileNotFoundError:  # removed or dropped; the check of files, once a second, knows which
                return
            except OSError as error:
                if error.errno not in _OUT_OF_DESCRIPTORS:  # the next pass has some
                    self._services.log.error("SCRUB: cannot read %s - %s", file.path.name, error)
                return
            checked_bytes = turn.offset - offset
            offset = turn.offset
            self.checked_bytes += checked_bytes
            if turn.damaged:
                found += self._confirmed(key, turn)
            gevent.sleep(self._pause_s(checked_bytes, turn))
        if found:
            self.source.damaged(key, found)

    def _turn_bytes(self) -> int:
        most_bytes = _MOST_AT_ONCE_BYTES
        if self._services.disk_speed.is_slow:
            most_bytes = _SLOW_DISK_AT_ONCE_BYTES
        return min(max(int(self._rate * _TURN_S), _LEAST_AT_ONCE_BYTES), most_bytes)

    def _pause_s(self, checked_bytes: int, turn: _Turn) -> float:
        """Return how long to rest after a turn. A slow disk is read too, a little at a time: it may be about to fail."""
        pause_s = max(PAUSE_S, (checked_bytes + _TURN_COSTS_BYTES) / self._rate - turn.took_s)
        if turn.read_s > _SLOW_S:
            pause_s = max(pause_s, min(_SLOW_PAUSES * turn.read_s, _LONGEST_PAUSE_S))
        if self._services.disk_speed.is_slow:
            pause_s = max(pause_s, _SLOW_DISK_PAUSE_S)
        return pause_s

    def _confirmed(self, key: Hashable, turn: _Turn) -> list[Range]:
        """Return the ranges that a second check finds damaged too: the file may have been replaced or repaired."""
        gevent.sleep(_CONFIRM_AFTER_S)
        ranges = []
        for start, end in turn.damaged:
            file = self.source.file(key)
            if file is None or file.salt != turn.file.salt:
                return []
            again = _Turn(file._replace(end_offset=max(end, FILE_HEADER_BYTES)), start, end - start)
            try:
                in_thread(self._services.threadpool, again.run)
            except OSError:
                return []
            ranges += again.damaged
        return ranges


def damage_text(ranges: list[Range]) -> str:
    """Return how much of a file is damaged, and where."""
    where = f"{len(ranges)} places" if len(ranges) > 1 else "one place"
    return f"{count_of(ranges)} damaged bytes in {where}, the first at {ranges[0][0]}"
