"""The command spark-replay: its terminal, on which it asks and shows how far it is; and the command, from its options to its
exit status: list, ask, start Spark, send or look, and report.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from contextlib import closing, suppress
from shutil import get_terminal_size
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Self

from nsq_spark.archive.listing import Listing, survey
from nsq_spark.archive.splits import ArchiveError
from nsq_spark.archive.storage import Storage, name_of
from nsq_spark.replay import summary
from nsq_spark.replay.checkpoint import Checkpoint, has_checkpoint, open_checkpoint
from nsq_spark.replay.driver import SETTINGS, Replay
from nsq_spark.replay.job import Job, ReplayError, job_of, parse_conf
from nsq_spark.replay.ledger import Totals
from nsq_spark.replay.options import ReplayOptions
from nsq_spark.replay.resume import how_to_resume, how_to_send_refused, words_to_repeat
from nsq_spark.session import SessionFailed, quiet_session
from nsqd_py.errors import NsqdError
from nsqd_py.runtime.command import complain, is_terminal
from nsqd_py.settings.program import FAILED, ToolError
from nsqd_py.settings.types import size_text

_EXPECTED = (ReplayError, ArchiveError, NsqdError, SessionFailed)
_FILES_SHOWN = 3
_TOPICS_SHOWN = 10
# From here on Java's optimizing compiler, which `quiet_session` leaves out, saves more time than it takes: 4 s.
_LARGE_BYTES = 128 * 1024 * 1024
# Below this, to compile queries to Java takes longer than it saves: 0.5 s of processor time. Both read 8 MiB as fast.
_SMALL_BYTES = 4 * 1024 * 1024
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


# ---- the terminal


def agreed(question: str) -> bool:
    """True if the user answers yes; Enter alone, and the end of input, are no."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        print(file=sys.stderr)
    return answer.strip().lower() in ("y", "yes")


class Stopping:
    """Handles Ctrl-C and SIGTERM while it is entered. A second signal ends the process at once.

    asked  set by a signal, which raises KeyboardInterrupt until `begin_work` is called
    """

    def __init__(self) -> None:
        self.asked = threading.Event()
        self._is_at_work = False
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        return self

    def begin_work(self) -> None:
        """From now on a signal asks the replay to end. PySpark has put a handler of its own in place of ours."""
        self._is_at_work = True
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.asked.is_set():
            os._exit(FAILED)
        self.asked.set()
        if not self._is_at_work:
            raise KeyboardInterrupt


class ProgressBar:
    """A line of progress on a terminal while it is entered; nothing in a pipe."""

    def __init__(self) -> None:
        self._is_shown = is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb"
        self._began_s = time.monotonic()

    def __enter__(self) -> Self:
        self._draw("reading")
        return self

    def __exit__(self, *exception: object) -> None:
        self._draw("")

    def __call__(self, counts: Totals) -> None:
        """Draw what is sent so far."""
        if counts.sent or counts.failed:
            speed = counts.sent / max(time.monotonic() - self._began_s, 1.0)
            self._draw(f"{counts.sent:,} sent, {counts.failed:,} refused, {speed:,.0f}/s")

    def _draw(self, text: str) -> None:
        if self._is_shown:
            with suppress(OSError):  # the terminal is gone, and the work goes on
                print(f"\r{text[: get_terminal_size().columns - 1]}\x1b[K", end="", file=sys.stderr, flush=True)


# ---- the command


def run(options: ReplayOptions, words: Sequence[str]) -> int:
    """Run the command, and return its exit status; `words` of the command line repeat it. Raises ToolError."""
    # PySpark and py4j log errors that are raised as well, and everything that a stop cuts.
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    with Stopping() as stopping, TemporaryDirectory(prefix="nsq-replay-") as scratch:
        command = _Command(options, words, stopping)
        try:
            return command.run(scratch)
        except _EXPECTED as error:
            outcome = summary.Outcome()
            outcome.failed(options.without_secrets(str(error)))
            command.report(command.job, outcome)
            raise ToolError(summary.shown(str(error))) from error
        except KeyboardInterrupt:
            complain("stopped; nothing was sent")
            return FAILED


