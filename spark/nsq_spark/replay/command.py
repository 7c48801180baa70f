"""The command spark-replay: list, plan, ask, send or look, and report. Spark starts meanwhile: that takes longest."""

from __future__ import annotations

import logging
import os
import time
import warnings

from nsq_spark.archive.damage import ArchiveError
from nsq_spark.archive.listing import Listing, survey
from nsq_spark.archive.storage import Storage
from nsq_spark.java import JavaNotFound
from nsq_spark.replay.arguments import job_of, spark_of
from nsq_spark.replay.checkpoint import Checkpoint, open_checkpoint
from nsq_spark.replay.console import Bar, Stopping, agreed, say
from nsq_spark.replay.driver import ALL_SENT, Outcome
from nsq_spark.replay.driver import run as send
from nsq_spark.replay.dry_run import dry_run_text
from nsq_spark.replay.errors import ReplayError
from nsq_spark.replay.figures import count_text, shown, size_text
from nsq_spark.replay.job import Job
from nsq_spark.replay.options import ReplayOptions
from nsq_spark.replay.planning import Plan
from nsq_spark.replay.planning import plan as make_plan
from nsq_spark.replay.summary import STANDARD_OUTPUT, how_to_resume, plan_text, report_of, summary, write_report
from nsq_spark.session import SessionFailed, SparkStart, known_slots
from nsq_tools.cli import FAILED, ToolError
from nsqd_py.errors import NsqdError

_EXPECTED = (ReplayError, ArchiveError, NsqdError, SessionFailed, JavaNotFound)
_FILES_SHOWN = 3
_TOPICS_SHOWN = 10


def run(options: ReplayOptions, command_line: str) -> int:
    """Run the command, and return its exit status; `command_line` repeats it. Raises ToolError."""
    # PySpark and py4j log errors that are raised as well, and everything that a stop cuts.
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    with Stopping() as stopping:
        command = _Command(options, command_line, stopping)
        try:
            return command.run()
        except _EXPECTED as error:
            command.report(command.job, _failed(options.without_secrets(str(error))))
            raise ToolError(shown(str(error))) from error
        except KeyboardInterrupt:
            say("stopped; nothing was sent")
            return FAILED


def _failed(reason: str) -> Outcome:
    outcome = Outcome()
    outcome.failed(reason)
    return outcome


class _Command:
    """One run of the command."""

    def __init__(self, options: ReplayOptions, command_line: str, stopping: Stopping) -> None:
        self._options = options
        self._command_line = command_line
        self._stopping = stopping
        self._began_ns = time.time_ns()
        self._wanted = spark_of(options)
        self.job = job_of(options, self._began_ns)

    def run(self) -> int:
        """Return the exit status."""
        wanted = self._wanted
        with SparkStart(wanted.master, wanted.conf, java_options=wanted.java_options, is_recorded=wanted.uses_sql) as session:
            files = _listed(self.job)
            checkpoint = open_checkpoint(self.job, files.files, is_dry=self._options.dry_run)
            try:
                if checkpoint is not None and checkpoint.is_complete:
                    return self._nothing_left(checkpoint)
                return self._begin(session, files, checkpoint)
            finally:
                if checkpoint is not None:
                    checkpoint.close()

    def _nothing_left(self, checkpoint: Checkpoint) -> int:
        outcome = Outcome(before=checkpoint.acknowledged)
        count = count_text(outcome.before, "message")
        say(f"all of it was sent already: {count}, says {self.job.safety.checkpoint}")
        self.report(self.job, outcome)
        return outcome.exit_code

    def _begin(self, session: SparkStart, files: Listing, checkpoint: Checkpoint | None) -> int:
        options = self._options
        slots = known_slots(self._wanted.master, os.cpu_count() or 1) or session.context().defaultParallelism
        if checkpoint is None:
            plan = make_plan(self.job, files.files, slots)
        else:
            plan = make_plan(checkpoint.job, checkpoint.files, slots, checkpoint)
        say(plan_text(plan, self._wanted, checkpoint, is_dry=options.dry_run))
        question = f"replay {count_text(len(plan.files), 'file')}, {size_text(plan.size_bytes)}?"
        if not (options.yes or options.dry_run or agreed(question)):
            say("nothing was sent")
            return ALL_SENT
        return self._work(session, plan, checkpoint)

    def _work(self, session: SparkStart, plan: Plan, checkpoint: Checkpoint | None) -> int:
        options = self._options
        with Bar("starting Spark", is_dry=options.dry_run) as bar:
            context = session.context()
            self._stopping.is_at_work = True
            outcome = send(plan, context, bar, self._stopping.asked, checkpoint, is_dry=options.dry_run)
        self._tell(plan, outcome)
        if outcome.is_complete and not outcome.has_matched:
            outcome.is_empty = not options.allow_empty
            say(f"no message matches{_topics_there(plan)}; --allow-empty makes this a success")
        self.report(plan.job, outcome)
        return outcome.exit_code

    def _tell(self, plan: Plan, outcome: Outcome) -> None:
        if outcome.look is None:
            say(summary(outcome))
            if advice := how_to_resume(outcome, plan.job.safety.checkpoint, self._command_line):
                say(advice)
            return
        if not outcome.is_complete:
            say("not looked at all of it: " + "; ".join(map(shown, outcome.errors or ["stopped"])))
        if self._options.report != STANDARD_OUTPUT:
            print(dry_run_text(outcome.look, outcome.counts), flush=True)

    def report(self, job: Job, outcome: Outcome) -> None:
        """Write the report, if there is one."""
        if self._options.report:
            write_report(self._options.report, report_of(job, outcome, self._began_ns))


def _topics_there(plan: Plan) -> str:
    """Return the topics that there are: a mistyped --topic is similar to one of them."""
    topics = sorted({info.topic for info in plan.files if info.has_one_topic or info.is_unwanted})
    return f"; there are topics {', '.join(map(shown, topics[:_TOPICS_SHOWN]))}" if topics else ""


def _listed(job: Job) -> Listing:
    """Raises ArchiveError, also if there are no files."""
    found = survey(job.paths, Storage(job.storage), job.hints, job.selection.wanted)
    for path in found.in_progress[:_FILES_SHOWN]:
        say(f"left out, as nsq-to-file still writes it: {shown(path)}")
    if len(found.in_progress) > _FILES_SHOWN:
        say(f"left out for the same reason: {len(found.in_progress) - _FILES_SHOWN:,} more")
    for text in found.copies:
        say(f"{shown(text)}; --go-channel says which to read")
    if not found.files:
        raise ArchiveError(f"there are no files with messages in {' '.join(job.paths)}")
    return found
