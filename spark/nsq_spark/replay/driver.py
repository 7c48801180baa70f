"""A replay on the driver: run the jobs of Spark, watch them, and add up their results."""

from __future__ import annotations

import pickle
import re
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from subprocess import Popen, TimeoutExpired
from time import monotonic
from typing import TypeVar

from pyspark import InheritableThread
from pyspark.accumulators import AccumulatorParam
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from nsq_spark.archive.splits import ArchiveError, Damage, Skipped
from nsq_spark.publisher import NotPublished, Producers, PublishObserver
from nsq_spark.replay.checkpoint.directory import Checkpoint
from nsq_spark.replay.checkpoint.ledger import Totals
from nsq_spark.replay.checkpoint.refused import publish_dead_letters
from nsq_spark.replay.job import SHARED_ID, BadJob, CheckpointError, JobFailed, ReplayError, Stopped
from nsq_spark.replay.messages import JobMessages
from nsq_spark.replay.outcome import DryRun, Outcome, TopicCount
from nsq_spark.replay.output.summary import BODY_SHOWN_BYTES, FIRST_SHOWN, row_text
from nsq_spark.replay.pace import Pace
from nsq_spark.replay.stored import StoredBefore
from nsq_spark.replay.task import RESULT, Sender
from nsq_spark.source.archive_table import partition_numbers
from nsqd_py.client.errors import NsqClientError

T = TypeVar("T")

_POLL_S = 0.2
# Tasks end by themselves when they are asked to. Spark cancels those that do not, whose counts are in their ledgers.
_CANCEL_AFTER_S = 1.5
_LEAVE_AFTER_S = 1.0
# A process that has been killed ends within this time, after the connections to it.
_ENDING_S = 1.0
# In the errors of a Spark that infers types from a body of a thousand levels: its stack overflows, in one thread or another.
_TOO_DEEP = ("SparkContext", "StackOverflow", "Java process", "recursion")
_TYPES_HINT = (
    "; this may be a JSON body that is nested too deeply for Spark to infer its types: --json-schema gives the types of the "
    "fields that --where names"
)
_OUR_ERROR = re.compile(r"^nsq_spark\.[\w.]+: (.+)$", re.MULTILINE)
# What a dry run finds of each topic: the columns of TopicCount, and some of the earliest messages, for `row_text`.
_SUMS = ("count(*)", "sum(octet_length(body))", "min(timestamp_ns)", "max(timestamp_ns)")
_ROW = f"struct(topic, timestamp_ns, id, substring(body, 1, {BODY_SHOWN_BYTES}), octet_length(body))"
_FIRST = f"min_by({_ROW}, coalesce(timestamp_ns, 0), {FIRST_SHOWN})"
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
    on_progress: Callable[[Totals], None]
    stop: threading.Event

    def __post_init__(self) -> None:
        checkpoint = self.checkpoint
        context = self.spark.sparkContext
        self._job = checkpoint.job
        self._ledgers = checkpoint.ledgers
        self._slots = context.defaultParallelism
        self._damage = context.accumulator({}, _Joined())
        self._messages = JobMessages(self.spark, checkpoint, self._slots, self._damage)
        to = self._job.destination
        addresses = to.nsqd_tcp_addresses, to.lookupd_http_addresses
        self._producers = Producers(*addresses, to.options, self._job.give_up_after_s, self._job.is_ordered)
        self._outcome = Outcome.of(checkpoint.earlier)

    def run(self, *, is_dry: bool = False) -> Outcome:
        """Send all messages, or count them. Errors of nsqd, of the archive and of the disk are in the outcome. Raises BadJob."""
        outcome = self._outcome
        began_s = monotonic()
        try:
            if is_dry:
                dry_run = self._action(
                    lambda: dry_run_of(self._messages.selected(("id",)), self._job.selection.limit)
                )
                outcome.dry_run = dry_run
                outcome.matched = dry_run.count
                outcome.shared_ids = dry_run.shared_ids
            elif not self.checkpoint.is_complete:
                outcome.counts.possible_duplicates = self.checkpoint.earlier.unsure
                stored = self._action(lambda: StoredBefore(self._job.destination))
                outcome.add(self._sent())
                self._ask_for_duplicates(stored)
        except BadJob:
            raise
        except ReplayError as error:
            outcome.ended(error)
            self._count_from_ledgers()
        outcome.damage = dict(self._damage.value)
        if not is_dry:
            self._end()
        outcome.seconds = monotonic() - began_s
        return outcome

    def _ask_for_duplicates(self, stored: StoredBefore) -> None:
        """Ask the logs of nsqd how many messages are stored twice, if it may be more than none."""
        counts = self._outcome.counts
        earlier = self.checkpoint.earlier.unsure
        possible = counts.possible_duplicates - earlier
        if not possible:
            return
        try:
            counts.possible_duplicates = earlier + min(possible, stored.duplicates(counts.topics))
        except ArchiveError as error:
            self._outcome.unknown_duplicates = str(error).removeprefix("nsq: ")

    def _count_from_ledgers(self) -> None:
        """Fill the outcome of a run whose tasks have returned no results: their ledgers say what they did."""
        outcome = self._outcome
        counts = self._outcome.counts
        self._ledgers.stop()
        with suppress(CheckpointError):
            found = self._ledgers.acknowledged()  # waits until the tasks have ended
            counts.topics = found.topics
            counts.possible_duplicates = self.checkpoint.earlier.unsure + found.unsure
        totals = self._ledgers.totals()
        counts.messages = totals.sent
        counts.size_bytes = totals.sent_bytes
        outcome.failed = totals.failed
        outcome.matched = totals.sending

    def _end(self) -> None:
        """Gather the messages that nsqd refused. Once all others are sent, publish dead letters and end the checkpoint."""
        outcome = self._outcome
        try:
            outcome.gather_refused(self.checkpoint)
            if outcome.is_complete and outcome.refused:
                self._publish_dead_letters()
            if outcome.is_complete and outcome.has_matched:
                self.checkpoint.completed()
            elif outcome.is_complete:
                self.checkpoint.forget()
        except ReplayError as error:
            outcome.ended(error)

    def _publish_dead_letters(self) -> None:
        """Raises Stopped."""
        job = self._job
        producers = replace(self._producers, is_ordered=False)
        if not job.dead_letter_topic:
            return
        letters = self._outcome.refused_file, job.dead_letter_topic
        try:
            publish_dead_letters(*letters, producers, _Stoppable(self.stop), job.destination.batch_bytes)
        except (NotPublished, NsqClientError) as error:
            self._outcome.ended(f"dead letters: {error}")

    def _sent(self) -> list[Outcome]:
        job = self._job
        messages = self._messages
        earlier = self.checkpoint.earlier
        limit = job.selection.limit
        read = None
        paces: dict[int, Pace] = {}
        if job.is_ordered:
            frame, paces = self._action(self._ordered)
            limit = None
        elif messages.is_fused:
            read = messages.own_reader()
            frame = partition_numbers(self.spark, read.partitions)
        else:
            frame = self._action(lambda: messages.selected().select(*messages.sending))
        self.checkpoint.remember_schema(messages.json_schema)
        if limit:
            limit -= earlier.counts.messages + earlier.refused
            frame = frame.coalesce(1)
        if job.rate and not job.is_ordered:
            frame = frame.coalesce(self._slots)  # all tasks work at the same time
            tasks = self._action(lambda: frame.rdd.getNumPartitions())
            paces = dict.fromkeys(range(tasks), Pace(job.rate / tasks))
        done = frozenset(name for name in earlier.slices if name.partition("#")[2] not in earlier.parts)
        sender = Sender(job, self._ledgers, self._producers, paces, self.checkpoint.files, done, limit, read)
        rows = self._action(frame.mapInArrow(sender, RESULT).collect)
        return [pickle.loads(row.result) for row in rows]

    def _ordered(self) -> tuple[DataFrame, dict[int, Pace]]:
        """Return the rows, and the pace of each partition: a share of the rate by what it has."""
        job = self._job
        frame, parts = self._messages.ordered()
        total = sum(part.messages for part in parts)
        origin_ns = min((part.first_ns for part in parts), default=0)
        paces = {}
        for part in parts:
            rate = job.rate and job.rate * part.messages / total
            paces[part.number] = Pace(rate, job.speed, origin_ns, job.catches_up)
        return frame, paces

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

        try:
            InheritableThread(target=act, daemon=True).start()
            self._attend(done, group)
            return done.result(timeout=0)
        except BadJob:
            raise
        except Exception as error:
            if self.stop.is_set():
                raise Stopped("stopped") from error
            reason = self._end_of_java() or _reason(error)
            is_too_deep = self._messages.infers_types and any(word in reason for word in _TOO_DEEP)
            raise JobFailed(reason + _TYPES_HINT if is_too_deep else reason) from error

    def _end_of_java(self) -> str:
        """Return how Spark's Java process has ended; "" while it runs. Errors of its clients do not say that."""
        process: Popen[bytes] | None = getattr(self.spark.sparkContext._gateway, "proc", None)
        if process is None:  # Spark's own command has started it
            return ""
        try:
            status = process.wait(_ENDING_S)
        except TimeoutExpired:
            return ""
        by = f"signal {-status}" if status < 0 else f"exit status {status}"
        return (
            f"Spark's Java process has ended ({by}): it was killed, or it ran out of memory "
            "(--conf=spark.driver.memory=4g gives it more)"
        )

    def _attend(self, done: Future[T], group: str) -> None:
        """Return when the work has ended; at the latest a few seconds after it was asked to."""
        while not (wait([done], _POLL_S).done or self.stop.is_set()):
            self.on_progress(self._ledgers.totals())
        if done.done():
            return
        self._ledgers.stop()
        if not wait([done], _CANCEL_AFTER_S).done:
            self.spark.sparkContext.cancelJobGroup(group)
            wait([done], _LEAVE_AFTER_S)


