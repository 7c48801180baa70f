"""The outcome of a replay or a dry run, over all tasks and runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from nsq_spark.archive.splits import Skipped
from nsq_spark.publisher import PublishCounts
from nsq_spark.replay.checkpoint.directory import Checkpoint
from nsq_spark.replay.checkpoint.ledger import Acknowledged
from nsq_spark.replay.checkpoint.refused import gather
from nsq_spark.replay.job import REFUSED_FILE, Stopped

ALL_SENT = 0
FAILED = 1
PARTLY_SENT = 3
WORDS = {ALL_SENT: "sent", FAILED: "failed", PARTLY_SENT: "partly sent"}
_MOST_ERRORS = 10


@dataclass(slots=True)
class TopicCount:
    """The messages of one topic; times are None if they are not known."""

    count: int
    size_bytes: int
    first_ns: int | None = None
    last_ns: int | None = None


@dataclass(slots=True)
class DryRun:
    """The findings of a dry run.

    first       some of the messages as lines of text
    shared_ids  ids that messages with different bodies have
    """

    topics: dict[str, TopicCount] = field(default_factory=dict)
    first: list[str] = field(default_factory=list)
    shared_ids: int = 0

    @property
    def count(self) -> int:
        return sum(found.count for found in self.topics.values())


@dataclass(slots=True)
class Outcome:
    """The result of a task; or of a replay, over all tasks.

    counts               messages acknowledged
    matched              messages that were to be sent
    failed               messages that nsqd refused in this run
    shared_ids           ids that messages with different bodies have, which --dedupe=id has sent
    returned             the lines of messages that nsqd refused, of tasks that do not see the checkpoint
    errors               why it ended early, and the errors of messages that nsqd refused
    is_stopped           the user stopped it

    and only for all of a replay:

    refused              messages that nsqd refused in all runs of the checkpoint, which are in the file `refused_file`
    damage               what was passed over, by path
    dry_run              what a dry run finds
    unknown_duplicates   why the logs of nsqd do not say how many messages are stored twice
    is_empty             no message matched, and that is a failure
    before               messages that earlier runs of the checkpoint sent
    """

    counts: PublishCounts = field(default_factory=PublishCounts)
    matched: int = 0
    failed: int = 0
    shared_ids: int = 0
    returned: list[bytes] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    is_stopped: bool = False
    is_failed: bool = False
    refused: int = 0
    refused_file: str = ""
    damage: dict[str, Skipped] = field(default_factory=dict)
    dry_run: DryRun | None = None
    unknown_duplicates: str = ""
    is_empty: bool = False
    before: int = 0
    seconds: float = 0.0

    @property
    def skipped(self) -> int:
        """The number of damaged records."""
        return sum(found.records for found in self.damage.values())

    @property
    def is_complete(self) -> bool:
        """True if nothing is left to send, except what nsqd has refused."""
        return not (self.is_stopped or self.is_failed)

    @property
    def has_matched(self) -> bool:
        """True if there was a message to send, in this run or an earlier one."""
        return bool(self.matched or self.before or self.refused)

    @property
    def exit_code(self) -> int:
        if self.is_complete and not self.refused:
            return FAILED if self.is_empty else ALL_SENT
        if self.counts.messages or self.before:
            return PARTLY_SENT
        return FAILED

    def add(self, results: Iterable[Outcome]) -> None:
        """Add the results of tasks."""
        for result in results:
            self.counts.add(result.counts)
            self.matched += result.matched
            self.failed += result.failed
            self.shared_ids += result.shared_ids
            self.returned += result.returned
            self.is_stopped |= result.is_stopped
            self.is_failed |= result.is_failed
            for error in result.errors:
                self.note(error)
        self.is_stopped &= not self.is_failed  # a task that failed stops the others

    @classmethod
    def of(cls, earlier: Acknowledged) -> Outcome:
        """Return the outcome of a run that has just begun."""
        return cls(before=earlier.counts.messages, shared_ids=earlier.shared_ids)

    def gather_refused(self, checkpoint: Checkpoint) -> None:
        """Write the messages that nsqd refused in all runs to one file. Raises CheckpointError."""
        path = checkpoint.job.refused_file or str(checkpoint.directory / REFUSED_FILE)
        self.refused = gather(checkpoint.directory, self.returned, Path(path))
        if self.refused:
            self.refused_file = path

    def ended(self, error: Exception | str) -> None:
        """Note what has ended the run."""
        if isinstance(error, Stopped):
            self.is_stopped = True
        else:
            self.is_failed = True
            self.note(str(error))

    def note(self, error: str) -> None:
        """Add one of the first errors."""
        error = error.removeprefix("nsq: ").replace("option skipDamaged", "--skip-damaged")
        if error not in self.errors and len(self.errors) < _MOST_ERRORS:
            self.errors.append(error)
