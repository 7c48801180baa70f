"""What came of a replay."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from nsq_spark.archive.damage import Damage, Skipped
from nsq_spark.replay.progress import Counts
from nsq_spark.replay.results import TaskResult

ALL_SENT, FAILED, PARTLY_SENT = 0, 1, 3
_MOST_ERRORS = 10


@dataclass(slots=True)
class Outcome:
    """Of all tasks.

    counts               read, matched, sent, failed messages, and bytes
    seconds              from the first task's start
    damage               by path, what was passed over
    topics               messages sent, by the topic that they were sent to
    possible_duplicates  messages that may have been sent more than once: at most so many
    errors               why it ended early, and what nsqd said of messages that it refused
    is_stopped           it was asked to end early
    is_empty             no message matched, which is a failure
    before               messages that earlier runs of the same checkpoint had sent
    """

    counts: Counts = field(default_factory=Counts)
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
        """Damaged records."""
        return sum(found.records for found in self.damage.values())

    @property
    def is_complete(self) -> bool:
        """All that was to be sent is, and can never be more."""
        return not (self.is_stopped or self.is_failed or self.counts.failed)

    @property
    def has_matched(self) -> bool:
        """Whether there was any message to be sent, in this run or an earlier one."""
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
