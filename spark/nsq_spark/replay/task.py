"""The work of one task: read, select, and hand on to a sink, which sends. Executors run this without the JVM."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa

from nsq_spark.archive.damage import ArchiveError, Damage, Skipped
from nsq_spark.publisher import MOST_DEFERRED, NotPublished, Producers, PublishBatch, PublishObserver, TaskPublisher
from nsq_spark.replay.checkpoint import Acknowledged, CheckpointPlace, Ledger
from nsq_spark.replay.errors import ReplayError, Stopped
from nsq_spark.replay.job import Job
from nsq_spark.replay.ordering import Merge, Run, Spill
from nsq_spark.replay.planning import Part, Source, Task
from nsq_spark.replay.positions import BEFORE_ALL, BY_FILE, SENDING, Block, Mark, Range, by_time, merged, rows_of
from nsq_spark.replay.progress import BoardPlace, ReplayCounts, TaskLine
from nsq_spark.replay.reading import Reader
from nsqd_py.client.errors import NsqClientError

_NAMED_FAILURES = 10
_EXPECTED = (ReplayError, NotPublished, ArchiveError, NsqClientError)


@dataclass(frozen=True, slots=True)
class TaskContext:
    """What all tasks of a run have in common.

    line        the board on which tasks write their counts
    checkpoint  where they write what is acknowledged, if there is a checkpoint
    done        ranges that are acknowledged already, by lane
    is_unsure   an earlier run was killed: nsqd may have stored what it did not acknowledge
    """

    job: Job
    line: BoardPlace | None = None
    checkpoint: CheckpointPlace | None = None
    done: Mapping[str, tuple[Range, ...]] = field(default_factory=dict)
    is_unsure: bool = False


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a task: Spark tries again when an executor is lost. `id` is unique in the run."""

    task: int
    id: int = 0
    number: int = 0


def this_attempt() -> Attempt:
    """Return the try of a task that this executor works on."""
    from pyspark import TaskContext as SparkTask

    found = SparkTask.get()
    assert found is not None
    return Attempt(found.partitionId(), found.taskAttemptId(), found.attemptNumber())


@dataclass(slots=True)
class TaskResult:
    """The result of one task. It contains errors that a second try would not mend; others fail Spark's task.

    payload              what the sink found
    damage               what was passed over, by path
    topics               messages sent, by the topic that they were published to
    failures             the errors of the first messages that nsqd refused
    possible_duplicates  messages that may have been sent more than once
    """

    task: int
    counts: ReplayCounts
    payload: Any = None
    damage: dict[str, Skipped] = field(default_factory=dict)
    topics: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    possible_duplicates: int = 0
    error: Exception | None = None
    is_stopped: bool = False


# ---- sinks


class Sink:
    """Takes the messages of a task, up to its limit. Messages by file come between `begin` and `end` of their part.

    columns  what rows of Arrow need for this sink
    """

    columns: ClassVar[tuple[str, ...]] = SENDING

    def __init__(self, context: TaskContext, task: Task, attempt: Attempt, line: TaskLine) -> None:
        self._line = line
        self._limit = task.limit
        # What is done by file is not even read.
        self._done = {lane: ranges for lane, ranges in context.done.items() if lane != BY_FILE}

    @property
    def is_full(self) -> bool:
        """True if the limit is reached."""
        return self._limit is not None and self._limit <= 0

    def offer(self, blocks: Iterable[tuple[str, Block]]) -> None:
        """Take those messages of some lanes that are left to do."""
        left = [(lane, block.last, block.without(self._done.get(lane, ()))) for lane, block in blocks]
        left = [(lane, last, block) for lane, last, block in left if block.count]
        if self._limit is not None:
            count = sum(block.count for _, _, block in left)
            if count > self._limit:
                left = _first(left, self._limit)
            self._limit -= count
        for lane, last, block in left:
            self._line.counts.matched += block.count
            self.take(block, lane, last)

    def begin(self, part: Part) -> None: ...

    def end(self, part: Part) -> None: ...

    def take(self, block: Block, lane: str, last: Mark) -> None:
        """Take messages; there is nothing else to do in their lane from the last block up to the mark `last`."""
        raise NotImplementedError

    def idle(self) -> None:
        """Called often; raises Stopped when the driver asks for an end."""
        self._line.look()

    def finish(self) -> None:
        """There are no more messages. Raises the error of the last ones."""

    def end_early(self, *, is_expected: bool) -> None:
        """There was an error, or a stop. After an unexpected error, only release what others wait for."""

    def report(self, result: TaskResult) -> None:
        """Add what was found."""


