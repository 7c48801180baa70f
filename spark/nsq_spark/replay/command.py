"""The command spark-replay, from its options to its exit status: list, ask, start Spark, send or only list, and report."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from time import time_ns

from nsq_spark.archive.listing import Listing, survey
from nsq_spark.archive.splits import ArchiveError
from nsq_spark.archive.storage import Storage, name_of
from nsq_spark.replay.checkpoint.directory import Checkpoint, has_checkpoint, open_checkpoint
from nsq_spark.replay.driver import SETTINGS, Replay
from nsq_spark.replay.job import Job, ReplayError, job_of, parse_conf
from nsq_spark.replay.options import ReplayOptions
from nsq_spark.replay.outcome import ALL_SENT, Outcome
from nsq_spark.replay.output.resume import how_to_resume, words_to_repeat
from nsq_spark.replay.output.summary import (
    STANDARD_OUTPUT,
    count_text,
    dedupe_warning,
    dry_run_text,
    plan_text,
    refused_text,
    report_of,
    shown,
    some_text,
    summary,
    write_report,
)
from nsq_spark.replay.output.terminal import ProgressBar, Stopping, agreed
from nsq_spark.session import SessionFailed, quiet_session
from nsqd_py.errors import NsqdError
from nsqd_py.runtime.command import complain
from nsqd_py.settings.program import FAILED, ToolError
from nsqd_py.settings.values import size_text

_EXPECTED = (ReplayError, ArchiveError, NsqdError, SessionFailed)
_FILES_SHOWN = 3
_TOPICS_SHOWN = 10
# From here on Java's optimizing compiler, which `quiet_session` leaves out, saves more time than it takes: 4 s.
_LARGE_BYTES = 128 * 1024 * 1024
# Below this, to compile queries to Java takes longer than it saves: 0.5 s of processor time. Both read 8 MiB as fast.
_SMALL_BYTES = 4 * 1024 * 1024
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


def run(options: ReplayOptions, words: Sequence[str]) -> int:
    """Run the command, and return its exit status; `words` of the command line repeat it. Raises ToolError."""
    # PySpark and py4j log errors that are raised as well, and everything that a stop cuts.
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    with Stopping() as stopping, TemporaryDirectory(prefix="nsq-replay-") as scratch:
        command = _Command(options, words_to_repeat(options, words), stopping)
        try:
            return command.run(scratch)
        except _EXPECTED as error:
            outcome = Outcome()
            outcome.ended(options.without_secrets(str(error)))
            command.report(command.job, outcome)
            raise ToolError(shown(str(error))) from error
        except KeyboardInterrupt:
            complain("stopped; nothing was sent")
            return FAILED


@dataclass
class _Command:
    """One run of the command."""

    _options: ReplayOptions
    _words: Sequence[str]
    _stopping: Stopping

    def __post_init__(self) -> None:
        self._began_ns = time_ns()
        self.job = job_of(self._options, self._began_ns)

    def run(self, scratch: str) -> int:
        """Return the exit status. `scratch` is the directory of a job without a checkpoint, and of a dry run."""
        options = self._options
        job = self.job
        listing = _listed(job)
        directory = job.checkpoint or scratch
        if options.dry_run and not has_checkpoint(directory):
            directory = scratch
        with closing(open_checkpoint(directory, job, listing.files)) as checkpoint:
            try:
                if checkpoint.is_complete:
                    return self._nothing_left(checkpoint)
                return self._asked(checkpoint)
            finally:
                checkpoint.forget_unless_begun()

    def _nothing_left(self, checkpoint: Checkpoint) -> int:
        outcome = Outcome.of(checkpoint.earlier)
        outcome.gather_refused(checkpoint)
        complain(
            f"all of it was sent already: {count_text(outcome.before, 'message')}, says {self.job.checkpoint}"
        )
        if outcome.refused:
            complain(refused_text(outcome))
        self._advise(outcome)
        self.report(self.job, outcome)
        return outcome.exit_code

    def _asked(self, checkpoint: Checkpoint) -> int:
        options = self._options
        warning = dedupe_warning(self.job, checkpoint.files)
        if warning:
            complain(f"warning: {warning}")
        complain(plan_text(checkpoint, options.master, is_dry=options.dry_run))
        question = f"replay {count_text(len(checkpoint.files), 'file')}, {size_text(checkpoint.size_bytes)}?"
        if not (options.yes or options.dry_run or agreed(question)):
            complain("nothing was sent")
            return ALL_SENT
        return self._work(checkpoint)

    def _work(self, checkpoint: Checkpoint) -> int:
        options = self._options
        with quiet_session(options.master, _settings(options, checkpoint)) as spark:
            self._stopping.begin_work()
            with ProgressBar() as bar:
                outcome = Replay(spark, checkpoint, bar, self._stopping.asked).run(is_dry=options.dry_run)
            is_empty = outcome.is_complete and not outcome.has_matched
            outcome.is_empty = is_empty and not options.allow_empty
            self._show(outcome)
            if is_empty:
                complain(f"no message matches{_topics_there(checkpoint)}; --allow-empty makes this a success")
            self.report(checkpoint.job, outcome)
            return outcome.exit_code

    def _show(self, outcome: Outcome) -> None:
        if outcome.dry_run is None:
            complain(summary(outcome))
            self._advise(outcome)
        elif self._options.report != STANDARD_OUTPUT:
            print(dry_run_text(outcome.dry_run), flush=True)

    def _advise(self, outcome: Outcome) -> None:
        """Say how to send the rest, if there is one."""
        advice = how_to_resume(outcome, self.job.checkpoint, self._words)
        if advice:
            complain(advice)

    def report(self, job: Job, outcome: Outcome) -> None:
        """Write the report, if there is one."""
        if self._options.report:
            write_report(self._options.report, report_of(job, outcome, self._began_ns))


def _settings(options: ReplayOptions, checkpoint: Checkpoint) -> dict[str, str]:
    """Return Spark's settings: ours, and over them the user's."""
    by_size = _INTERPRETED if checkpoint.size_bytes < _SMALL_BYTES else {}
    if checkpoint.size_bytes >= _LARGE_BYTES:
        by_size = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4"}
    return {"spark.app.name": "spark-replay", **by_size, **SETTINGS, **parse_conf(options.conf)}


def _topics_there(checkpoint: Checkpoint) -> str:
    """Return the topics that there are: a mistyped --topic is similar to one of them."""
    topics = sorted({info.topic for info in checkpoint.files if info.has_one_topic or info.is_unwanted})
    if topics:
        return f"; there are topics {some_text(topics, _TOPICS_SHOWN)}"
    return ""


def _listed(job: Job) -> Listing:
    """Raises ArchiveError, also if there are no files."""
    found = survey(
        job.paths, Storage(job.storage), job.hints, job.selection.requested, skips_damaged=job.skip_damaged
    )
    names_of_archives = "archives have other names (--format takes all files)"
    for reason, paths in (
        ("nsq-to-file still writes it", found.in_progress),
        (names_of_archives, found.skipped),
    ):
        if paths:
            complain(f"left out, as {reason}: {some_text([name_of(path) for path in paths], _FILES_SHOWN)}")
    warning = found.zone_warning("--file-time-zone")
    if warning:
        complain(f"warning: {warning}")
    if not found.files:
        raise ArchiveError(f"there are no files with messages in {' '.join(job.paths)}")
    return found
