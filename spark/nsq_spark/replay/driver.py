"""A replay on the driver: run the Spark jobs of a plan, watch them, and add up their results."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from pyspark import InheritableThread, SparkContext

from nsq_spark.archive.damage import Damage, Skipped
from nsq_spark.replay.checkpoint import Checkpoint
from nsq_spark.replay.dry_run import Look, LookSink
from nsq_spark.replay.errors import JobFailed, ReplayError, Stopped
from nsq_spark.replay.planning import Plan, Source, Task, ordered_tasks, packed
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
    possible_duplicates  the largest number of messages that may have been sent more than once
    errors               why it ended early, and the errors of messages that nsqd refused
    is_stopped           the user stopped it
    is_empty             no message matched, and that is a failure
    before               messages that earlier runs of the checkpoint sent
    """

    counts: ReplayCounts = field(default_factory=ReplayCounts)
    seconds: float = 0.0
    damage: dict[str, Skipped] = field(default_factory=dict)
    topics: dict[str, int] = field(default_factory=dict)
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
            for topic, count in result.topics.items():
                self.topics[topic] = self.topics.get(topic, 0) + count
            self.possible_duplicates += result.possible_duplicates
            self.is_stopped = self.is_stopped or result.is_stopped
            for error in [*result.failures, *([str(result.error)] if result.error else [])]:
                self.failed(error, is_end=False)
            self.is_failed = self.is_failed or result.error is not None

    def failed(self, error: str, *, is_end: bool = True) -> None:
        self.is_failed = self.is_failed or is_end
        if error not in self.errors and len(self.errors) < _MOST_ERRORS:
            self.errors.append(error)


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """The progress of a replay: read_bytes of total_bytes are done. `phase` names what is done at the moment."""

    counts: ReplayCounts
    total_bytes: int
    seconds: float
    phase: str


OnProgress = Callable[[ReplayProgress], None]


def run(
    plan: Plan,
    spark: Any,
    on_progress: OnProgress | None = None,
    stop: threading.Event | None = None,
    checkpoint: Checkpoint | None = None,
) -> Outcome:
    """Send all messages of a plan; `spark` is a SparkContext or a SparkSession.

    Calls `on_progress` a few times a second, and ends within 3 s once `stop` is set. Errors of nsqd and of the archive
    are in the outcome. Raises BadJob (and BadPredicate).
    """
    outcome = Outcome(before=checkpoint.acknowledged if checkpoint is not None else 0)
    if checkpoint is not None and checkpoint.is_complete:
        return outcome
    _Replay(plan, spark, on_progress, stop, checkpoint, SendSink).into(outcome)
    if checkpoint is not None and outcome.is_complete:
        if outcome.has_matched:
            checkpoint.completed()
        else:
            checkpoint.forget()
    return outcome


def preview(
    plan: Plan,
    spark: Any,
    on_progress: OnProgress | None = None,
    stop: threading.Event | None = None,
    checkpoint: Checkpoint | None = None,
) -> tuple[Look, Outcome]:
    """As `run`, but count the messages and send none. The checkpoint stays as it is."""
    outcome, look = Outcome(), Look()
    for found in _Replay(plan, spark, on_progress, stop, checkpoint, LookSink, is_dry=True).into(outcome):
        if found is not None:
            look.add(found)
    return look, outcome