@dataclass
class _Stoppable(PublishObserver):
    stop: threading.Event

    def poll(self) -> None:
        if self.stop.is_set():
            raise Stopped("stopped")


def _reason(error: Exception) -> str:
    """Return Spark's error, or ours that it wraps, in one line."""
    java = getattr(error, "java_exception", None)
    try:
        if java is not None:
            text = str(java.getMessage() or java.toString())
        else:
            text = str(error)
    except Exception:  # noqa: BLE001  py4j asks the Java process for the text, and raises many kinds
        text = type(error).__name__
    ours = _OUR_ERROR.findall(text)
    if ours:
        return str(ours[-1])
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)


def dry_run_of(rows: DataFrame, limit: int | None) -> DryRun:
    """Count the rows, and find the earliest, in one query of Spark."""
    if limit:
        rows = rows.limit(limit)
    shared = f"count_if({SHARED_ID})" if SHARED_ID in rows.columns else "0"
    dry_run = DryRun()
    shown: list[Row] = []
    for topic, *sums, shared_ids, first in (
        rows.groupBy("topic").agg(*map(F.expr, (*_SUMS, shared, _FIRST))).collect()
    ):
        dry_run.topics[topic] = TopicCount(*sums)
        dry_run.shared_ids += shared_ids
        shown += first
    shown.sort(key=lambda row: row.timestamp_ns or 0)
    dry_run.first = [row_text(*row) for row in shown[:FIRST_SHOWN]]
    return dry_run
