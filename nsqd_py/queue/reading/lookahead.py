"""Requeued messages, which are read before they are needed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from nsqd_py.protocol.batch import Batch
from nsqd_py.queue.position import Position
from nsqd_py.queue.reading.message_reader import BatchSource

LONGEST_RUN = 64  # longer runs are read in chunks when they are delivered
_LEAST_AHEAD = 64
_MOST_AHEAD = 4096
_PER_NEEDED = 4
_MOST_BYTES = 2 * 1024 * 1024  # of bodies
_CUT_ABOVE = 4096  # of a batch with a larger body, only the needed messages stay
_CHECK_TIME_EVERY = 16  # reads


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

    def prepare(self, low: int, needed: int) -> bool:
        """Read ahead if `low`, the first requeued message, has not been read.

        Return False if the time of this event-loop iteration ended before that: call again in the next one. Raises
        BlockingIOError while a thread reads it.
        """
        if low in self._loaded:
            return True
        if self._at == len(self._spans) and (self._left <= 0 or not self._loaded):
            self._choose_runs(needed)
        if self._at < len(self._spans):
            self._read_on()
        return low in self._loaded or self._at == len(self._spans)

    def _choose_runs(self, needed: int) -> None:
        most = min(_MOST_AHEAD, max(_LEAST_AHEAD, _PER_NEEDED * needed))
        spans = [
            (low, high)
            for low, high, _, batch in islice(self._position.requeued, most)
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
        loaded = self._loaded
        spans = self._spans
        at = self._at
        first = at
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
                if not (at - first) % _CHECK_TIME_EVERY and self._is_late():
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
        self._left -= 1
        if self._left <= 0 and self._at == len(self._spans):
            self._loaded.clear()
        return batch

    def forget(self) -> None:
        """Drop all that was read, after the position has changed."""
        self._loaded.clear()
        self._spans = []
        self._lows = []
        self._at = 0
        self._left = 0
