"""What becomes of the messages of a task: they are sent, or only looked at."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from nsq_spark.replay.blocks import Block
from nsq_spark.replay.checkpoint import Acknowledged
from nsq_spark.replay.ledger import Ledger, NoLedger
from nsq_spark.replay.marks import BEFORE_ALL, BY_FILE, Mark, merged
from nsq_spark.replay.outlet import Outlets
from nsq_spark.replay.planning import Part, Task
from nsq_spark.replay.progress import Counts, TaskLine
from nsq_spark.replay.results import TaskResult
from nsq_spark.replay.rows import SENDING, by_time
from nsq_spark.replay.send import Sender
from nsq_spark.replay.work import Attempt, Setup


class Sink:
    """Takes all messages of a task. Where they come by file, `begin` and `end` stand around those of each part."""

    def begin(self, part: Part) -> None:
        pass

    def take(self, block: Block, lane: str) -> None:
        raise NotImplementedError

    def take_rows(self, rows: pa.RecordBatch) -> None:
        """Messages in order of time, of any topics."""
        for lane, block in by_time(rows):
            self.take(block, lane)

    def end(self, part: Part) -> None:
        pass

    @property
    def is_full(self) -> bool:
        """Whether it wants no more of this part, or of this ordered task."""
        return False

    def idle(self) -> None:
        """Called often; raises Stopped when the driver wants an end."""

    def finish(self) -> None:
        """There are no more. Raises what went wrong with the last ones."""

    def end_early(self) -> None:
        """After an error, or a stop."""

    def abandon(self) -> None:
        """After an error that nobody thought of: only let go."""

    def report(self, result: TaskResult) -> None:
        """Add what was found."""


class MakeSink(Protocol):
    """Made by the driver, called by executors. `columns` are what rows need for it."""

    @property
    def columns(self) -> tuple[str, ...]: ...

    def __call__(self, setup: Setup, task: Task, attempt: Attempt, line: TaskLine) -> Sink: ...


@dataclass(frozen=True, slots=True)
class Sending:
    """Makes the sinks that send to nsqd, and write down what is acknowledged. They raise CheckpointError."""

    columns: tuple[str, ...] = SENDING
    open_outlets: Callable[..., Outlets] = Outlets

    def __call__(self, setup: Setup, task: Task, attempt: Attempt, line: TaskLine) -> Sink:
        job = setup.job
        outlets = self.open_outlets(
            job.destination, job.safety.give_up_after_s, is_ordered=job.pacing.is_ordered, first=task.number
        )
        return SendSink(setup, task, attempt, line, outlets)


class SendSink(Sink):
    def __init__(self, setup: Setup, task: Task, attempt: Attempt, line: TaskLine, outlets: Outlets) -> None:
        job = setup.job
        place = setup.checkpoint
        self._line = line
        self._ledger: Ledger | NoLedger = NoLedger() if place is None else place.ledger(task.number, attempt.id)
        earlier = Acknowledged() if place is None else place.done(task.number, attempt.id)
        self._done = {lane: tuple(merged([*ranges])) for lane, ranges in setup.done.items() if lane != BY_FILE}
        for lane, ranges in earlier.done.items():
            self._done[lane] = tuple(merged([*self._done.get(lane, ()), *ranges]))
        self._lows: dict[str, Mark | None] = {}
        self._is_retry = attempt.number > 0 and place is None
        self._sender = Sender(
            outlets,
            job.destination,
            task.pace.begin(time.monotonic(), time.time()),
            self._ledger,
            line,
            give_up_after_s=job.safety.give_up_after_s,
            is_ordered=job.pacing.is_ordered,
        )
        self._is_unsure = setup.is_unsure
        if (self._done and setup.is_unsure) or attempt.number:
            self._sender.goes_on()
        # What earlier tries of this task have sent is not sent again, and counts.
        line.counts.add(Counts(matched=earlier.count, sent=earlier.count, sent_bytes=earlier.size_bytes))
        self._sender.topics |= earlier.topics

    def begin(self, part: Part) -> None:
        low = part.low
        if low is not None and part.split.after >= 0:
            low = (0, part.file, part.split.after)
        self._lows[BY_FILE] = low
        if part.is_begun and self._is_unsure:
            self._sender.goes_on()

    def take(self, block: Block, lane: str) -> None:
        last = block.last
        ranges = self._done.get(lane)
        if ranges:
            block = block.filter(~block.marks.among(ranges))
        if not block.count:
            return
        low = self._low(lane, block)
        self._lows[lane] = last
        self._line.counts.matched += block.count
        self._sender.send(block, lane, low)

    def _low(self, lane: str, block: Block) -> Mark:
        low = self._lows.get(lane, BEFORE_ALL)
        if low is None:
            time_ns, file, position = block.marks.at(0)
            low = (time_ns, file, position - 1)
        return low

    def end(self, part: Part) -> None:
        """All that is in it is on its way: there is nothing to be sent behind it."""
        low, high = self._lows.get(BY_FILE), part.high
        if low is not None and high is not None and low < high:
            self._ledger.add(BY_FILE, low, high, 0)

    def idle(self) -> None:
        self._sender.idle()

    def finish(self) -> None:
        self._sender.finish()
        self._ledger.close()

    def end_early(self) -> None:
        self._sender.end_early()
        self._ledger.close(is_settled=self._sender.is_settled)

    def abandon(self) -> None:
        self._ledger.abandon()

    def report(self, result: TaskResult) -> None:
        sender = self._sender
        result.topics = sender.topics
        result.failures = sender.failures
        result.possible_duplicates = result.counts.sent if self._is_retry else sender.possible_duplicates
