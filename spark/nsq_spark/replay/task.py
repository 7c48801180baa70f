"""The work of one task: send rows in the time that the pace allows. Executors run it in `mapInArrow`."""

from __future__ import annotations

import os
import pickle
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic, sleep
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from nsq_spark.archive.chunk import Payload, equal_runs
from nsq_spark.archive.splits import ArchiveError, FileInfo, Numbers
from nsq_spark.publisher import (
    MOST_DEFERRED,
    NotPublished,
    Producers,
    PublishBatch,
    PublishObserver,
    TaskPublisher,
    by_topic,
)
from nsq_spark.replay.checkpoint.ledger import Ledgers, Unit, slice_name
from nsq_spark.replay.checkpoint.refused import RefusedMessage, RefusedMessages
from nsq_spark.replay.job import PART, SHARED_ID, SLICE_MESSAGES, CheckpointError, Job, Stopped
from nsq_spark.replay.outcome import Outcome
from nsq_spark.replay.pace import Pace
from nsq_spark.source.batch_reader import SLICE
from nsqd_py.client.errors import NsqClientError

RESULT = "result BINARY"
Batches: TypeAlias = Iterable[pa.RecordBatch]
_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Sender:
    """Sends the rows of the partitions of a table; `mapInArrow` calls it.

    paces    of each partition; the same for all if there is one
    files    the files of the job
    done     slices that earlier runs have sent, of parts that are not done
    limit    the number of messages to send
    read     reads the rows itself, from the numbers of partitions that come
    """

    job: Job
    ledgers: Ledgers
    producers: Producers
    paces: Mapping[int, Pace]
    files: Sequence[FileInfo]
    done: frozenset[str]
    limit: int | None
    read: Callable[[Batches], Batches] | None = None

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        spark = TaskContext.get()
        assert spark is not None
        if self.read is None:
            rows = batches
        else:
            rows = self.read(batches)
        result = self.send(
            rows, spark.partitionId(), spark.attemptNumber(), spark.taskAttemptId(), _sockets()
        )
        yield pa.RecordBatch.from_pydict({"result": [pickle.dumps(result)]})

    def send(
        self, batches: Batches, number: int, attempt: int, attempt_id: int, sockets: Sequence[int]
    ) -> Outcome:
        """Return the result of a task. It contains errors that a second try would not repair; others are raised.

        `sockets` bring the rows.
        """
        task = _Task(self, number, attempt, attempt_id)
        result = task.result
        try:
            try:
                task.send_all(batches, sockets)
            except (Stopped, NotPublished, NsqClientError) as error:
                result.ended(error)
            except CheckpointError as error:
                result.ended(error)
                task.abandon()
            if result.is_failed:
                self.ledgers.stop()  # the other tasks end too
            task.close()
        finally:
            task.abandon()
        return result


# ---- the connection to Spark


def _sockets() -> list[int]:
    """Return the descriptors of this process that are sockets."""
    return [int(name) for name in os.listdir("/dev/fd") if Path("/dev/fd", name).is_socket()]


def _is_closed(descriptor: int) -> bool:
    """True if the other side has closed the socket. Rows then end without an error, wherever a killed Spark was."""
    with socket.socket(fileno=os.dup(descriptor)) as one:
        try:
            return not one.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except OSError as error:
            return isinstance(error, ConnectionError)


# ---- a task


