"""The offset of a query on a topic, and how much the next batch reads. Pure.

An offset has the sequence numbers that its batch reads of each nsqd; the next batch begins where it ends. So Spark
reads the same again after a crash, whatever was published in the meantime.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class BadOffset(ValueError):
    """A checkpoint that another version wrote."""


VERSION = 2


class NumberRange(NamedTuple):
    """Sequence numbers from `low` to `high` (not included) of one nsqd, in the log of this epoch."""

    low: int
    high: int
    epoch: int

    @property
    def messages(self) -> int:
        return self.high - self.low

    def cut(self, parts: int) -> list[NumberRange]:
        """Return equal parts, none of which is empty."""
        parts = max(1, min(parts, self.messages))
        bounds = [self.low + self.messages * part // parts for part in range(parts + 1)]
        return [NumberRange(low, high, self.epoch) for low, high in zip(bounds, bounds[1:], strict=False)]


@dataclass(frozen=True)
class TopicOffset:
    """Sequence numbers by nsqd, whose name is its HTTP address."""

    stretches: Mapping[str, NumberRange] = field(default_factory=dict)

    @property
    def ends(self) -> dict[str, NumberRange]:
        """The place in each nsqd that is read next."""
        return {nsqd: stretch._replace(low=stretch.high) for nsqd, stretch in self.stretches.items()}

    def to_json(self) -> dict[str, Any]:
        """Return always the same for the same offset."""
        return {"version": VERSION, "topic": {nsqd: list(self.stretches[nsqd]) for nsqd in sorted(self.stretches)}}

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> TopicOffset:
        """Raises BadOffset."""
        if document.get("version") != VERSION or "topic" not in document:
            raise BadOffset("nsq: the checkpoint is of a stream of something else, or of another version")
        try:
            return cls({nsqd: NumberRange(*map(int, numbers)) for nsqd, numbers in document["topic"].items()})
        except (AttributeError, TypeError, ValueError) as error:
            raise BadOffset(f"nsq: the checkpoint has an offset that cannot be read: {error}") from error


def next_batch(starts: Mapping[str, NumberRange], ends: Mapping[str, int], most: int | None) -> TopicOffset:
    """Return what the next batch reads: all up to the ends, or `most` messages, shared out among the nsqds."""
    there = {nsqd: max(0, ends.get(nsqd, start.low) - start.low) for nsqd, start in starts.items()}
    taken = there if most is None else shares(there, most)
    return TopicOffset({nsqd: start._replace(high=start.low + taken[nsqd]) for nsqd, start in starts.items()})


def shares(there: Mapping[str, int], most: int) -> dict[str, int]:
    """Share out at most `most` messages: each nsqd gets the same, and what one does not need goes to the others."""
    found: dict[str, int] = {}
    left = most
    for number, nsqd in enumerate(sorted(there, key=lambda nsqd: (there[nsqd], nsqd))):
        found[nsqd] = min(there[nsqd], -(-left // (len(there) - number)))
        left -= found[nsqd]
    return found
