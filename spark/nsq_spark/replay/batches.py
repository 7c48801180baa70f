"""What is on its way: batches, and what their failure means."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nsq_spark.replay.blocks import Block
from nsq_spark.replay.marks import Mark
from nsqd_py.batch import SIZE_BYTES
from nsqd_py.client.errors import BadName, NsqClientError, NsqdSaid
from nsqd_py.client.publishing.publish import BadBody, Publish

_TOO_LARGE = frozenset(("E_BAD_BODY", "E_BAD_MESSAGE"))
_FINAL = frozenset(("E_BAD_TOPIC", "E_INVALID", "E_UNAUTHORIZED", "E_AUTH_FIRST", "E_AUTH_DISABLED"))


@dataclass(slots=True)
class Batch:
    """Messages that are sent together, and acknowledged together: those of a block from `begin` to `end`.

    They are not cut out of it unless they have to be: that takes longer than to send them.

    low         the mark that they come behind: with `last`, the range that is done when they are acknowledged
    deadline_s  until when it is tried
    left        how many acknowledgements are due, where each message is a command
    """

    topic: str
    lane: str
    low: Mark
    block: Block
    begin: int
    end: int
    deadline_s: float
    left: int = 1
    publish: Publish | None = None
    error: NsqClientError | None = None
    may_be_there: bool = False

    @property
    def count(self) -> int:
        return self.end - self.begin

    @property
    def last(self) -> Mark:
        return self.block.marks.at(self.end - 1)

    @property
    def body_bytes(self) -> int:
        return self.block.chunk.payload.bytes_of(self.begin, self.end)

    @property
    def size_bytes(self) -> int:
        """Of the MPUB that they are the body of."""
        return self.body_bytes + SIZE_BYTES * (self.end - self.begin + 1)

    def halves(self) -> Iterator[Batch]:
        middle = self.begin + self.count // 2
        yield replace(self, end=middle, publish=None)
        yield replace(self, low=self.block.marks.at(middle - 1), begin=middle, publish=None)


def is_too_large(error: Exception) -> bool:
    """nsqd takes no command, or no message, of this size."""
    return isinstance(error, BadBody) or (isinstance(error, NsqdSaid) and error.code in _TOO_LARGE)


def is_final(error: Exception) -> bool:
    """It would be refused again, whatever it is made smaller to, and by every nsqd of this cluster."""
    if isinstance(error, NsqdSaid):
        return error.code in _FINAL
    return isinstance(error, BadName)
