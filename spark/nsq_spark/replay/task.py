"""The work of one task: send rows in the time that the pace allows. Executors run it in `mapInArrow`."""

from __future__ import annotations

import os
import pickle
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from nsq_spark import publisher
from nsq_spark.archive.chunk import Payload, equal_runs
from nsq_spark.archive.splits import ArchiveError, FileInfo, Numbers
from nsq_spark.replay.checkpoint import Ledger, Ledgers, Unit, slice_name
from nsq_spark.replay.job import PART, SHARED_ID, SLICE_MESSAGES, Job, ReplayError, Stopped
from nsq_spark.replay.refused import RefusedMessage, RefusedMessages
from nsq_spark.source.batch_reader import SLICE
from nsqd_py.client.errors import NsqClientError
from nsqd_py.settings.durations import SECOND_NS

# A rate and a speed are kept in spite of short stops: this many seconds' worth of messages may leave at once.
_BURST_S = 0.1
# Messages that are due within this time are sent together: 100 commands a second, not one for each message.
_TOGETHER_S = 0.01
# No wait is shorter: what is missing may be less than the clock can show.
_LEAST_WAIT_S = 0.001


@dataclass(frozen=True, slots=True)
class PaceOfTask:
    """A task's share of the pace of the job.

    rate         messages a second, of this task
    speed        how many times as fast as they were published; 1 keeps the gaps
    origin_ns    the timestamp that is due when the first message is ready to leave; None: that of this message
    catches_up   after a stall, late messages leave at once; otherwise all messages behind the stall leave later
    """

    rate: float | None = None
    speed: float | None = None
    origin_ns: int | None = None
    catches_up: bool = False

    def begin(self, now_s: float) -> Pace:
        """Return the pace from now on, by the task's clock."""
        return Pace(self, now_s)


class Pace:
    """A token bucket for the rate, and a schedule for the timestamps; both hold.

    The schedule begins when the first message is ready to leave: how long Spark reads and sorts before that has no effect.
    """

    def __init__(self, share: PaceOfTask, now_s: float) -> None:
        self._share = share
        self._rate = share.rate
        self._most = max(1.0, (share.rate or 0.0) * _BURST_S)
        self._tokens = 1.0
        self._filled_s = now_s
        self._schedule: _Schedule | None = None

    def ready(self, times_ns: Numbers | None, count: int, now_s: float) -> int:
        """Return how many of the next `count` messages, with these timestamps, may be sent now."""
        if self._rate is not None:
            self._tokens = min(self._most, self._tokens + self._rate * max(0.0, now_s - self._filled_s))
            self._filled_s = now_s
            count = min(count, int(self._tokens))
        if self._share.speed is not None:
            assert times_ns is not None
            schedule = self._schedule_for(int(times_ns[0]), now_s)
            count = int(np.searchsorted(times_ns[:count], schedule.time_ns(now_s), "right"))
        return count

    def wait_s(self, times_ns: Numbers | None, now_s: float) -> float:
        """Return the time until messages may be sent again: several, not one for each wake-up."""
        wait_s = _LEAST_WAIT_S
        if self._rate is not None:
            wanted = max(1.0, self._most / 2)
            wait_s = max(wait_s, (wanted - self._tokens) / self._rate - (now_s - self._filled_s))
        if self._share.speed is not None:
            assert times_ns is not None
            schedule = self._schedule_for(int(times_ns[0]), now_s)
            wait_s = max(wait_s, -schedule.late_s(int(times_ns[0]), now_s) + _TOGETHER_S / 2)
        return wait_s

    def sent(self, count: int) -> None:
        if self._rate is not None:
            self._tokens -= count

    def _schedule_for(self, time_ns: int, now_s: float) -> _Schedule:
        """Return the schedule for a message of `time_ns`, the next one, which is ready now."""
        share = self._share
        if self._schedule is None:
            assert share.speed is not None
            origin_ns = time_ns if share.origin_ns is None else share.origin_ns
            self._schedule = _Schedule(share.speed, origin_ns, now_s)
        if not share.catches_up:
            late_s = self._schedule.late_s(time_ns, now_s)
            if late_s > _BURST_S:
                self._schedule.start_s += late_s
        return self._schedule


