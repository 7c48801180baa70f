"""Reading from a disk that is slow: in a thread, so that the event loop goes on with what is in memory."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

import gevent

from nsqd_py.diskqueue.disk_pace import NOTED_NS, CallTimer, DiskPace
from nsqd_py.diskqueue.files import LogFile
from nsqd_py.runtime.threads import in_thread

_MOST_PIECES = 8


class StillReading(BlockingIOError):
    """A thread reads what was asked for. It can be had as soon as that is done."""


class SlowReader:
    """Reads files of one log: at once while the disk is quick, else in a thread.

    on_read  is called when the thread has read something that was asked for
    """

    __slots__ = ("_asked", "_on_read", "_pace", "_pieces", "_threadpool")

    def __init__(self, threadpool: Any, pace: DiskPace, on_read: Callable[[], None]) -> None:
        self._threadpool = threadpool
        self._pace = pace
        self._on_read = on_read
        # Made when they are needed: empty ones take 600 bytes for each topic.
        self._pieces: OrderedDict[tuple[LogFile, int, int], bytes | OSError] | None = None
        self._asked: frozenset[tuple[LogFile, int, int]] = frozenset()

    def read(self, file: LogFile, offset: int, size: int) -> bytes:
        """As `LogFile.read`. Raises StillReading where a thread does it; to be called again after `on_read`."""
        if not self._pace.is_slow:
            self._pieces = None
            return self._read_at_once(file, offset, size)
        place = file, offset, size
        pieces = self._pieces
        piece = pieces.get(place) if pieces is not None else None
        if pieces is None or piece is None:
            if place not in self._asked:
                self._asked |= {place}
                gevent.spawn(self._read_in_thread, _Piece(file, offset, size), place)
            raise StillReading
        if isinstance(piece, OSError):
            del pieces[place]
            raise piece
        pieces.move_to_end(place)
        return piece

    def _read_at_once(self, file: LogFile, offset: int, size: int) -> bytes:
        began_ns = monotonic_ns()
        try:
            return file.read(offset, size)
        finally:
            took_ns = monotonic_ns() - began_ns
            if took_ns >= NOTED_NS:
                self._pace.note(took_ns)

    def _read_in_thread(self, piece: _Piece, place: tuple[LogFile, int, int]) -> None:
        self._pace.begin(piece)
        try:
            in_thread(self._threadpool, piece.read)
        finally:
            self._pace.end(piece, piece.timer.slowest_ns)
            self._asked -= {place}
        if self._pieces is None:
            self._pieces = OrderedDict()
        self._pieces[place] = piece.result
        while len(self._pieces) > _MOST_PIECES:
            self._pieces.popitem(last=False)
        self._on_read()


class _Piece:
    """A part of a file, read by a descriptor of its own: the file may be closed meanwhile."""

    def __init__(self, file: LogFile, offset: int, size: int) -> None:
        self.result: bytes | OSError = b""
        self.timer = CallTimer()
        self._descriptor = file.duplicate()
        self._size = min(size, file.end_offset - offset)
        self._offset = offset

    def read(self) -> None:
        """Read it, in a thread."""
        try:
            with self.timer:
                self.result = os.pread(self._descriptor, self._size, self._offset)
        except OSError as error:
            self.result = error
        finally:
            os.close(self._descriptor)
