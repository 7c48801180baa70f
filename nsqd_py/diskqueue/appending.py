"""A write to a log in steps, each a call that may take long: all of them, or the last ones, can be done in a thread."""

from __future__ import annotations

from collections.abc import Callable, Generator

from nsqd_py.batch import Batch
from nsqd_py.diskqueue.call_timing import CallTimer
from nsqd_py.diskqueue.files import LogFile
from nsqd_py.diskqueue.records import encode_header


class Appending:
    """Batches on their way to a file of a log.

    file        where they go; None: to a new one, as long as there is none
    is_written  they are there
    timer       has measured the steps of `write`
    """

    __slots__ = ("_create", "_last", "_size", "_steps", "batches", "file", "is_written", "timer")

    def __init__(
        self, batches: list[Batch], size: int, file: LogFile | None, last: LogFile | None,
        create: Callable[[], Generator[None, None, LogFile]],
    ) -> None:  # fmt: skip
        self.batches = batches
        self.file = file
        self.is_written = False
        self.timer = CallTimer()
        self._size = size
        self._last = last
        self._create = create
        self._steps = self._make_steps()

    @property
    def opens_file(self) -> bool:
        """True when a file will be made or opened."""
        return self.file is None or not self.file.is_open

    def step(self) -> None:
        """Do what is next, with one call of the system. Raises OSError: then it is over."""
        next(self._steps, None)

    def write(self) -> None:
        """Do all that is left; may run in a thread. Raises OSError."""
        while not self.is_written:
            with self.timer:
                self.step()

    def _make_steps(self) -> Generator[None, None, None]:
        if self.file is None:
            if self._last is not None:
                self._last.cut()
                yield
            self.file = yield from self._create()
            yield
        if self.file.wants_space(self._size):
            self.file.allocate(self._size)
            yield
        buffers = encode_batches(self.batches, self.file.salt)
        self.file.append(buffers, self._size, self.batches[-1].end_seq)
        self.is_written = True


def encode_batches(batches: list[Batch], salt: int) -> list[bytes]:
    """Records, as headers and bodies in turn."""
    buffers = []
    for batch in batches:
        buffers.append(encode_header(batch, salt))
        buffers.append(batch.body)
    return buffers


def last_id(batches: list[Batch]) -> int:
    """The highest of their ids; that of the last, but where dead letters with ids of long ago are among them."""
    last = batches[-1]
    if len(batches) == 1:
        return last.base_id + last.count - 1
    return max(batch.base_id + batch.count for batch in batches) - 1
