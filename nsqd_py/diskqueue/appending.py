"""A write to a log in two parts, for a disk that is slow: the write itself can be done in a thread."""

from __future__ import annotations

from collections.abc import Callable

from nsqd_py.batch import Batch
from nsqd_py.diskqueue.files import LogFile
from nsqd_py.diskqueue.records import encode_header


class Appending:
    """Batches on their way to a file of a log.

    file        where they go; None: to a new one, as long as there is none
    is_written  they are there
    """

    __slots__ = ("_create", "_last", "_size", "batches", "file", "is_written")

    def __init__(
        self, batches: list[Batch], size: int, file: LogFile | None, last: LogFile | None,
        create: Callable[[], LogFile],
    ) -> None:  # fmt: skip
        self.batches = batches
        self.file = file
        self.is_written = False
        self._size = size
        self._last = last
        self._create = create

    def write(self) -> None:
        """What may take long. Raises OSError."""
        if self.file is None:
            if self._last is not None:
                self._last.cut()
            self.file = self._create()
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
