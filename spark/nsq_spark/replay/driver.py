"""A replay on the driver: run the Spark jobs of a plan, watch them, and add up their results."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from pyspark import InheritableThread, SparkContext

from nsq_spark.archive.damage import Damage, Skipped
from nsq_spark.replay.checkpoint import Checkpoint
from nsq_spark.replay.dry_run import Look, LookSink
from nsq_spark.replay.errors import JobFailed, Stopped
from nsq_spark.replay.planning import Plan, Source, ordered_tasks, packed
from nsq_spark.replay.progress import Board, ReplayCounts
from nsq_spark.replay.task import Attempt, SendSink, Sink, TaskContext, TaskResult, index_times, run_task, this_attempt

T = TypeVar("T")
R = TypeVar("R")

ALL_SENT, FAILED, PARTLY_SENT = 0, 1, 3
_MOST_ERRORS = 10
_LOOK_S = 0.2
# Tasks end by themselves when they are asked to. Spark cancels those that do not; later after a failure, when nobody
# waits for the end: the counts of a cancelled task are lost.
_CANCEL_AFTER_S, _CANCEL_FAILED_AFTER_S = 1.5, 10.0
_LEAVE_AFTER_S = 1.0


@dataclass(slots=True)
class Outcome:
    """The result of a replay, over all tasks.

    counts               messages and bytes
    seconds              since the first task started
    damage               what was passed over, by path
    topics               messages sent, by the topic that they were published to
    look                 what a dry run finds
    possible_duplicates  the largest number of messages that may have been sent more than once
    errors               why it ended early, and the errors of messages that nsqd refused
    is_stopped           the user stopped it
    is_empty             no message matched, and that is a failure
    before               messages that earlier runs of the checkpoint sent
    """

    counts: ReplayCounts = field(default_factory=ReplayCounts)
    seconds: float = 0.0
    damage: dict[str, Skipped] = field(default_factory=dict)
    topics: Counter[str] = field(default_factory=Counter)
    look: Look | None = None
    possible_duplicates: int = 0
    errors: list[str] = field(default_factory=list)
    is_stopped: bool = False
    is_failed: bool = False
    is_empty: bool = False
    before: int = 0

    @property
    def skipped(self) -> int:
        """The number of damaged records."""
        return sum(found.records for found in self.damage.values())

    @property
    def is_complete(self) -> bool:
        """True if nothing is left to send."""
        return not (self.is_stopped or self.is_failed or self.counts.failed)

    @property
    def has_matched(self) -> bool:
        """True if there was a message to send, in this run or an earlier one."""
        return bool(self.counts.matched or self.before)

    @property
    def exit_code(self) -> int:
        if self.is_complete:
            return FAILED if self.is_empty else ALL_SENT
        return PARTLY_SENT if self.counts.sent or self.before else FAILED

    def add(self, results: Iterable[TaskResult]) -> None:
        damage = Damage()
        damage.counts = self.damage
        for result in results:
            self.counts.add(result.counts)
            damage.add(result.damage)
            self.topics.update(result.topics)
            self.possible_duplicates += result.possible_duplicates
            self.is_stopped = self.is_stopped or result.is_stopped
            if self.look is not None and result.payload is not None:
                self.look.add(result.payload)
            for error in result.failures:
                self.failed(error, is_end=False)
            if result.error is not None:
                self.failed(str(result.error))

    def failed(self, error: str, *, is_end: bool = True) -> None:
        self.is_failed = self.is_failed or is_end
        if error not in self.errors and len(self.errors) < _MOST_ERRORS:
            self.errors.append(error)


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """The progress of a replay: read_bytes of total_bytes are done. `phase` names what is done at the moment."""

    counts: ReplayCounts
    total_bytes: int
    phase: str


OnProgress = Callable[[ReplayProgress], None]


def run(
    plan: Plan,
    spark: Any,
    on_progress: OnProgress | None = None,
    stop: threading.Event | None = None,
    checkpoint: Checkpoint | None = None,
    *,
    is_dry: bool = False,
) -> Outcome:
    """Send all messages of a plan; `spark` is a SparkContext or a SparkSession.

    Calls `on_progress` a few times a second, and ends within 3 s once `stop` is set. Errors of nsqd and of the archive
    are in the outcome. A dry run counts the messages, sends none, and leaves the checkpoint as it is. Raises BadJob
    (and BadPredicate).
    """
    outcome = Outcome(look=Look() if is_dry else None)
    if checkpoint is not None and not is_dry:
        outcome.before = checkpoint.acknowledged
        if checkpoint.is_complete:
            return outcome
    _Replay(plan, spark, on_progress, stop or threading.Event(), checkpoint, outcome).run()
    if checkpoint is not None and outcome.is_complete and not is_dry:
        if outcome.has_matched:
            checkpoint.completed()
        else:
            checkpoint.forget()
    return outcome


class _Replay:
    """The Spark jobs of one plan."""

    def __init__(
        self,
        plan: Plan,
        spark: Any,
        on_progress: OnProgress | None,
        stop: threading.Event,
        checkpoint: Checkpoint | None,
        outcome: Outcome,
    ) -> None:
        self._plan = plan
        self._spark = spark
        self._spark_context: SparkContext = getattr(spark, "sparkContext", spark)
        self._on_progress = on_progress
        self._stop = stop
        self._outcome = outcome
        self._make_sink: type[Sink] = SendSink if outcome.look is None else LookSink
        self._checkpoint = checkpoint if outcome.look is None else None
        place = None if self._checkpoint is None else self._checkpoint.place
        self._board = Board(self._spark_context, None if place is None else place.directory)
        is_unsure = checkpoint is not None and not checkpoint.is_settled
        self._context = TaskContext(plan.job, self._board.place, place, plan.done, is_unsure)
        self._began_s = time.monotonic()
        self._phase = "sending"
        self._counts = ReplayCounts()

    def run(self) -> None:
        """Add the results to the outcome."""
        outcome = self._outcome
        try:
            outcome.add(self._results())
        except (Stopped, JobFailed) as error:
            outcome.counts = self._counts  # the last that were seen before it was cancelled
            if isinstance(error, Stopped):
                outcome.is_stopped = True
            else:
                outcome.failed(str(error))
        finally:
            outcome.seconds = time.monotonic() - self._began_s
            self._board.close()

    def _results(self) -> list[TaskResult]:
        plan, tasks = self._plan, self._plan.tasks
        if plan.uses_sql:
            from nsq_spark.replay.sql import SqlReplay  # Spark SQL takes a while to load

            sql = SqlReplay(self._spark, plan, self._action, self._context, self._make_sink)
        if plan.is_shuffled:
            if self._checkpoint is not None:
                self._checkpoint.remember_parts(plan.shuffle_parts)
            return sql.replay_shuffled()
        if plan.is_ordered:
            self._phase = "looking at times"
            groups = [task.parts for task in packed(plan.parts, max(1, min(len(plan.parts), 8 * plan.slots)))]
            indexed = self._map(partial(index_times, self._context), groups)
            if any(result.error is not None or result.is_stopped for result in indexed):
                return indexed
            self._phase = "sending"
            sources: list[Source] = [source for result in indexed for source in result.payload]
            tasks = ordered_tasks(plan, sources, time.time())
        if tasks and plan.uses_sql:
            return sql.replay(tasks)
        return self._map(partial(run_task, self._context, self._make_sink), tasks)

    def _map(self, work: Callable[[T, Attempt], R], items: Sequence[T]) -> list[R]:
        """Do the work on each item, in a task each. Raises JobFailed and Stopped."""
        if not items:
            return []

        def of_partition(some: Iterable[T]) -> Iterator[R]:
            attempt = this_attempt()
            return (work(item, attempt) for item in some)

        rdd = self._spark_context.parallelize(items, len(items))
        return self._action(lambda: rdd.mapPartitions(of_partition).collect())

    def _action(self, action: Callable[[], R]) -> R:
        """Run an action of Spark in a thread, and watch it. Raises JobFailed, and Stopped if it was cancelled."""
        if self._stop.is_set():
            raise Stopped("stopped")
        self._board.begin_job()
        group = f"nsq-replay-{uuid.uuid4()}"
        done: Future[R] = Future()

        def act() -> None:
            self._spark_context.setJobGroup(group, "spark-replay", interruptOnCancel=True)
            try:
                done.set_result(action())
            except Exception as error:  # noqa: BLE001 - raised below
                done.set_exception(error)

        InheritableThread(target=act, daemon=True).start()
        self._attend(done, group)
        try:
            return done.result(timeout=0)
        except Exception as error:
            if self._stop.is_set():
                raise Stopped("stopped") from error
            raise JobFailed(self._board.failure or _reason(error)) from error

    def _attend(self, done: Future[Any], group: str) -> None:
        """Return when the work has ended; at the latest a few seconds after it was asked to."""
        ending_since_s = None
        while not wait([done], _LOOK_S).done:
            self._watch()
            now_s = time.monotonic()
            if ending_since_s is None:
                if self._stop.is_set() or self._board.failure:
                    self._board.stop()
                    ending_since_s = now_s
                continue
            overdue_s = now_s - ending_since_s - (_CANCEL_AFTER_S if self._stop.is_set() else _CANCEL_FAILED_AFTER_S)
            if overdue_s >= 0:
                self._spark_context.cancelJobGroup(group)
            if overdue_s >= _LEAVE_AFTER_S and self._stop.is_set():
                return
        self._watch()

    def _watch(self) -> None:
        self._counts = self._board.totals()
        if self._on_progress is not None:
            self._on_progress(ReplayProgress(self._counts, self._plan.size_bytes, self._phase))


def _reason(error: Exception) -> str:
    """Return Spark's error in one line."""
    java = getattr(error, "java_exception", None)
    text = str(java.getMessage()) if java is not None else str(error)
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
