"""A replay on the driver: run the jobs of Spark, watch them, and add up their results."""

from __future__ import annotations

import pickle
import re
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import TypeVar

from pyspark import InheritableThread
from pyspark.accumulators import AccumulatorParam
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from nsq_spark.archive.splits import Damage, Skipped
from nsq_spark.replay.checkpoint import Checkpoint, Totals
from nsq_spark.replay.job import BadJob, JobFailed, ReplayError, Stopped
from nsq_spark.replay.messages import SENDING, JobMessages
from nsq_spark.replay.stored import StoredBefore
from nsq_spark.replay.summary import BODY_SHOWN_BYTES, FIRST_SHOWN, Look, Outcome, TopicCount, row_text
from nsq_spark.replay.task import RESULT, PaceOfTask, Sender, TaskResult
from nsq_spark.source.archive_table import partition_numbers

T = TypeVar("T")

_LOOK_S = 0.2
# Tasks end by themselves when they are asked to. Spark cancels those that do not, whose counts are in their ledgers.
_CANCEL_AFTER_S, _LEAVE_AFTER_S = 1.5, 1.0
_OUR_ERROR = re.compile(r"^nsq_spark\.[\w.]+: (.+)$", re.MULTILINE)
# One start of Spark for one job: plans that adapt would only move the parts of a shuffle.
SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.ansi.enabled": "false",  # a cast that fails gives null: one body must not end a replay
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",  # what is grouped are topics, and parts of an ordered job
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.files.maxPartitionBytes": str(16 * 1024 * 1024),
    # Otherwise Spark parses a body once for each field that a predicate names.
    "spark.sql.optimizer.enableJsonExpressionOptimization": "false",
}


class _Joined(AccumulatorParam[dict[str, Skipped]]):
    def zero(self, value: dict[str, Skipped]) -> dict[str, Skipped]:
        return {}

    def addInPlace(self, value1: dict[str, Skipped], value2: dict[str, Skipped]) -> dict[str, Skipped]:
        damage = Damage()
        damage.counts = value1
        damage.add(value2)
        return damage.counts


