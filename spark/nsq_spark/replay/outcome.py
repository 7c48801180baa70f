"""The outcome of a replay or a dry run, over all tasks and runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from nsq_spark.archive.splits import Skipped
from nsq_spark.replay.checkpoint import Checkpoint
from nsq_spark.replay.job import REFUSED_FILE, Stopped
from nsq_spark.replay.ledger import Acknowledged, Totals
from nsq_spark.replay.refused import gather
from nsq_spark.replay.task import TaskResult

ALL_SENT, FAILED, PARTLY_SENT = 0, 1, 3
WORDS = {ALL_SENT: "sent", FAILED: "failed", PARTLY_SENT: "partly sent"}
_MOST_ERRORS = 10


@dataclass(slots=True)
class TopicCount:
    """The messages of one topic; times are None if they are not known."""

    count: int = 0
    size_bytes: int = 0
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
    """The result of a replay, over all tasks.

    counts               messages acknowledged and refused, and bytes
    refused              messages that nsqd refused in all runs of the checkpoint, which are in the file `refused_file`
    returned             the lines of those that tasks have refused which do not see the checkpoint
    shared_ids           ids that messages with different bodies have, which --dedupe=id has sent
    matched              messages that were to be sent
    damage               what was passed over, by path
    topics               messages sent, by the topic that they were published to
    look                 what a dry run finds
    possible_duplicates  the largest number of messages that may be stored more than once
    unknown_duplicates   why the logs of nsqd do not say how many of them are
    errors               why it ended early, and the errors of messages that nsqd refused
    is_stopped           the user stopped it
    is_empty             no message matched, and that is a failure
    before               messages that earlier runs of the checkpoint sent
    """

    counts: Totals = field(default_factory=Totals)
    matched: int = 0
    seconds: float = 0.0
    damage: dict[str, Skipped] = field(default_factory=dict)
    topics: Counter[str] = field(default_factory=Counter)
    look: DryRun | None = None
    possible_duplicates: int = 0
    unknown_duplicates: str = ""
    refused: int = 0
    refused_file: str = ""
    shared_ids: int = 0
    returned: list[bytes] = field(default_factory=list)
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
        return PARTLY_SENT if self.counts.sent or self.before else FAILED

    def add(self, results: Iterable[TaskResult]) -> None:
        for result in results:
            counts = result.counts
            self.counts.sent += counts.messages
            self.counts.sent_bytes += counts.size_bytes
            self.counts.failed += result.failed
            self.matched += result.matched
            self.shared_ids += result.shared_ids
            self.topics.update(counts.topics)
            self.possible_duplicates += counts.possible_duplicates
            self.returned += result.refused
            self.is_stopped |= result.is_stopped
            for error in result.failures:
                self.failed(error, is_end=False)
            if result.error:
                self.failed(result.error)
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

    def ended(self, error: Exception) -> None:
        """Note what has ended the run."""
        if isinstance(error, Stopped):
            self.is_stopped = True
        else:
            self.failed(str(error))

    def failed(self, error: str, *, is_end: bool = True) -> None:
        self.is_failed |= is_end
        error = error.removeprefix("nsq: ").replace("option skipDamaged", "--skip-damaged")
        if error not in self.errors and len(self.errors) < _MOST_ERRORS:
            self.errors.append(error)