def _first(blocks: Sequence[tuple[str, Mark, Block]], count: int) -> list[tuple[str, Mark, Block]]:
    """Return the first messages of several lanes."""
    if count <= 0:
        return []
    bound = sorted(mark for _, _, block in blocks for mark in map(block.marks.at, range(block.count)))[count - 1]
    cut = ((lane, block, block.marks.up_to(bound)) for lane, _, block in blocks)
    found = [(lane, block.filter(mask)) for lane, block, mask in cut if mask.any()]
    return [(lane, block.last, block) for lane, block in found]


class SendSink(Sink, PublishObserver):
    """Sends to nsqd, and writes what is acknowledged to the checkpoint. Raises CheckpointError when it is made."""

    producers = Producers

    def __init__(self, context: TaskContext, task: Task, attempt: Attempt, line: TaskLine) -> None:
        super().__init__(context, task, attempt, line)
        job, place = context.job, context.checkpoint
        self._destination = destination = job.destination
        self._ledger = Ledger(None) if place is None else place.ledger(task.number, attempt.id)
        earlier = Acknowledged() if place is None else place.done(task.number, attempt.id)
        for lane, ranges in earlier.done.items():
            self._done[lane] = tuple(merged([*self._done.get(lane, ()), *ranges]))
        self._lows: dict[str, Mark | None] = {}
        self._failures: list[str] = []
        self._defer_ms = round(destination.defer_s * 1000)
        self._is_retry = attempt.number > 0 and place is None
        self._is_unsure = context.is_unsure
        self._pace = task.pace.begin(time.monotonic(), time.time())
        producers = self.producers(
            destination.nsqd_tcp_addresses,
            destination.lookupd_http_addresses,
            destination.options,
            job.safety.give_up_after_s,
            is_ordered=job.pacing.is_ordered,
            turn=task.number,
        )
        self._publisher = TaskPublisher(producers, self)
        if (self._done and context.is_unsure) or attempt.number:
            self._publisher.resumed()
        # What earlier tries of this task have sent is not sent again, and counts.
        counts = earlier.counts
        line.counts.add(ReplayCounts(matched=counts.messages, sent=counts.messages, sent_bytes=counts.size_bytes))
        self._publisher.counts.topics |= counts.topics
        if self._limit is not None:
            self._limit -= counts.messages

    def begin(self, part: Part) -> None:
        low = part.low
        if low is not None and part.split.after >= 0:
            low = (0, part.file, part.split.after)
        self._lows[BY_FILE] = low
        if part.is_begun and self._is_unsure:
            self._publisher.resumed()

    def end(self, part: Part) -> None:
        """All messages of the part are under way; up to its end, there is nothing else to send."""
        low, high = self._lows.get(BY_FILE), part.high
        if low is not None and high is not None and low < high:
            self._ledger.add(BY_FILE, low, high, 0)

    def take(self, block: Block, lane: str, last: Mark) -> None:
        low = self._lows.get(lane, BEFORE_ALL)
        if low is None:
            time_ns, file, position = block.marks.at(0)
            low = (time_ns, file, position - 1)
        self._lows[lane] = last
        self._send(block, lane, low)

    def _send(self, block: Block, lane: str, low: Mark) -> None:
        """Send a block, which comes after the mark `low`, in the time that the pace allows."""
        topic, payload = self._destination.topic(block.topic), block.chunk.payload
        most = MOST_DEFERRED if self._defer_ms else block.count
        for begin, most_end in payload.cuts(most, self._destination.batch_bytes):
            while begin < most_end:
                end = begin + self._allowed(block, begin, most_end)
                self._publisher.send(PublishBatch(topic, payload, begin, end, self._defer_ms, (block, lane, low)))
                self._pace.sent(end - begin)
                begin = end

    def _allowed(self, block: Block, begin: int, end: int) -> int:
        """Return how many of some messages may leave, once at least one may."""
        times_ns = None if block.times_ns is None else block.times_ns[begin:end]
        while not (count := self._pace.ready(times_ns, end - begin, time.monotonic())):
            self._publisher.wait(self._pace.wait_s(times_ns, time.monotonic()))
        return count

    def idle(self) -> None:
        self._publisher.idle()

    def finish(self) -> None:
        self._publisher.finish()
        self._ledger.close()

    def end_early(self, *, is_expected: bool) -> None:
        if is_expected:
            self._publisher.close()
            self._ledger.close(is_settled=self._publisher.is_settled)
        else:
            self._ledger.abandon()

    def report(self, result: TaskResult) -> None:
        counts = self._publisher.counts
        result.topics = counts.topics
        result.failures = self._failures
        result.possible_duplicates = result.counts.sent if self._is_retry else counts.possible_duplicates

    # ---- what the publisher observes

    def acknowledged(self, batch: PublishBatch) -> None:
        block, lane, low = batch.origin
        count, body_bytes = batch.count, batch.body_bytes
        self._line.counts.sent += count
        self._line.counts.sent_bytes += body_bytes
        low = block.marks.at(batch.begin - 1) if batch.begin else low
        self._ledger.add(lane, low, block.marks.at(batch.end - 1), count, body_bytes, batch.topic)

    def too_large(self, batch: PublishBatch, error: Exception) -> None:
        """Count the message as failed. It stays undone in the checkpoint."""
        self._line.counts.failed += 1
        if len(self._failures) < _NAMED_FAILURES:
            chunk = batch.origin[0].chunk
            self._failures.append(f"{chunk.file or batch.topic}, position {chunk.positions[batch.begin]}: {error}")

    def stepped(self) -> None:
        self._ledger.write()

    def look(self) -> None:
        self._line.look()

    def rest(self, seconds: float) -> None:
        self._line.rest(seconds)


