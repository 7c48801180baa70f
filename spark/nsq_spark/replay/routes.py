"""Which jobs of Spark a replay is, one behind the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from nsq_spark.replay.checkpoint import Checkpoint
from nsq_spark.replay.counting import Counting, PartCount
from nsq_spark.replay.engine import Engine
from nsq_spark.replay.errors import ReplayError
from nsq_spark.replay.marks import AFTER_ALL, Mark
from nsq_spark.replay.planning import Part, Plan, Source, Task, by_file_tasks, one_task, packed, streams, within
from nsq_spark.replay.results import TaskResult
from nsq_spark.replay.sinks import MakeSink
from nsq_spark.replay.survey import survey
from nsq_spark.replay.task import run_task
from nsq_spark.replay.work import Attempt, Setup

# Each look for the limit is at so many times as many parts as the one before.
_WIDER = 4


class Routes:
    """Of one plan.

    tell  told in a word or two what is being done
    """

    def __init__(
        self,
        plan: Plan,
        spark: Any,
        engine: Engine,
        setup: Setup,
        checkpoint: Checkpoint | None,
        tell: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._spark = spark
        self._engine = engine
        self._setup = setup
        self._checkpoint = checkpoint
        self._tell = tell

    def run(self, make_sink: MakeSink) -> list[TaskResult]:
        """What became of each task. Raises Stopped, JobFailed, BadJob; an error of archive or nsqd is in a result."""
        if self._plan.is_shuffled:
            return self._shuffled(make_sink)
        if self._plan.is_ordered:
            return self._ordered(make_sink)
        return self._by_file(make_sink)

    # ---- in the order of the files

    def _by_file(self, make_sink: MakeSink) -> list[TaskResult]:
        plan = self._plan
        tasks: Sequence[Task] = plan.tasks
        try:
            cut = self._cut(self._cut_by_file)
        except _Failed as failed:
            return failed.results
        if cut is not None:
            tasks = by_file_tasks(plan.job, within(plan.parts, cut), plan.slots)
        self._tell("sending")
        return self._execute(tasks, make_sink)

    def _cut(self, find: Callable[[int], Mark | None]) -> Mark | None:
        """The last mark that is within the limit; what is done afterwards keeps to it."""
        limit = self._plan.job.selection.limit
        if limit is None:
            return None
        cut = self._checkpoint.cut if self._checkpoint is not None else None
        if cut is None:
            self._tell("counting")
            cut = find(limit) or AFTER_ALL
            if self._checkpoint is not None and self._setup.checkpoint is not None:
                self._checkpoint.remember(cut=cut)
        self._setup = replace(self._setup, cut=cut)
        return cut

    def _cut_by_file(self, limit: int) -> Mark | None:
        """Looks at few parts first, since a limit is mostly reached soon."""
        parts = list(self._plan.parts)
        width, left = 1, limit
        while parts:
            some, parts = parts[:width], parts[width:]
            for part, found in zip(some, self._counted(some, left), strict=True):
                if found.count >= left:
                    return self._counted([part], left)[0].mark
                left -= found.count
            width *= _WIDER
        return None

    def _counted(self, parts: Sequence[Part], limit: int) -> list[PartCount]:
        """Of each part in its order, up to the limit."""
        results = _good(self._execute(packed(parts, len(parts)), Counting(limit)))
        found: dict[int, PartCount] = {count.part: count for result in results for count in result.payload}
        return [found[part.split.index] for part in parts]

    # ---- in the order of time

    def _ordered(self, make_sink: MakeSink) -> list[TaskResult]:
        plan = self._plan
        try:
            self._tell("looking at times")
            groups = [task.parts for task in packed(plan.parts, max(1, min(len(plan.parts), 8 * plan.slots)))]
            results = _good(self._engine.map(partial(_survey, self._setup), groups))
            sources: list[Source] = [source for result in results for source in result.payload]
            self._cut(partial(self._cut_by_time, sources))
        except _Failed as failed:
            return failed.results
        self._tell("sending")
        return self._execute(streams(plan, sources, time.time(), self._setup.cut), make_sink)

    def _cut_by_time(self, sources: Sequence[Source], limit: int) -> Mark | None:
        results = _good(self._execute([one_task(sources)], Counting(limit)))
        found: list[PartCount] = [count for result in results for count in result.payload]
        return found[0].mark if found else None

    # ---- what both are made of

    def _execute(self, tasks: Sequence[Task], make_sink: MakeSink) -> list[TaskResult]:
        if not tasks:
            return []
        if self._plan.uses_frame:
            from nsq_spark.replay.frame import Frame  # Spark SQL takes a while to load

            return Frame(self._spark, self._plan, self._engine, self._setup).run(tasks, make_sink)
        return self._engine.map(partial(_run, self._setup, make_sink), tasks)

    def _shuffled(self, make_sink: MakeSink) -> list[TaskResult]:
        from nsq_spark.replay.frame import Frame

        frame = Frame(self._spark, self._plan, self._engine, self._setup)
        if self._checkpoint is not None and self._setup.checkpoint is not None:
            self._checkpoint.remember(parts=self._plan.shuffle_parts)
        self._cut(frame.cut)
        self._tell("sending")
        return frame.run_shuffled(self._setup, make_sink)


class _Failed(ReplayError):
    """A job before the sending failed; its results say why."""

    def __init__(self, results: list[TaskResult]) -> None:
        super().__init__("failed")
        self.results = results


def _good(results: list[TaskResult]) -> list[TaskResult]:
    if any(result.error is not None or result.is_stopped for result in results):
        raise _Failed(results)
    return results


def _run(setup: Setup, make_sink: MakeSink, task: Task, attempt: Attempt) -> TaskResult:
    return run_task(setup, task, attempt, make_sink)


def _survey(setup: Setup, parts: Sequence[Part], attempt: Attempt) -> TaskResult:
    return survey(setup, parts, attempt)