class _Task(PublishObserver):
    """The sending of one task. It raises CheckpointError if the ledger or the file of refused messages cannot be written."""

    def __init__(self, sender: Sender, number: int, attempt: int, attempt_id: int) -> None:
        job = sender.job
        self._sender = sender
        self._job = job
        self._ledger = sender.ledgers.ledger(number, attempt_id)
        # What earlier tries sent is not sent again, and counts.
        earlier = sender.ledgers.earlier(number, self._ledger)
        self._done = earlier.slices | sender.done
        self._marks = earlier.marks
        self._is_retry = attempt > 0 and self._ledger.path is None
        pace = sender.paces.get(number) or Pace()
        if attempt:  # it begins with the first message that the earlier tries have not sent
            pace = replace(pace, origin_ns=None)
        self._pace = pace.begin(monotonic())
        self._units: deque[Unit] = deque()
        self._slice = Unit("")  # the last one that began; more of its rows may come
        self._part = ""
        self._part_rows = 0  # of this part, so far
        self._last: dict[str, Unit] = {}  # by topic
        self._polled_s = 0.0
        self._publisher = TaskPublisher(replace(sender.producers, turn=number), self)
        counts = self._publisher.counts
        counts.add(earlier.counts)
        counts.possible_duplicates += earlier.unsure
        matched = earlier.counts.messages + earlier.refused
        self.result = Outcome(counts, matched, shared_ids=earlier.shared_ids)
        path = self._ledger.refused_path
        self._refused = RefusedMessages(job, sender.files, path, self.result.returned)

    def send_all(self, batches: Batches, sockets: Sequence[int]) -> None:
        """Send all rows, and wait until they are acknowledged. Raises Stopped, NotPublished and NsqClientError."""
        is_cut = False
        try:
            for rows in batches:
                self._send(rows)
                if self._room == 0:
                    break
            else:
                is_cut = any(map(_is_closed, sockets))  # rows of the last slice may be missing
        except ArchiveError as error:  # what came before the damage is sent
            self.result.ended(error)
        self._publisher.finish()
        if not (self.result.is_failed or is_cut or self._job.is_ordered):
            self._end_part()
        self._settle()

    def close(self) -> None:
        """Handle the answers that still come, and write down what is done."""
        self._publisher.close()
        self._ledger.close()
        counts = self.result.counts
        if self._is_retry:
            counts.possible_duplicates = counts.messages

    def abandon(self) -> None:
        """Write nothing more, and release what others wait for."""
        self._units.clear()
        self._ledger.abandon()

    @property
    def _room(self) -> int | None:
        """The number of messages that the limit leaves."""
        limit = self._sender.limit
        if limit is None:
            return None
        return max(0, limit - self.result.matched)

    def _send(self, rows: pa.RecordBatch) -> None:
        """Send rows, in the time that the pace allows."""
        self._publisher.idle()
        if self._job.is_ordered:
            for due in self._due(self._not_sent(rows)):
                for topic, of_topic in by_topic(due):
                    for low in range(0, of_topic.num_rows, SLICE_MESSAGES):
                        self._send_of_topic(topic, of_topic.slice(low, SLICE_MESSAGES))
            return
        for name, some in self._slices(rows):
            if name not in self._done:
                for due in self._due(some):
                    self._send_rows(due, self._unit_of(name))

    def _due(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows up to the limit, at the times at which they are due."""
        rows = rows.slice(0, self._room)
        times_ns = _times_of(rows)
        low = 0
        while low < rows.num_rows:
            left_ns = times_ns[low:]
            while not (count := self._pace.take(left_ns, monotonic())):
                self._publisher.wait(self._pace.wait_s(left_ns, monotonic()))
            yield rows.slice(low, count)
            low += count

    # ---- slices of a part of the archive

    def _slices(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the rows slice by slice, with the names. The rows of a part are in the same order in each run."""
        name = PART if self._job.selection.dedupe else SLICE
        parts = rows.column(name).dictionary_encode()
        codes = parts.indices.to_numpy(zero_copy_only=False)
        changes = np.diff(codes) != 0
        for low, high in equal_runs(changes, rows.num_rows):
            part = parts[low].as_py()
            if part != self._part:
                self._end_part()
                self._part = part
                self._part_rows = 0
            while low < high:
                number, index = divmod(self._part_rows, SLICE_MESSAGES)
                count = min(high - low, SLICE_MESSAGES - index)
                self._part_rows += count
                yield slice_name(number, part), rows.slice(low, count)
                low += count

    def _end_part(self) -> None:
        """A part is done when all its slices are: a replay that goes on does not read it again."""
        self._slice = Unit("")
        if self._part:
            self._units.append(Unit(self._part))

    def _unit_of(self, name: str) -> Unit:
        """Return the unit of a slice."""
        if self._slice.key != name:
            self._slice = Unit(name)
            self._units.append(self._slice)
        return self._slice

    # ---- topics in the order of time

    def _not_sent(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that earlier tries have not sent. A resumed topic begins with the last time that was sent."""
        for topic, mark in self._marks.items():
            is_other = pc.not_equal(rows.column("topic"), topic)
            is_new = pc.greater_equal(rows.column("timestamp_ns"), mark)
            rows = rows.filter(pc.or_(is_other, is_new))
        return rows

    def _send_of_topic(self, topic: str, rows: pa.RecordBatch) -> None:
        times_ns = _times_of(rows)
        last_ns = int(times_ns[-1])
        unit = Unit(topic, last_ns, int(np.count_nonzero(times_ns == last_ns)))
        before = self._last.get(topic)
        if before and before.mark == last_ns:  # all messages of this unit have the time of those before
            unit.again += before.again
        self._last[topic] = unit
        self._units.append(unit)
        self._send_rows(rows, unit)

    # ---- rows

    def _send_rows(self, rows: pa.RecordBatch, unit: Unit) -> None:
        unit.count += rows.num_rows
        self.result.matched += rows.num_rows
        if self._job.selection.dedupe == "id":
            unit.shared_ids += pc.sum(rows.column(SHARED_ID)).as_py() or 0
        destination = self._job.destination
        defer_ms = round(destination.defer_s * 1000)
        for topic, some in by_topic(rows):
            name = destination.topic(topic)
            payload = Payload.of_array(some.column("body"))
            most = MOST_DEFERRED if defer_ms else len(payload)
            for begin, end in payload.cuts(most, destination.batch_bytes):
                self._ledger.sending(end - begin)
                self._publisher.send(PublishBatch(name, payload, begin, end, defer_ms, (unit, some)))

    def _settle(self) -> None:
        """Write what is done. Messages that nsqd refused are saved first, so that their unit is done without them."""
        while self._units and self._units[0] is not self._slice and self._units[0].is_answered:
            unit = self._units[0]
            if unit.refused:
                self._refused.keep(unit.refused)
            self.result.shared_ids += unit.shared_ids
            self._ledger.done(unit)
            self._units.popleft()

    # ---- what the publisher observes; the origin of a batch is its unit, and its rows: message i of the payload is row i

    def acknowledged(self, batch: PublishBatch) -> None:
        self._ledger.sent(batch.origin[0], batch.counts)

    def too_large(self, batch: PublishBatch, error: Exception) -> None:
        """Count the message as failed. Its slice is done without it."""
        unit, rows = batch.origin
        row = rows.slice(batch.begin, 1).to_pylist()[0]
        message = RefusedMessage(row["topic"], row["timestamp_ns"], row["body"], row[SLICE], str(error))
        unit.refused.append(message)
        self.result.failed += 1
        self._ledger.totals.failed += 1
        self.result.note(f"{message.part}, a message of {batch.body_bytes} bytes: {error}")

    def stepped(self) -> None:
        self._settle()
        self._ledger.write()

    def poll(self) -> None:
        now_s = monotonic()
        if now_s - self._polled_s >= _POLL_S:
            self._polled_s = now_s
            if self._sender.ledgers.is_stopped:
                raise Stopped("stopped")

    def sleep(self, seconds: float) -> None:
        self.poll()
        sleep(min(seconds, _POLL_S))
        self.poll()


def _times_of(rows: pa.RecordBatch) -> Numbers:
    """Return the timestamps; 0 where the archive does not know them."""
    column = pc.fill_null(rows.column("timestamp_ns"), 0)
    times: Numbers = column.to_numpy(zero_copy_only=False)
    return times