# ---- the work


def run_task(context: TaskContext, make_sink: type[Sink], task: Task, attempt: Attempt) -> TaskResult:
    """Do a whole task. Expected errors are in the result; others are raised."""
    line = TaskLine(context.line, "send", task.number, attempt.number)
    reader = Reader(context.job, line.counts, line.look)

    def work(sink: Sink) -> None:
        if task.sources:
            hand_on(map(by_time, ordered_rows(reader, task, context, make_sink.columns)), sink)
        else:
            hand_on_parts(task.parts, reader.by_file, sink)

    return with_sink(line, reader.damage, partial(make_sink, context, task, attempt, line), work)


def hand_on(rows: Iterable[Iterable[tuple[str, Block]]], sink: Sink) -> None:
    """Give rows, as blocks of lanes, to a sink until it is full."""
    for blocks in rows:
        sink.idle()
        sink.offer(blocks)
        if sink.is_full:
            return


def hand_on_parts(parts: Iterable[Part], blocks_of: Callable[[Part], Iterable[Block]], sink: Sink) -> None:
    """Give the messages of parts to a sink until it is full; the rest of a part is then not done."""
    for part in parts:
        sink.begin(part)
        hand_on(([(BY_FILE, block)] for block in blocks_of(part)), sink)
        if sink.is_full:
            return
        sink.end(part)


def with_sink(line: TaskLine, damage: Damage, open_sink: Callable[[], Sink], work: Callable[[Sink], None]) -> TaskResult:
    """Return the result of a task, however it ends."""
    result = TaskResult(line.task, line.counts, damage=damage.counts)
    with errors_in(result, line):
        sink = open_sink()
        try:
            work(sink)
            sink.finish()
        except BaseException as error:
            sink.end_early(is_expected=isinstance(error, _EXPECTED))
            raise
        finally:
            sink.report(result)
    return result


@contextmanager
def errors_in(result: TaskResult, line: TaskLine) -> Iterator[None]:
    """Put expected errors into the result, and write the last counts."""
    try:
        yield
    except Stopped:
        result.is_stopped = True
    except _EXPECTED as error:
        result.error = error
    line.end(str(result.error or ""))


def index_times(context: TaskContext, parts: Sequence[Part], attempt: Attempt) -> TaskResult:
    """Return the sources in some parts, as the payload. Expected errors are in the result."""
    line = TaskLine(context.line, "send", attempt.task, attempt.number)
    reader = Reader(context.job, line.counts, line.look)
    result = TaskResult(attempt.task, line.counts, damage=reader.damage.counts)
    with errors_in(result, line):
        result.payload = reader.time_index(parts)
    return result


def ordered_rows(reader: Reader, task: Task, context: TaskContext, names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Yield the messages of an ordered task in order of time, without those that are done."""

    def rows(source: Source) -> Iterator[pa.RecordBatch]:
        done = merged(context.done.get(source.topic, ()))
        blocks = (block.without(done) for block in reader.by_time(source.part, source.topic))
        return (rows_of(block, names) for block in blocks if block.count)

    with closing(Spill()) as spill:
        runs = [Run(source.first_ns, partial(rows, source), source.is_sorted) for source in task.sources]
        yield from Merge(runs, spill).rows()
