"""Reads the messages of a topic by sequence number, from memory or from its log, and says when one was published."""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import attrgetter
from typing import Protocol

from nsqd_py.errors import is_full
from nsqd_py.pqueues.alarms import Clock
from nsqd_py.protocol.batch import Batch
from nsqd_py.protocol.message_ids import id_time_ns
from nsqd_py.queue.reading.batch_cache import BatchCache
from nsqd_py.queue.storage import MessageLog
from nsqd_py.runtime.logs.lines import DaemonLog

_REPORT_EVERY_NS = 10_000_000_000

_first_seq = attrgetter("first_seq")


class BatchSource(Protocol):
    """The source of a channel's messages: the `MessageReader` of its topic."""

    def batch_at(self, seq: int) -> Batch | None:
        """Return the batch that contains `seq`, or else the next batch, or None. Raises OSError."""

    def batches_at(self, seqs: list[int]) -> Iterator[Batch | None]:
        """Yield `batch_at` of each of these numbers, which must ascend. Neighbouring batches are not read."""

    def readable_from(self, seq: int) -> int:
        """Return the next number after `seq` from which messages may be readable, if `seq` is not."""


class MessageReader:
    """The messages of one topic. Failed reads are logged, at most every 10 s."""

    __slots__ = ("_failed_ns", "_log", "_name", "_recent", "_report", "_wall_clock")

    def __init__(
        self, name: str, log: MessageLog | None, recent: BatchCache, wall_clock: Clock, report: DaemonLog
    ) -> None:
        self._name = name
        self._log = log
        self._recent = recent
        self._wall_clock = wall_clock
        self._report = report
        self._failed_ns = 0

    @property
    def memory_from(self) -> int:
        """From this number on, all needed messages are in memory; the highest number if none is."""
        if self._log is None:
            return 0
        firsts = self._recent.first_seqs
        return firsts[0] if firsts else sys.maxsize

    def batch_at(self, seq: int) -> Batch | None:
        """Return the batch that contains `seq`, or else the next batch, or None. Raises OSError."""
        recent = self._recent.find(seq)
        if recent is not None:
            return recent
        if self._log is not None:
            chunk = self._read(self._log, seq)
            for batch in chunk[max(0, bisect_right(chunk, seq, key=_first_seq) - 1) :]:
                if batch.end_seq > seq:
                    return batch
        return self._recent.first_behind(seq)

    def batches_at(self, seqs: list[int]) -> Iterator[Batch | None]:
        """Yield `batch_at` of each of these numbers, which must ascend. Neighbouring batches are not read."""
        log = self._log
        in_memory = bisect_left(seqs, self.memory_from) if log is not None else 0
        if log is not None and in_memory:
            at = 0
            try:
                for at, batch in enumerate(log.read_each(seqs[:in_memory])):
                    yield batch if batch is not None else self.batch_at(seqs[at])
            except BlockingIOError:  # a thread reads it now
                raise
            except OSError as error:
                self._report_failure(seqs[at], error)
                raise
        for seq in seqs[in_memory:]:
            yield self.batch_at(seq)

    def _read(self, log: MessageLog, seq: int) -> list[Batch]:
        try:
            return log.read(seq)
        except BlockingIOError:  # a thread reads it
            raise
        except OSError as error:
            self._report_failure(seq, error)
            raise

    def _report_failure(self, seq: int, error: OSError) -> None:
        now_ns = self._wall_clock()
        if abs(now_ns - self._failed_ns) >= _REPORT_EVERY_NS:
            self._failed_ns = now_ns
            text = "failed to read message %d from disk"
            if is_full(error):
                text = "the disk is full, message %d waits"
            self._report.of_clients.error("TOPIC(%s): " + text + " - %s", self._name, seq, error)

    def readable_from(self, seq: int) -> int:
        """Return the next number after `seq` from which messages may be readable, if `seq` is not."""
        if self._log is None:
            return seq + 1
        return min(self._log.readable_from(seq), max(seq + 1, self.memory_from))

    def first_published_since(self, steady_ns: int, low: int, *, by_timestamp: bool) -> int | None:
        """Return the number of the first message from `low` on that was published since that time. Raises OSError.

        It compares ids, because the wall clock may have been set; `by_timestamp` compares timestamps in a log that
        takes dead letters, which keep their ids.
        """
        if self._log is None:
            return self._recent.seq_since(steady_ns)
        return self._log.first_published_since(steady_ns, low, by_timestamp=by_timestamp)


# ---- when a message was published


def published_ns(batch: Batch) -> int:
    """Return the time from which the age of its messages counts, in ns of the steady clock: publish or due time.

    The publish time is that of the id, to 1 ms. The timestamp is of the wall clock, which may have been set since.
    """
    return max(id_time_ns(batch.base_id), batch.due_ns)


def publish_time_ns(source: BatchSource, seq: int) -> int:
    """Return the publish time of a message, or its due time if it was deferred, in ns since the epoch.

    Return 0 if it cannot be read now.
    """
    try:
        batch = next(source.batches_at([seq]))
    except OSError:
        return 0
    if batch is not None:
        return max(batch.timestamp_ns, batch.due_ns)
    return 0
