"""Some messages of a batch that go to the same destination, as one publish."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nsqd_py.client.message import MessageBatch

# Well below nsqd's --max-body-size, which is 5 MB unless it was changed.
MAX_PORTION_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, eq=False)
class Portion:
    """They are published together, and finished or requeued together.

    topic    where they go
    began_s  when they came (monotonic)
    tried    destinations that did not take them
    """

    batch: MessageBatch
    topic: str
    ids: Sequence[bytes]
    bodies: Sequence[bytes]
    began_s: float
    tried: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, start: int, end: int) -> Portion:
        return Portion(self.batch, self.topic, self.ids[start:end], self.bodies[start:end], self.began_s, self.tried)

    def halves(self) -> tuple[Portion, Portion]:
        middle = len(self) // 2
        return self.part(0, middle), self.part(middle, len(self))

    def without(self, destination: str) -> Portion:
        """The same, of which is known that this destination did not take them."""
        return Portion(self.batch, self.topic, self.ids, self.bodies, self.began_s, self.tried | {destination})

    def publishable(self) -> Iterator[Portion]:
        """Cut where it would be too large for one publish."""
        start = size_bytes = 0
        for place, body in enumerate(self.bodies):
            if size_bytes + len(body) > MAX_PORTION_BYTES and place > start:
                yield self.part(start, place)
                start, size_bytes = place, 0
            size_bytes += len(body)
        yield self.part(start, len(self)) if start else self
