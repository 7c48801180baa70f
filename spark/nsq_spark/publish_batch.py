"""What a TaskPublisher publishes, and the errors that it may get: one table of those that are final."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nsq_spark.archive.payload import Payload
from nsqd_py.batch import SIZE_BYTES
from nsqd_py.client.errors import BadName, NsqdSaid
from nsqd_py.client.publishing.publish import BadBody, Publish

# Errors that a smaller batch may not have; and errors that every nsqd of the cluster would give again.
_TOO_LARGE = frozenset(("E_BAD_BODY", "E_BAD_MESSAGE"))
_FINAL = frozenset(("E_BAD_TOPIC", "E_INVALID", "E_UNAUTHORIZED", "E_AUTH_FIRST", "E_AUTH_DISABLED"))


class NotPublished(Exception):
    """Some messages were not published; the text gives nsqd's address and the reason."""


class GaveUp(NotPublished):
    """No nsqd took the messages within the time limit."""


class Refused(NotPublished):
    """nsqd refuses the messages, and would refuse them again: because of a topic, a secret, or a size."""


@dataclass(slots=True)
class PublishBatch:
    """Messages `begin` to `end` (not included) of a payload. They are sent, and acknowledged, together.

    They are cut out of the payload only if they have to be: that takes longer than to send them.

    defer_ms      0, or the delay of each message: a number, or one for each message of the payload
    origin        what the caller knows the messages by
    unanswered    publishes without an answer, where each message is one
    may_be_there  nsqd may have stored it although it was not acknowledged
    """

    topic: str
    payload: Payload
    begin: int
    end: int
    defer_ms: int | Sequence[int] = 0
    origin: Any = None
    number: int = 0
    deadline_s: float = 0.0
    unanswered: int = 1
    publish: Publish | None = None
    error: Exception | None = None
    may_be_there: bool = False

    @property
    def count(self) -> int:
        return self.end - self.begin

    @property
    def body_bytes(self) -> int:
        return self.payload.bytes_of(self.begin, self.end)

    @property
    def size_bytes(self) -> int:
        """The size of the body of an MPUB of these messages."""
        return self.body_bytes + SIZE_BYTES * (self.count + 1)

    def halves(self) -> Iterator[PublishBatch]:
        middle = self.begin + self.count // 2
        yield replace(self, end=middle, publish=None)
        yield replace(self, begin=middle, publish=None)


@dataclass(slots=True)
class PublishCounts:
    """The messages that nsqd acknowledged.

    possible_duplicates  the largest number of messages that may be stored twice: those that were sent again while it
                         was not known whether nsqd had stored them
    """

    messages: int = 0
    size_bytes: int = 0
    possible_duplicates: int = 0
    topics: dict[str, int] = field(default_factory=dict)

    def add(self, other: PublishCounts) -> None:
        self.messages += other.messages
        self.size_bytes += other.size_bytes
        self.possible_duplicates += other.possible_duplicates
        for topic, count in other.topics.items():
            self.topics[topic] = self.topics.get(topic, 0) + count


class PublishObserver:
    """What the caller of a TaskPublisher may want to know. `look` and `rest` may raise, to end the work."""

    def acknowledged(self, batch: PublishBatch) -> None:
        """nsqd has stored the batch."""

    def too_large(self, batch: PublishBatch, error: Exception) -> None:
        """nsqd takes no message of this size; the batch is a single one. Return to go on without it."""
        raise Refused(f"not published: {error}")

    def stepped(self) -> None:
        """All answers that have come so far are handled."""

    def look(self) -> None:
        """Called often."""

    def rest(self, seconds: float) -> None:
        """Wait at most so long."""
        time.sleep(seconds)


def is_too_large(error: Exception) -> bool:
    """True if nsqd takes no command, or no message, of this size."""
    return isinstance(error, BadBody) or (isinstance(error, NsqdSaid) and error.code in _TOO_LARGE)


def is_final(error: Exception) -> bool:
    """True if every nsqd of the cluster would refuse it again, however small it is made."""
    if isinstance(error, NsqdSaid):
        return error.code in _FINAL
    return isinstance(error, BadName)