class _Command:
    """One run of the command."""

    def __init__(self, options: ReplayOptions, words: Sequence[str], stopping: Stopping) -> None:
        self._options = options
        self._words = words_to_repeat(options, words)
        self._stopping = stopping
        self._began_ns = time.time_ns()
        self.job = job_of(options, self._began_ns)

    def run(self, scratch: str) -> int:
        """Return the exit status. `scratch` is the directory of a job without a checkpoint, and of a dry run."""
        options, job = self._options, self.job
        listing = _listed(job)
        directory = job.checkpoint or scratch
        if options.dry_run and not has_checkpoint(directory):
            directory = scratch
        with closing(open_checkpoint(directory, job, listing.files)) as checkpoint:
            try:
                return self._nothing_left(checkpoint) if checkpoint.is_complete else self._asked(checkpoint)
            finally:
                checkpoint.forget_unless_begun()

    def _nothing_left(self, checkpoint: Checkpoint) -> int:
        outcome = summary.Outcome.of(checkpoint.earlier)
        outcome.gather_refused(checkpoint)
        complain(f"all of it was sent already: {summary.count_text(outcome.before, 'message')}, says {self.job.checkpoint}")
        if outcome.refused:
            complain(f"{summary.refused_text(outcome)}\n{how_to_send_refused(outcome, self._words)}")
        self.report(self.job, outcome)
        return outcome.exit_code

    def _asked(self, checkpoint: Checkpoint) -> int:
        options = self._options
        complain(summary.plan_text(checkpoint, options.master, is_dry=options.dry_run))
        question = f"replay {summary.count_text(len(checkpoint.files), 'file')}, {size_text(checkpoint.size_bytes)}?"
        if not (options.yes or options.dry_run or agreed(question)):
            complain("nothing was sent")
            return summary.ALL_SENT
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

    def _show(self, outcome: summary.Outcome) -> None:
        if outcome.look is None:
            complain(summary.summary(outcome))
            if advice := how_to_resume(outcome, self.job.checkpoint, self._words):
                complain(advice)
        elif self._options.report != summary.STANDARD_OUTPUT:
            print(summary.dry_run_text(outcome.look), flush=True)

    def report(self, job: Job, outcome: summary.Outcome) -> None:
        """Write the report, if there is one."""
        if self._options.report:
            summary.write_report(self._options.report, summary.report_of(job, outcome, self._began_ns))


def _settings(options: ReplayOptions, checkpoint: Checkpoint) -> dict[str, str]:
    """Return Spark's settings: ours, and over them the user's."""
    by_size = _INTERPRETED if checkpoint.size_bytes < _SMALL_BYTES else {}
    if checkpoint.size_bytes >= _LARGE_BYTES:
        by_size = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4"}
    return {"spark.app.name": "spark-replay", **by_size, **SETTINGS, **parse_conf(options.conf)}


def _topics_there(checkpoint: Checkpoint) -> str:
    """Return the topics that there are: a mistyped --topic is similar to one of them."""
    topics = sorted({info.topic for info in checkpoint.files if info.has_one_topic or info.is_unwanted})
    return f"; there are topics {summary.some_text(topics, _TOPICS_SHOWN)}" if topics else ""


def _listed(job: Job) -> Listing:
    """Raises ArchiveError, also if there are no files."""
    found = survey(job.paths, Storage(job.storage), job.hints, job.selection.wanted)
    names_of_archives = "archives have other names (--format takes all files)"
    for reason, paths in ("nsq-to-file still writes it", found.in_progress), (names_of_archives, found.skipped):
        if paths:
            complain(f"left out, as {reason}: {summary.some_text([name_of(path) for path in paths], _FILES_SHOWN)}")
    if warning := found.zone_warning("--file-time-zone"):
        complain(f"warning: {warning}")
    if not found.files:
        raise ArchiveError(f"there are no files with messages in {' '.join(job.paths)}")
    return found
