"""What is on its way: batches, and what their failure means."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nsqd_py.batch import SIZE_BYTES
from nsqd_py.client.errors import BadName, NsqClientError, NsqdSaid
from nsqd_py.client.publishing.failures import BadBody
from nsqd_py.client.publishing.publish import Publish
from spark.replay.blocks import Block
from spark.replay.marks import Mark

_TOO_LARGE = frozenset(("E_BAD_BODY", "E_BAD_MESSAGE"))
_FINAL = frozenset(("E_BAD_TOPIC", "E_INVALID", "E_UNAUTHORIZED", "E_AUTH_FIRST", "E_AUTH_DISABLED"))


@dataclass(slots=True)
class Batch:
    """Messages that are sent together, and acknowledged together.

    low         the mark that they come behind: with `block.last`, the range that is done when they are acknowledged
    deadline_s  until when it is tried
    left        how many acknowledgements are due, where each message is a command
    """

    topic: str
    lane: str
    low: Mark
    block: Block
    deadline_s: float
    left: int = 1
    publish: Publish | None = None
    error: NsqClientError | None = None
    may_be_there: bool = False

    @property
    def size_bytes(self) -> int:
        return self.block.chunk.size_bytes + SIZE_BYTES * self.block.count

    def halves(self) -> Iterator[Batch]:
        middle = self.block.count // 2
        first, second = self.block.slice(0, middle), self.block.slice(middle, self.block.count)
        yield Batch(self.topic, self.lane, self.low, first, self.deadline_s, may_be_there=self.may_be_there)
        yield Batch(self.topic, self.lane, first.last, second, self.deadline_s, may_be_there=self.may_be_there)


def is_too_large(error: NsqClientError) -> bool:
    """nsqd takes no command, or no message, of this size."""
    return isinstance(error, BadBody) or (isinstance(error, NsqdSaid) and error.code in _TOO_LARGE)


def is_final(error: NsqClientError) -> bool:
    """It would be refused again, whatever it is made smaller to, and by every nsqd of this cluster."""
    if isinstance(error, NsqdSaid):
        return error.code in _FINAL
    return isinstance(error, BadName)


def fitting(block: Block, most_messages: int, most_bytes: int | None) -> int:
    """How many of the first messages of a block go into a batch; at least one."""
    count = min(most_messages, block.count)
    if most_bytes is None or block.chunk.size_bytes + SIZE_BYTES * (block.count + 1) <= most_bytes:
        return count
    ends = np.cumsum(block.chunk.payload.sizes[:count] + SIZE_BYTES) + SIZE_BYTES
    return max(1, int(np.searchsorted(ends, most_bytes, "right")))