@dataclass(slots=True)
class _Schedule:
    """A message of `origin_ns` is due at `start_s`, by the task's clock; the others as their gaps say."""

    speed: float
    origin_ns: int
    start_s: float

    def time_ns(self, now_s: float) -> int:
        """Return the time of the archive that is due now."""
        return self.origin_ns + round((now_s - self.start_s) * self.speed * SECOND_NS)

    def late_s(self, time_ns: int, now_s: float) -> float:
        """Return for how long a message has been due; less than 0 if it is not yet."""
        return now_s - self.start_s - (time_ns - self.origin_ns) / self.speed / SECOND_NS


RESULT = "result BINARY"
Batches: TypeAlias = Iterable[pa.RecordBatch]
_NAMED_FAILURES = 10
_POLL_S = 0.2


@dataclass(slots=True)
class TaskResult:
    """The result of one task. It contains errors that a second try would not repair; others fail Spark's task.

    failures  the errors of the first messages that nsqd refused
    refused   their lines, if the driver cannot read the file that has them
    """

    counts: publisher.PublishCounts = field(default_factory=publisher.PublishCounts)
    matched: int = 0
    failed: int = 0
    shared_ids: int = 0
    failures: list[str] = field(default_factory=list)
    refused: list[bytes] = field(default_factory=list)
    error: str = ""
    is_stopped: bool = False


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
    paces: Mapping[int, PaceOfTask]
    files: Sequence[FileInfo] = ()
    done: frozenset[str] = frozenset()
    limit: int | None = None
    read: Callable[[Batches], Batches] | None = None
    producers: type[publisher.Producers] = publisher.Producers

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        spark = TaskContext.get()
        assert spark is not None
        rows = batches if self.read is None else self.read(batches)
        result = self.send(rows, spark.partitionId(), spark.attemptNumber(), spark.taskAttemptId(), _sockets())
        yield pa.RecordBatch.from_pydict({"result": [pickle.dumps(result)]})

    def send(
        self, batches: Batches, number: int, attempt: int = 0, attempt_id: int = 0, sockets: Sequence[int] = ()
    ) -> TaskResult:
        """Return the result of a task, however it ends; unexpected errors are raised. `sockets` bring the rows."""
        task = _Task(self, number, attempt, attempt_id)
        try:
            try:
                for rows in batches:
                    task.send(rows)
                    if task.is_full:
                        break
                else:
                    task.is_cut = any(map(_is_closed, sockets))
            except ArchiveError as error:  # what came before the damage is sent
                task.result.error = str(error)
            task.finish()
            if task.result.error:
                self.ledgers.stop()  # the other tasks end too
        except Stopped:
            task.result.is_stopped = True
        except (ReplayError, publisher.NotPublished, NsqClientError) as error:
            task.result.error = str(error)
            self.ledgers.stop()
        except BaseException:
            task.abandon()
            raise
        task.close()
        return task.result


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


class _Origin(NamedTuple):
    """The rows of a batch: message i of its payload is row i."""

    unit: Unit
    topic: str
    rows: pa.RecordBatch

    def message(self, number: int, error: Exception) -> RefusedMessage:
        row = self.rows.slice(number, 1).to_pylist()[0]
        return RefusedMessage(self.topic, row["timestamp_ns"], row["body"], row[SLICE], str(error))


