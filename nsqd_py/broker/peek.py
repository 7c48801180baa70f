"""Showing the queued, in-flight or deferred messages of a channel, without changing anything."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import orjson

from nsqd_py.broker.services import Topic
from nsqd_py.diskqueue.checking import ReadAt, read_by
from nsqd_py.diskqueue.compaction import Unmovable, walk
from nsqd_py.diskqueue.files.log_file import LogFile
from nsqd_py.diskqueue.history import HistoryFile
from nsqd_py.diskqueue.reading import ReadableFile
from nsqd_py.pqueues.deferred import Run
from nsqd_py.protocol.batch import Batch
from nsqd_py.protocol.frames import hex_ids
from nsqd_py.queue.channel import Channel
from nsqd_py.runtime.threads import in_thread

_MOST_BYTES = 4 * 1024 * 1024  # of JSON, which may be six times as long as a body: "\\u0000"

# Messages in one state, and the fields that their rows have in addition to those of the message.
StateRun = tuple[Run, dict[str, Any]]


def queued(channel: Channel, most: int, _wall_ns: Callable[[int], int]) -> Iterator[StateRun]:
    """Yield the next queued messages, in the order of delivery."""
    for run in channel.position.queued(most):
        yield run, {}


def in_flight(channel: Channel, most: int, wall_ns: Callable[[int], int]) -> Iterator[StateRun]:
    """Yield messages in flight, with the address of the client, the time of delivery, and when they time out."""
    for low, high, delivery, client in channel.in_flight(most):
        yield (
            (low, high, delivery.attempts, delivery.batch),
            {
                "client": client.peer if client is not None else "",
                "delivered": wall_ns(delivery.delivered_ns),
                "deadline": wall_ns(delivery.deadline_ns),
            },
        )


def deferred(channel: Channel, most: int, wall_ns: Callable[[int], int]) -> Iterator[StateRun]:
    """Yield the deferred messages that are due next, with that time."""
    for due_ns, run in channel.position.deferred.first(most):
        yield run, {"due": wall_ns(due_ns)}


# By the names that the query has for them. The last argument converts a steady time to wall time.
STATES: dict[str, Callable[[Channel, int, Callable[[int], int]], Iterable[StateRun]]] = {
    "queued": queued,
    "in_flight": in_flight,
    "deferred": deferred,
}


class Peek:
    """Messages of a channel as JSON; fewer than `runs` has if they are large.

    rows              {id, seq, timestamp (ns), attempts (so far), fields of the state, body as text or body_base64}
    ids               the id of each row
    unreadable_count  messages among them that cannot be read now
    """

    def __init__(self, topic: Topic, runs: Iterable[StateRun]) -> None:
        self.rows: list[orjson.Fragment] = []
        self.ids: list[bytes] = []
        self.unreadable_count = 0
        self._topic = topic
        self._runs = list(runs)
        self._sources: dict[LogFile | HistoryFile, _PeekSource] = {}
        self._plan: list[_MessageRange] = []
        self._reads_history = False

    def fill(self, threadpool: Any) -> None:
        """Fill in the rows. A thread reads while this greenlet waits. Raises OSError."""
        with ExitStack() as stack:
            for run, fields in self._runs:
                self._plan += self._ranges(run, fields, stack)
            if self._reads_history:
                assert self._topic.log is not None and self._topic.log.history is not None
                self._topic.log.history.in_thread(self._read, on_ended=stack.pop_all().close)
            else:
                in_thread(threadpool, self._read)

    def _ranges(self, run: Run, fields: dict[str, Any], stack: ExitStack) -> Iterator[_MessageRange]:
        """Yield where a run's messages are: in a batch in memory, or in files."""
        low, high, attempts, retained = run
        fields = {"attempts": attempts, **fields}
        memory_from = self._topic.first_in_memory if retained is None else low
        if self._topic.log is not None and low < memory_from:
            for file, first, until in self._topic.log.files_with(low, min(high, memory_from)):
                yield _MessageRange(first, until, fields, None, self._source(file, stack))
        low = max(low, memory_from)
        while low < high:
            batch = retained or self._topic.messages.batch_at(low)
            if batch is None or batch.first_seq >= high:
                break
            first = max(low, batch.first_seq)
            end = min(high, batch.end_seq)
            yield _MessageRange(first, end, fields, batch, None)
            low = batch.end_seq

    def _source(self, file: LogFile | HistoryFile, stack: ExitStack) -> _PeekSource:
        source = self._sources.get(file)
        if source is None:
            source = self._sources[file] = self._reader(file, stack), file
        return source

    def _reader(self, file: LogFile | HistoryFile, stack: ExitStack) -> ReadAt:
        if isinstance(file, HistoryFile):
            self._reads_history = True
            return file.read
        descriptor = file.duplicate()
        stack.callback(os.close, descriptor)
        return read_by(descriptor)

    # ---- in a thread

    def _read(self) -> None:
        left = _MOST_BYTES
        for message_range in self._plan:
            seq = message_range.low
            try:
                for batch in message_range.batches():
                    for index, message_id in enumerate(hex_ids(batch.base_id, batch.count)):
                        row = _row(batch, index, message_id, message_range.fields)
                        left -= len(row)
                        if left < 0 and self.rows:
                            return
                        self.rows.append(orjson.Fragment(row))
                        self.ids.append(message_id)
                        seq += 1
            except (OSError, Unmovable):
                self.unreadable_count += message_range.high - seq


# A function that reads, through a duplicated descriptor, since the event loop may write to the file; and its file.
_PeekSource = tuple[ReadAt, ReadableFile]


class _MessageRange(NamedTuple):
    """Messages low..high (not included) in one batch or one file."""

    low: int
    high: int
    fields: dict[str, Any]
    batch: Batch | None
    source: _PeekSource | None

    def batches(self) -> Iterator[Batch]:
        """Yield the batches. Raises OSError, and Unmovable for damaged messages."""
        if self.batch is not None:
            first_seq = self.batch.first_seq
            yield self.batch.part(self.low - first_seq, self.high - first_seq)
        if self.source is not None:
            yield from walk(*self.source, [(self.low, self.high)])


def _row(batch: Batch, index: int, message_id: bytes, fields: dict[str, Any]) -> bytes:
    seq = batch.first_seq + index
    row: dict[str, Any] = {"id": message_id.decode(), "seq": seq, "timestamp": batch.timestamp_ns, **fields}
    body = batch.message(index)
    try:
        row["body"] = body.decode()
    except UnicodeDecodeError:
        row["body_base64"] = b64encode(body).decode()
    return orjson.dumps(row)
