"""What spark-replay does while Spark starts, and with it: list, plan, ask, send or look, and tell of it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from nsq_spark.archive.errors import ArchiveError
from nsq_spark.archive.listing import Listing, survey
from nsq_spark.archive.storage import Storage
from nsq_spark.masters import known_slots
from nsq_spark.replay.checkpoint import Checkpoint, known_checkpoint, open_checkpoint
from nsq_spark.replay.command.bar import Bar
from nsq_spark.replay.command.dry_run import dry_run_text
from nsq_spark.replay.command.figures import count_text, shown
from nsq_spark.replay.command.plan_text import left_text, plan_text
from nsq_spark.replay.command.question import agreed, say
from nsq_spark.replay.command.report import STANDARD_OUTPUT, report_of, write_report
from nsq_spark.replay.command.request import job_of
from nsq_spark.replay.command.spark_wanted import SparkWanted
from nsq_spark.replay.command.stopping import Stopping
from nsq_spark.replay.command.summary import how_to_go_on, summary
from nsq_spark.replay.errors import ReplayError
from nsq_spark.replay.job import Job
from nsq_spark.replay.look import Look
from nsq_spark.replay.options import ReplayOptions
from nsq_spark.replay.outcome import ALL_SENT, Outcome
from nsq_spark.replay.planning import Plan
from nsq_spark.replay.planning import plan as make_plan
from nsq_spark.replay.running import preview
from nsq_spark.replay.running import run as send
from nsq_spark.session import Session, SessionFailed
from nsqd_py.errors import NsqdError

EXPECTED = (ReplayError, ArchiveError, NsqdError, SessionFailed)
_STARTING = "starting Spark"
_FILES_SHOWN = 3
_TOPICS_SHOWN = 10


class Work:
    """One run of the command. `command_line` is what repeats it."""

    def __init__(
        self, options: ReplayOptions, command_line: str, wanted: SparkWanted, session: Session, stopping: Stopping
    ) -> None:
        self._options = options
        self._command_line = command_line
        self._wanted = wanted
        self._session = session
        self._stopping = stopping
        self._began_ns = time.time_ns()

    def run(self) -> int:
        """The exit status. Raises EXPECTED, which is in the report then."""
        job = job_of(self._options, self._began_ns)
        try:
            return self._do(job)
        except EXPECTED as error:
            report_failure(self._options, job, error, self._began_ns)
            raise

    def _do(self, job: Job) -> int:
        files = _listed(job)
        opened = known_checkpoint if self._options.dry_run else open_checkpoint
        with _checkpoint(opened(job, files.files)) as checkpoint:
            if checkpoint is not None and checkpoint.is_complete:
                return self._nothing_left(job, checkpoint)
            return self._begin(job, files, checkpoint)

    def _begin(self, job: Job, files: Listing, checkpoint: Checkpoint | None) -> int:
        plan = _plan(job, files, checkpoint, _slots(self._wanted, self._session))
        say(plan_text(plan, self._wanted, checkpoint, is_dry=self._options.dry_run))
        if not self._may_begin(plan):
            say("nothing was sent")
            return ALL_SENT
        return self._work(plan, checkpoint)

    def _nothing_left(self, job: Job, checkpoint: Checkpoint) -> int:
        outcome = Outcome(before=checkpoint.acknowledged)
        say(f"all of it was sent already: {count_text(outcome.before, 'message')}, says {job.safety.checkpoint}")
        self._report(job, outcome)
        return outcome.exit_code

    def _may_begin(self, plan: Plan) -> bool:
        return self._options.yes or self._options.dry_run or agreed(f"replay {left_text(plan)}?")

    def _work(self, plan: Plan, checkpoint: Checkpoint | None) -> int:
        is_dry, stopping = self._options.dry_run, self._stopping
        with Bar(_STARTING, is_dry=is_dry) as bar:
            context = self._session.context()
            stopping.is_at_work = True
            if is_dry:
                look, outcome = preview(plan, context, bar, stopping.asked, checkpoint=checkpoint)
            else:
                look, outcome = None, send(plan, context, bar, stopping.asked, checkpoint)
        if look is None:
            self._sent(plan.job, outcome)
        else:
            self._looked(look, outcome)
        if outcome.is_complete and not outcome.has_matched:
            outcome.is_empty = not self._options.allow_empty
            say(f"no message matches{_topics_there(plan)}; --allow-empty makes this a success")
        self._report(plan.job, outcome, look)
        return outcome.exit_code

    def _sent(self, job: Job, outcome: Outcome) -> None:
        say(summary(outcome))
        advice = how_to_go_on(outcome, job.safety.checkpoint, self._command_line)
        if advice:
            say(advice)

    def _looked(self, look: Look, outcome: Outcome) -> None:
        if not outcome.is_complete:
            say("not looked at all of it: " + "; ".join(map(shown, outcome.errors or ["stopped"])))
        if self._options.report != STANDARD_OUTPUT:
            print(dry_run_text(look, outcome), flush=True)

    def _report(self, job: Job, outcome: Outcome, look: Look | None = None) -> None:
        if self._options.report:
            write_report(self._options.report, report_of(job, outcome, self._began_ns, look))


def _topics_there(plan: Plan) -> str:
    """What a mistyped --topic is one letter from."""
    topics = sorted({info.topic for info in plan.files if info.has_one_topic or info.is_unwanted})
    return f"; there are topics {', '.join(map(shown, topics[:_TOPICS_SHOWN]))}" if topics else ""


def report_failure(options: ReplayOptions, job: Job, error: Exception, began_ns: int) -> None:
    """Where a report is wanted: why nothing was sent."""
    if options.report:
        outcome = Outcome()
        outcome.failed(str(error))
        write_report(options.report, report_of(job, outcome, began_ns))


@contextmanager
def _checkpoint(found: Checkpoint | None) -> Iterator[Checkpoint | None]:
    try:
        yield found
    finally:
        if found is not None:
            found.close()


def _listed(job: Job) -> Listing:
    """Raises ArchiveError, also where there is nothing at all."""
    found = survey(job.paths, Storage(job.storage), job.hints, job.selection.wanted)
    for path in found.in_progress[:_FILES_SHOWN]:
        say(f"left out, as nsq-to-file is still at it: {shown(path)}")
    if len(found.in_progress) > _FILES_SHOWN:
        say(f"left out for the same reason: {len(found.in_progress) - _FILES_SHOWN:,} more")
    for text in found.copies:
        say(f"{shown(text)}; --go-channel says which to read")
    if not found.files:
        raise ArchiveError(f"there are no files with messages in {' '.join(job.paths)}")
    return found


def _plan(job: Job, found: Listing, checkpoint: Checkpoint | None, slots: int) -> Plan:
    if checkpoint is None:
        return make_plan(job, found.files, slots)
    return make_plan(checkpoint.job, checkpoint.files, slots, checkpoint)


def _slots(wanted: SparkWanted, session: Session) -> int:
    """Of a cluster, only the cluster knows."""
    slots = known_slots(wanted.master, _cores())
    return slots if slots is not None else session.context().defaultParallelism


def _cores() -> int:
    return os.cpu_count() or 1
