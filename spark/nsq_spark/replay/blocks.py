"""What readers hand on and sinks take: messages of one topic with their marks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nsq_spark.archive.chunk import Chunk
from nsq_spark.archive.columns import Numbers
from nsq_spark.replay.marks import Mark, Marks


@dataclass(frozen=True, slots=True)
class Block:
    """At least one message, in the order in which they are to be sent."""

    chunk: Chunk
    marks: Marks

    @property
    def count(self) -> int:
        return self.chunk.count

    @property
    def topic(self) -> str:
        return self.chunk.topic

    @property
    def times_ns(self) -> Numbers | None:
        return self.chunk.timestamps_ns

    @property
    def last(self) -> Mark:
        return self.marks.at(self.count - 1)

    def filter(self, mask: Any) -> Block:
        if mask.all():
            return self
        return Block(self.chunk.filter(mask), self.marks.part(mask))

    def slice(self, low: int, high: int) -> Block:
        if low <= 0 and high >= self.count:
            return self
        return Block(self.chunk.slice(low, high), self.marks.part(slice(low, high)))