class _Replay:
    """The Spark jobs of one plan."""

    def __init__(
        self,
        plan: Plan,
        spark: Any,
        on_progress: OnProgress | None,
        stop: threading.Event | None,
        checkpoint: Checkpoint | None,
        make_sink: type[Sink],
        *,
        is_dry: bool = False,
    ) -> None:
        self._plan = plan
        self._spark = spark
        self._spark_context: SparkContext = getattr(spark, "sparkContext", spark)
        self._on_progress = on_progress
        self._stop = stop or threading.Event()
        self._checkpoint = None if is_dry else checkpoint
        self._make_sink = make_sink
        place = None if self._checkpoint is None else self._checkpoint.place
        self._board = Board(self._spark_context, None if place is None else place.directory)
        is_unsure = checkpoint is not None and not checkpoint.is_settled
        self._context = TaskContext(plan.job, self._board.place, place, plan.done, is_unsure)
        self._began_s = time.monotonic()
        self._phase = "sending"
        self._counts = ReplayCounts()

    def into(self, outcome: Outcome) -> list[Any]:
        """Add the results to an outcome, and return what the sinks found."""
        try:
            results = self._replay()
            outcome.add(results)
            return [result.payload for result in results]
        except Stopped:
            outcome.is_stopped = True
        except JobFailed as error:
            outcome.failed(str(error))
        finally:
            outcome.seconds = time.monotonic() - self._began_s
            self._board.close()
        if not outcome.counts.sent:
            outcome.counts = self._counts  # the last that were seen before it was cancelled
        return []

    def _replay(self) -> list[TaskResult]:
        plan = self._plan
        if plan.uses_sql:
            from nsq_spark.replay.sql import SqlReplay  # Spark SQL takes a while to load

            sql = SqlReplay(self._spark, plan, self._action, self._context, self._make_sink)
            if plan.is_shuffled:
                if self._checkpoint is not None:
                    self._checkpoint.remember_parts(plan.shuffle_parts)
                return sql.replay_shuffled()
        try:
            tasks = self._ordered_tasks() if plan.is_ordered else plan.tasks
        except _IndexFailed as failed:
            return failed.results
        if not tasks:
            return []
        return (
            sql.replay(tasks) if plan.uses_sql else self._map(partial(run_task, self._context, self._make_sink), tasks)
        )

    def _ordered_tasks(self) -> Sequence[Task]:
        plan = self._plan
        self._phase = "looking at times"
        groups = [task.parts for task in packed(plan.parts, max(1, min(len(plan.parts), 8 * plan.slots)))]
        results = self._map(partial(index_times, self._context), groups)
        if any(result.error is not None or result.is_stopped for result in results):
            raise _IndexFailed(results)
        self._phase = "sending"
        sources: list[Source] = [source for result in results for source in result.payload]
        return ordered_tasks(plan, sources, time.time())

    def _map(self, work: Callable[[T, Attempt], R], items: Sequence[T]) -> list[R]:
        """Do the work on each item, in a task each. Raises JobFailed and Stopped."""
        if not items:
            return []

        def of_partition(some: Iterable[T]) -> Iterator[R]:
            attempt = this_attempt()
            return (work(item, attempt) for item in some)

        rdd = self._spark_context.parallelize(items, len(items))
        found: list[R] = self._action(lambda: rdd.mapPartitions(of_partition).collect())
        return found

    def _action(self, action: Callable[[], R]) -> R:
        """Run an action of Spark in a thread, and watch it. Raises JobFailed, and Stopped if it was cancelled."""
        if self._stop.is_set():
            raise Stopped("stopped")
        self._board.begin_job()
        group = f"nsq-replay-{uuid.uuid4()}"
        found: list[R] = []
        errors: list[Exception] = []

        def act() -> None:
            self._spark_context.setJobGroup(group, "spark-replay", interruptOnCancel=True)
            try:
                found.append(action())
            except Exception as error:  # noqa: BLE001 - raised below
                errors.append(error)

        thread = InheritableThread(target=act, daemon=True)
        thread.start()
        self._attend(thread, group)
        if found:
            return found[0]
        if self._stop.is_set():
            raise Stopped("stopped")
        raise JobFailed(self._board.failure or _reason(errors[0])) from errors[0]

    def _attend(self, thread: threading.Thread, group: str) -> None:
        """Return when the work has ended; at the latest a few seconds after it was asked to."""
        ending_since_s = None
        while thread.is_alive():
            thread.join(_LOOK_S)
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

    def _watch(self) -> None:
        self._counts = self._board.totals()
        if self._on_progress is not None:
            seconds = time.monotonic() - self._began_s
            self._on_progress(ReplayProgress(self._counts, self._plan.size_bytes, seconds, self._phase))


class _IndexFailed(ReplayError):
    """The times could not be read; the results contain the errors."""

    def __init__(self, results: list[TaskResult]) -> None:
        super().__init__("failed")
        self.results = results


def _reason(error: Exception) -> str:
    """Return Spark's error in one line."""
    java = getattr(error, "java_exception", None)
    text = str(java.getMessage()) if java is not None else str(error)
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
