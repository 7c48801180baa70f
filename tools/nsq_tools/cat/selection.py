"""The messages that nsq-cat shows, by topic and time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from nsq_tools.cat.options import CatOptions
from nsqd_py.diskqueue.messages import Messages
from nsqd_py.settings.tools import times_of


@dataclass(frozen=True, slots=True)
class Selection:
    """Topics by name, none for all; and a range of time in ns since the epoch, without its end.

    Neither a topic nor a time that a file does not have is in a selection.
    """

    topics: frozenset[str] = frozenset()
    start_ns: int | None = None
    end_ns: int | None = None

    @property
    def has_range(self) -> bool:
        return self.start_ns is not None or self.end_ns is not None

    def has_topic(self, topic: str) -> bool:
        return not self.topics or topic in self.topics

    def overlaps(self, first_ns: int, last_ns: int) -> bool:
        """True if a message published between these two, both included, may be in the range."""
        is_early_enough = self.end_ns is None or first_ns < self.end_ns
        return is_early_enough and (self.start_ns is None or last_ns >= self.start_ns)

    def of(self, messages: Messages) -> Messages:
        """Return the selected messages of a batch."""
        if not self.has_topic(messages.topic):
            return taken(messages, [])
        if not self.has_range:
            return messages
        times_ns = messages.timestamps_ns
        return taken(
            messages,
            [index for index, time_ns in enumerate(times_ns) if time_ns and self.overlaps(time_ns, time_ns)],
        )


def taken(messages: Messages, indexes: Sequence[int]) -> Messages:
    """Return the messages of a batch at these indexes, without due times."""
    return replace(
        messages,
        timestamps_ns=[messages.timestamps_ns[index] for index in indexes],
        attempts=[messages.attempts[index] for index in indexes],
        ids=[messages.ids[index] for index in indexes],
        bodies=[messages.bodies[index] for index in indexes],
        due_ns=None,
    )


def selection_of(options: CatOptions) -> Selection:
    """Return the selection of the flags. Reads the clock, for -2h. Raises BadOptions."""
    now_ns = time.time_ns()
    start_ns, end_ns = times_of(options.start, options.end, now_ns)
    return Selection(frozenset(options.topic), start_ns, end_ns)
