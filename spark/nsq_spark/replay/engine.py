"""Runs work on Spark from the driver: in a thread, while this one watches, and ends it when it is asked to."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from pyspark import InheritableThread, SparkContext, TaskContext

from nsq_spark.replay.errors import ReplayError, Stopped
from nsq_spark.replay.progress import Board, Counts
from nsq_spark.replay.work import Attempt

T = TypeVar("T")
R = TypeVar("R")

Watch = Callable[[Counts], None]

_LOOK_S = 0.2
# Tasks end by themselves when they hear that they are to. Spark ends those that do not, ...
_CANCEL_AFTER_S = 1.5
# ... and not so soon where nobody is in a hurry, since their figures are lost then.
_CANCEL_FAILED_AFTER_S = 10.0
_LEAVE_AFTER_S = 1.0


class JobFailed(ReplayError):
    """Spark gave a job up."""


def this_attempt() -> Attempt:
    """In an executor: which try of which task this is."""
    context = TaskContext.get()
    assert context is not None
    return Attempt(context.partitionId(), context.taskAttemptId(), context.attemptNumber())


class Engine:
    """Does one thing at a time.

    watch  called a few times a second with what was counted so far
    stop   set by anybody, it ends what runs
    """

    def __init__(self, context: SparkContext, board: Board, watch: Watch, stop: threading.Event) -> None:
        self.context = context
        self._board = board
        self.stop = stop
        self._watch = watch

    def map(self, work: Callable[[T, Attempt], R], items: Sequence[T]) -> list[R]:
        """`work` on each item, in a task each. Raises JobFailed and Stopped."""
        if not items:
            return []

        def of_partition(some: Iterable[T]) -> Iterator[R]:
            attempt = this_attempt()
            return (work(item, attempt) for item in some)

        return self.run(lambda: self.context.parallelize(items, len(items)).mapPartitions(of_partition).collect())

    def run(self, action: Callable[[], R]) -> R:
        """An action of Spark. Raises JobFailed; and Stopped where it had to be ended by force."""
        if self.stop.is_set():
            raise Stopped("stopped")
        self._board.begin_job()
        group = f"nsq-replay-{uuid.uuid4()}"
        found: list[R] = []
        errors: list[Exception] = []
        thread = InheritableThread(target=partial(self._act, action, group, found, errors), daemon=True)
        thread.start()
        self._attend(thread, group)
        if found:
            return found[0]
        if self.stop.is_set():
            raise Stopped("stopped")
        raise JobFailed(self._board.failure or _reason(errors[0])) from errors[0]

    def _act(self, action: Callable[[], R], group: str, found: list[R], errors: list[Exception]) -> None:
        self.context.setJobGroup(group, "spark-replay", interruptOnCancel=True)
        try:
            found.append(action())
        except Exception as error:  # noqa: BLE001 - `run` raises it
            errors.append(error)

    def _attend(self, thread: threading.Thread, group: str) -> None:
        """Until the work has ended; at the latest a few seconds after it was to."""
        ending_since_s = None
        while thread.is_alive():
            thread.join(_LOOK_S)
            self._watch(self._board.totals())
            now_s = time.monotonic()
            if ending_since_s is None:
                if self.stop.is_set() or self._board.failure:
                    self._board.stop()
                    ending_since_s = now_s
                continue
            overdue_s = now_s - ending_since_s - (_CANCEL_AFTER_S if self.stop.is_set() else _CANCEL_FAILED_AFTER_S)
            if overdue_s >= 0:
                self.context.cancelJobGroup(group)
            if overdue_s >= _LEAVE_AFTER_S and self.stop.is_set():
                return


def _reason(error: Exception) -> str:
    """What Spark says of it, in a line."""
    java = getattr(error, "java_exception", None)
    text = str(java.getMessage()) if java is not None else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def as_context(spark: Any) -> SparkContext:
    """Of a session, or itself."""
    context: SparkContext = getattr(spark, "sparkContext", spark)
    return context