@dataclass(eq=False)
class Replay:
    """The run of one checkpoint on Spark.

    on_progress  is called a few times a second with what is sent so far
    stop         ends the work within 3 s once it is set
    """

    spark: SparkSession
    checkpoint: Checkpoint
    on_progress: Callable[[Totals], None] = lambda counts: None
    stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._job = self.checkpoint.job
        self._slots = self.spark.sparkContext.defaultParallelism
        self._damage = self.spark.sparkContext.accumulator({}, _Joined())
        done, self._ledgers = self.checkpoint.earlier.done, self.checkpoint.ledgers
        self._messages = JobMessages(self.spark, self._job, self.checkpoint.files, done, self._slots, self._damage)
        self._outcome = Outcome()

    def run(self, *, is_dry: bool = False) -> Outcome:
        """Send all messages, or count them. Errors of nsqd and of the archive are in the outcome. Raises BadJob."""
        outcome, checkpoint = self._outcome, self.checkpoint
        began_s = time.monotonic()
        outcome.before = checkpoint.earlier.counts.messages
        try:
            if is_dry:
                outcome.look = self._action(lambda: look_at(self._messages.selected(("id",)), self._job.selection.limit))
                outcome.matched = sum(found.count for found in outcome.look.topics.values())
            elif not checkpoint.is_complete:
                outcome.possible_duplicates = checkpoint.earlier.unsure
                stored = StoredBefore(self._job.destination)
                outcome.add(self._sent())
                possible = outcome.possible_duplicates - checkpoint.earlier.unsure
                if possible and (found := stored.duplicates(outcome.topics)) is not None:
                    outcome.possible_duplicates -= max(0, possible - found)
        except BadJob:
            raise
        except ReplayError as error:
            outcome.counts = self._ledgers.totals()
            outcome.matched = outcome.counts.sending
            if isinstance(error, Stopped):
                outcome.is_stopped = True
            else:
                outcome.failed(str(error))
        outcome.damage = dict(self._damage.value)
        outcome.seconds = time.monotonic() - began_s
        if outcome.is_complete and not is_dry:
            if outcome.has_matched:
                checkpoint.completed()
            else:
                checkpoint.forget()
        return outcome

    def _sent(self) -> list[TaskResult]:
        job, messages = self._job, self._messages
        limit, read = job.selection.limit, None
        paces: dict[int, PaceOfTask] = {}
        if limit is not None:
            limit -= self.checkpoint.earlier.counts.messages
        if job.is_ordered:
            frame, paces = self._action(self._ordered)
            limit = None
        elif messages.is_fused:
            read = messages.own_reader()
            frame = partition_numbers(self.spark, read.partitions)
        else:
            frame = self._action(lambda: messages.selected().select(*SENDING))
        self.checkpoint.remember_schema(messages.json_schema)
        if not job.is_ordered and (job.rate or limit is not None):
            tasks = 1 if limit is not None else self._slots
            frame = frame.coalesce(tasks)
            paces = {number: PaceOfTask(job.rate and job.rate / tasks) for number in range(tasks)}
        sender = Sender(job, self._ledgers, paces, limit, read)
        rows = self._action(frame.mapInArrow(sender, RESULT).collect)
        return [pickle.loads(row.result) for row in rows]

    def _ordered(self) -> tuple[DataFrame, dict[int, PaceOfTask]]:
        """Return the rows, and the pace of each partition: a share of the rate by what it has."""
        rate = self._job.rate
        frame, lanes = self._messages.ordered()
        total = sum(lane.messages for lane in lanes)
        origin_ns = min((lane.first_ns for lane in lanes), default=0)
        start_s = time.time()
        return frame, {
            lane.number: PaceOfTask(rate and rate * lane.messages / total, self._job.speed, origin_ns, start_s) for lane in lanes
        }

    # ---- actions of Spark

    def _action(self, action: Callable[[], T]) -> T:
        """Run actions of Spark in a thread, and watch them. Raises JobFailed, BadJob, and Stopped."""
        if self.stop.is_set():
            raise Stopped("stopped")
        group = f"nsq-replay-{uuid.uuid4()}"
        done: Future[T] = Future()

        def act() -> None:
            self.spark.sparkContext.setJobGroup(group, "spark-replay", interruptOnCancel=True)
            try:
                done.set_result(action())
            except Exception as error:  # noqa: BLE001 - raised below
                done.set_exception(error)

        InheritableThread(target=act, daemon=True).start()
        self._attend(done, group)
        try:
            return done.result(timeout=0)
        except BadJob:
            raise
        except Exception as error:
            if self.stop.is_set():
                raise Stopped("stopped") from error
            raise JobFailed(_reason(error)) from error

    def _attend(self, done: Future[T], group: str) -> None:
        """Return when the work has ended; at the latest a few seconds after it was asked to."""
        asked_s = None
        while not wait([done], _LOOK_S).done:
            self.on_progress(self._ledgers.totals())
            now_s = time.monotonic()
            if asked_s is None and self.stop.is_set():
                self._ledgers.stop()
                asked_s = now_s
            elif asked_s is not None and now_s - asked_s >= _CANCEL_AFTER_S:
                self.spark.sparkContext.cancelJobGroup(group)
                if now_s - asked_s >= _CANCEL_AFTER_S + _LEAVE_AFTER_S:
                    return


def _reason(error: Exception) -> str:
    """Return Spark's error, or ours that it wraps, in one line."""
    java = getattr(error, "java_exception", None)
    text = str(java.getMessage()) if java is not None else str(error)
    if ours := _OUR_ERROR.findall(text):
        return str(ours[-1])
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)


def look_at(rows: DataFrame, limit: int | None) -> Look:
    """Count the rows, and find the earliest, in one query of Spark."""
    if limit is not None:
        rows = rows.limit(limit)
    time = F.col("timestamp_ns")
    row = F.struct("topic", time, "id", F.substring("body", 1, BODY_SHOWN_BYTES), F.octet_length("body"))
    first = F.min_by(row, F.coalesce(time, F.lit(0)), FIRST_SHOWN)
    counts = rows.groupBy("topic").agg(F.count("*"), F.sum(F.octet_length("body")), F.min(time), F.max(time), first).collect()
    look = Look({topic: TopicCount(*found) for topic, *found, _ in counts})
    shown = sorted((row for counted in counts for row in counted[-1]), key=lambda row: row.timestamp_ns or 0)
    look.first = [row_text(*row) for row in shown[:FIRST_SHOWN]]
    return look