class _Task(publisher.PublishObserver):
    """`is_cut`: rows of the last slice may be missing."""

    def __init__(self, sender: Sender, number: int, attempt: int, attempt_id: int) -> None:
        job = sender.job
        self._destination = job.destination
        self._ledgers = sender.ledgers
        self._is_ordered = job.is_ordered
        self._part_column = PART if job.selection.dedupe else SLICE
        self._counts_shared_ids = job.selection.dedupe == "id"
        self._defer_ms = round(job.destination.defer_s * 1000)
        self.result = TaskResult()
        self.is_cut = False
        self._ledger: Ledger = sender.ledgers.ledger(number, attempt_id)
        refused_path = sender.ledgers.refused_path(number, attempt_id)
        self._refused = RefusedMessages(job, sender.files, refused_path, self.result.refused)
        earlier = sender.ledgers.earlier(number, attempt_id)  # what earlier tries sent is not sent again, and counts
        self._done: dict[str, int | None] = earlier.done | dict.fromkeys(sender.done)
        self._is_retry = attempt > 0 and not self._ledger.is_kept
        self.result.matched = earlier.counts.messages + earlier.refused
        self.result.shared_ids = earlier.shared_ids
        self._limit = None if sender.limit is None else sender.limit - self.result.matched
        pace = sender.paces.get(number) or PaceOfTask()
        if attempt:  # it begins with the first message that the earlier tries have not sent
            pace = replace(pace, origin_ns=None)
        self._pace = pace.begin(time.monotonic())
        self._units: deque[Unit] = deque()
        self._part = ""
        self._part_rows = 0  # of this part, so far
        self._last: dict[str, tuple[int, int]] = {}  # by topic: the last time, and the number of its messages so far
        self._polled_s = 0.0
        to, patience_s = job.destination, job.give_up_after_s
        addresses = to.nsqd_tcp_addresses, to.lookupd_http_addresses
        producers = sender.producers(*addresses, to.options, patience_s, is_ordered=job.is_ordered, turn=number)
        self._publisher = publisher.TaskPublisher(producers, self)
        self._publisher.counts.add(earlier.counts)
        self._publisher.counts.possible_duplicates += earlier.unsure

    @property
    def is_full(self) -> bool:
        return self._limit is not None and self._limit <= 0

    def send(self, rows: pa.RecordBatch) -> None:
        """Send rows, in the time that the pace allows."""
        self._publisher.idle()
        if self._is_ordered:
            for due in self._due(self._not_sent(rows)):
                self._send_lanes(due)
            return
        for name, some in self._slices(rows):
            if name in self._done:
                continue
            for due in self._due(some):
                self._send_rows(due, self._unit_of(name))

    def _due(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows up to the limit, at the times at which they are due."""
        if self._limit is not None:
            rows = rows.slice(0, self._limit)
        times = rows.column("timestamp_ns")
        times_ns = None if times.null_count else times.to_numpy(zero_copy_only=False)
        low = 0
        while low < rows.num_rows:
            left_ns = None if times_ns is None else times_ns[low:]
            while not (count := self._pace.ready(left_ns, rows.num_rows - low, time.monotonic())):
                self._publisher.wait(self._pace.wait_s(left_ns, time.monotonic()))
            yield rows.slice(low, count)
            self._pace.sent(count)
            low += count

    # ---- slices of a part of the archive

    def _slices(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the rows slice by slice, with the names. The rows of a part are in the same order in each run."""
        parts = rows.column(self._part_column).dictionary_encode()
        changes = np.diff(parts.indices.to_numpy(zero_copy_only=False)) != 0
        for low, high in equal_runs(changes, rows.num_rows):
            self._begin_part(parts[low].as_py())
            while low < high:
                number, index = divmod(self._part_rows, SLICE_MESSAGES)
                count = min(high - low, SLICE_MESSAGES - index)
                self._part_rows += count
                yield slice_name(number, self._part), rows.slice(low, count)
                low += count

    def _begin_part(self, part: str) -> None:
        if part == self._part:
            return
        self._end_part()
        self._part = part
        self._part_rows = 0

    def _end_part(self) -> None:
        """A part is done when all its slices are: a replay that goes on does not read it again."""
        if not self._part:
            return
        if self._units:
            self._units[-1].is_closed = True
        self._units.append(Unit(self._part, is_closed=True))

    def _unit_of(self, name: str) -> Unit:
        """Return the unit of a slice."""
        if not self._units or self._units[-1].lane != name:
            if self._units:
                self._units[-1].is_closed = True
            self._units.append(Unit(name))
        return self._units[-1]

    # ---- topics in the order of time

    def _not_sent(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that earlier tries have not sent. A resumed topic begins with the last time that was sent."""
        if not self._done:
            return rows
        topics = rows.column("topic").dictionary_encode()
        marks = np.array([self._done.get(topic) or 0 for topic in topics.dictionary.to_pylist()], dtype=np.int64)
        times_ns = rows.column("timestamp_ns").to_numpy(zero_copy_only=False)
        return rows.filter(pa.array(times_ns >= marks[topics.indices.to_numpy(zero_copy_only=False)]))

    def _send_lanes(self, rows: pa.RecordBatch) -> None:
        topics = rows.column("topic").dictionary_encode()
        numbers = topics.indices.to_numpy(zero_copy_only=False)
        for number, topic in enumerate(topics.dictionary.to_pylist()):
            lane = rows if len(topics.dictionary) == 1 else rows.take(pa.array(np.flatnonzero(numbers == number)))
            for low in range(0, lane.num_rows, SLICE_MESSAGES):
                self._send_lane(topic, lane.slice(low, SLICE_MESSAGES))

    def _send_lane(self, topic: str, rows: pa.RecordBatch) -> None:
        times_ns = rows.column("timestamp_ns").to_numpy(zero_copy_only=False)
        last_ns = int(times_ns[-1])
        again = int(np.count_nonzero(times_ns == last_ns))
        if self._last.get(topic, (0, 0))[0] == last_ns:  # all of them have the time of those before
            again += self._last[topic][1]
        self._last[topic] = last_ns, again
        unit = Unit(topic, last_ns, again)
        self._units.append(unit)
        self._send_rows(rows, unit)
        unit.is_closed = True
        self._settle()

    # ---- rows

    def _send_rows(self, rows: pa.RecordBatch, unit: Unit) -> None:
        if self._limit is not None:
            self._limit -= rows.num_rows
        unit.count += rows.num_rows
        if self._counts_shared_ids:
            unit.shared_ids += pc.sum(rows.column(SHARED_ID)).as_py() or 0
        self.result.matched += rows.num_rows
        topics = rows.column("topic").dictionary_encode()
        for code, topic in enumerate(topics.dictionary.to_pylist()):
            some = rows if len(topics.dictionary) == 1 else rows.filter(pc.equal(topics.indices, code))
            payload = Payload.of_array(some.column("body"))
            origin = _Origin(unit, topic, some)
            most = publisher.MOST_DEFERRED if self._defer_ms else len(payload)
            for begin, end in payload.cuts(most, self._destination.batch_bytes):
                self._ledger.sending(end - begin)
                name = self._destination.topic(topic)
                self._publisher.send(publisher.PublishBatch(name, payload, begin, end, self._defer_ms, origin))

    def finish(self) -> None:
        """Wait until all is acknowledged. Raises NotPublished."""
        self._publisher.finish()
        if not (self.result.error or self.is_cut or self._is_ordered):
            self._end_part()
        self._settle()

    def abandon(self) -> None:
        """Only release what others wait for."""
        self._ledger.abandon()

    def close(self) -> None:
        self._publisher.close()
        self._ledger.close()
        counts = self._publisher.counts
        if self._is_retry:
            counts.possible_duplicates = counts.messages
        self.result.counts = counts

    def _settle(self) -> None:
        """Write what is done. Messages that nsqd refused are kept first, so that their unit is done without them."""
        while self._units and self._units[0].is_answered:
            unit = self._units.popleft()
            if unit.refused:
                self._refused.keep(unit.refused)
            self.result.shared_ids += unit.shared_ids
            self._ledger.done(unit)

    # ---- what the publisher observes

    def acknowledged(self, batch: publisher.PublishBatch) -> None:
        unit: Unit = batch.origin.unit
        unit.acknowledged(batch.topic, batch.count, batch.body_bytes)
        self._ledger.sent(batch.topic, batch.count, batch.body_bytes)

    def too_large(self, batch: publisher.PublishBatch, error: Exception) -> None:
        """Count the message as failed. Its slice is done without it."""
        origin: _Origin = batch.origin
        message = origin.message(batch.begin, error)
        origin.unit.refused.append(message)
        self.result.failed += 1
        self._ledger.failed(1)
        if len(self.result.failures) < _NAMED_FAILURES:
            self.result.failures.append(f"{message.part}, a message of {batch.body_bytes} bytes: {error}")

    def stepped(self) -> None:
        self._settle()
        self._ledger.write()

    def poll(self) -> None:
        now_s = time.monotonic()
        if now_s - self._polled_s >= _POLL_S:
            self._polled_s = now_s
            if self._ledgers.is_stopped:
                raise Stopped("stopped")

    def sleep(self, seconds: float) -> None:
        self.poll()
        time.sleep(min(seconds, _POLL_S))
        self.poll()
