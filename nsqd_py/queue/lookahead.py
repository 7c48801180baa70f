"""Read requeued messages from the log before they are delivered, in the order of the log.

The queue has them in another order: by due time, or as consumers answered. Without lookahead each message would be a
read at a random place of the log, and a large record would be read once for each of its messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Protocol

from nsqd_py.batch import Batch
from nsqd_py.guid import id_time_ns
from nsqd_py.queue.position import Position

LONGEST_RUN = 64  # longer runs are read in chunks when they are delivered
MOST_ATTEMPTS = 0xFFFF
_LEAST_AHEAD = 64
_MOST_AHEAD = 4096
_PER_WANTED = 4
_MOST_BYTES = 2 * 1024 * 1024  # of bodies
_CUT_ABOVE = 4096  # of a batch with a larger body, only the needed messages are kept
_LOOK_AT_TIME_EVERY = 16  # reads
_MOST_AT_ONCE = 256

Single = tuple[Batch, int, int]  # a batch, an index in it, attempts: this time included


def is_older(batch: Batch, oldest_ns: int) -> bool:
    """True if its messages were published and due before that time, by the steady clock of the ids."""
    return batch.due_ns < oldest_ns and id_time_ns(batch.base_id) < oldest_ns


class BatchSource(Protocol):
    """The source of the batches."""

    def batches_at(self, seqs: list[int]) -> Iterator[Batch | None]:
        """Yield the batch of each of these numbers, which must ascend, or else the next batch. Raises OSError."""


class Lookahead:
    """Batches of the first requeued runs of a position.

    It reads four times the number of messages that consumers are about to take, and at most about 2 MiB of bodies.
    """

    __slots__ = ("_at", "_bytes", "_is_late", "_left", "_loaded", "_lows", "_position", "_source", "_spans")

    def __init__(self, position: Position, source: BatchSource, is_late: Callable[[], bool]) -> None:
        self._position = position
        self._source = source
        self._is_late = is_late
        self._loaded: dict[int, Batch] = {}
        self._spans: list[tuple[int, int]] = []
        self._lows: list[int] = []
        self._at = 0
        self._left = 0
        self._bytes = 0

    # ---- reading

    def prepare(self, low: int, wanted: int) -> bool:
        """Read ahead if `low`, the first requeued message, has not been read.

        Return False if the time of this event-loop iteration ended before that: call again in the next one. Raises
        BlockingIOError while a thread reads it.
        """
        if low in self._loaded:
            return True
        if self._at == len(self._spans) and (self._left <= 0 or not self._loaded):
            self._choose_runs(wanted)
        if self._at < len(self._spans):
            self._read_on()
        return low in self._loaded or self._at == len(self._spans)

    def _choose_runs(self, wanted: int) -> None:
        most = min(_MOST_AHEAD, max(_LEAST_AHEAD, _PER_WANTED * wanted))
        spans = [
            (low, high)
            for low, high, _, batch in islice(self._position.again, most)
            if batch is None and high - low <= LONGEST_RUN
        ]
        spans.sort()
        self._lows = [low for low, _ in spans]
        self._loaded.clear()
        self._spans = spans
        self._at = 0
        self._left = len(spans)
        self._bytes = 0

    def _read_on(self) -> None:
        loaded, spans = self._loaded, self._spans
        at = first = self._at
        last: Batch | None = None
        try:
            for batch in self._source.batches_at(self._lows[at:]):
                low, high = spans[at]
                at += 1
                if batch is not None and batch.first_seq <= low:
                    if len(batch.body) > _CUT_ABOVE and batch.count > high - low:
                        index = low - batch.first_seq
                        batch = batch.part(index, min(index + high - low, batch.count))
                    loaded[low] = batch
                    if batch is not last:
                        last = batch
                        self._bytes += len(batch.body)
                    if self._bytes > _MOST_BYTES:
                        at = len(spans)
                        break
                if not (at - first) % _LOOK_AT_TIME_EVERY and self._is_late():
                    break
        except BlockingIOError:
            self._at = at
            raise
        except OSError:  # delivery reads each of them alone
            at = len(spans)
        self._at = at

    # ---- handing out

    def take(self, low: int) -> Batch | None:
        """Return the batch that was read for the run that begins with `low`, or None."""
        batch = self._loaded.get(low)
        self._taken(1)
        return batch

    def take_singles(self, most: int, room: int, reached: int, oldest_ns: int) -> list[Single]:
        """Take up to `most` runs of one message, or about `room` bytes of bodies, from the requeued runs.

        It stops at the first run that is queued behind number `reached`, has not been read, or is older than
        `oldest_ns`.
        """
        position, loaded = self._position, self._loaded
        again, again_after = position.again, position.again_after
        singles: list[Single] = []
        find = loaded.get
        for (low, high, attempts, _), after in zip(islice(again, min(most, _MOST_AT_ONCE)), again_after, strict=False):
            batch = find(low)
            if batch is None or after > reached or high - low != 1:
                break
            if oldest_ns and is_older(batch, oldest_ns):
                break
            singles.append((batch, low - batch.first_seq, attempts + 1 if attempts < MOST_ATTEMPTS else attempts))
            room -= len(batch.body) // batch.count
            if room <= 0:
                break
        for _ in singles:
            again.popleft()
            again_after.popleft()
        position.again_count -= len(singles)
        self._taken(len(singles))
        return singles

    def _taken(self, runs: int) -> None:
        self._left -= runs
        if self._left <= 0 and self._at == len(self._spans):
            self._loaded.clear()

    def forget(self) -> None:
        """Drop all that was read, after the position has changed."""
        self._loaded.clear()
        self._spans = []
        self._lows = []
        self._at = self._left = 0
