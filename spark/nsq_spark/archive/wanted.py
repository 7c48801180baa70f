"""The messages that are read: chosen by topic and by time, which readers know before they look at bodies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from nsq_spark.archive.columns import Numbers
from nsq_spark.archive.damage import ArchiveError
from nsqd_py.settings.regex import BadExpression, compiled


@dataclass(frozen=True, slots=True)
class Wanted:
    """Topics by name or by pattern (a regular expression of RE2 that matches anywhere, as in Go); none: all topics.

    start_ns, end_ns  published at or after, and before, in ns since the epoch. A message whose time nobody knows
                      is not in any range; files of `lines` are chosen by the hours in their names.
    """

    topics: frozenset[str] | None = None
    topic_pattern: str | None = None
    start_ns: int | None = None
    end_ns: int | None = None

    @property
    def has_range(self) -> bool:
        return self.start_ns is not None or self.end_ns is not None

    @property
    def has_topics(self) -> bool:
        """True if only some topics are wanted."""
        return self.topics is not None or self.topic_pattern is not None

    def has_topic(self, topic: str) -> bool:
        """Raises ArchiveError for a pattern that is none."""
        if not self.has_topics:
            return True
        if self.topics is not None and topic in self.topics:
            return True
        return self.topic_pattern is not None and _search(self.topic_pattern)(topic) is not None

    def overlaps(self, first_ns: int, last_ns: int) -> bool:
        """True if a message published between these two, both included, may be wanted."""
        if self.start_ns is not None and last_ns < self.start_ns:
            return False
        return self.end_ns is None or first_ns < self.end_ns

    def in_range(self, times_ns: Numbers) -> Numbers:
        """Return a mask of the times that are wanted."""
        mask = np.ones(len(times_ns), dtype=bool)
        if self.start_ns is not None:
            mask &= times_ns >= self.start_ns
        if self.end_ns is not None:
            mask &= times_ns < self.end_ns
        return mask


@lru_cache(maxsize=16)
def _search(pattern: str) -> Callable[[str], object]:
    try:
        found: Callable[[str], object] = compiled(pattern).search
    except BadExpression as error:
        raise ArchiveError(f"the topic pattern {pattern!r} is no regular expression: {error}") from None
    return found
