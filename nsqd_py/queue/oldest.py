"""The publish time of the oldest message that waits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from nsqd_py.batch import Batch
from nsqd_py.queue.position import Position

# Requeued runs that are compared: 50 us. Those that were requeued first come first, so that others are rarely older.
_MOST_REQUEUED = 1000


class BatchSource(Protocol):
    """The topic that holds the messages."""

    def batches_at(self, seqs: list[int]) -> Iterator[Batch | None]:
        """Yield the batch that contains each of these numbers. Raises OSError."""


def publish_time_ns(source: BatchSource, seq: int) -> int:
    """Return the publish time of a message, or its due time if it was deferred, in ns since the epoch.

    Return 0 if it cannot be read now.
    """
    try:
        batch = next(source.batches_at([seq]))
    except OSError:
        return 0
    return max(batch.timestamp_ns, batch.due_ns) if batch is not None else 0


class OldestMessage:
    """The oldest queued message of a channel. Its time is looked up again only when it is another message."""

    __slots__ = ("_position", "_seq", "_source", "_time_ns")

    def __init__(self, position: Position, source: BatchSource) -> None:
        self._position = position
        self._source = source
        self._seq = -1
        self._time_ns = 0

    @property
    def time_ns(self) -> int:
        """As `publish_time_ns`; 0 if no message is queued."""
        seq = self._position.oldest(_MOST_REQUEUED)
        if seq is None:
            return 0
        if seq != self._seq or not self._time_ns:
            self._seq, self._time_ns = seq, publish_time_ns(self._source, seq)
        return self._time_ns
