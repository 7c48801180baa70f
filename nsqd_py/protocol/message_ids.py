"""Message ids: 64 bits of time, node and sequence, shown as 16 hex characters.

Their layout (most significant first) is that
of Go's nsqd, which took it from noeqd and Snowflake: the time in units of 2**20 ns since `TWEPOCH`, 10 bits of node id, 12
bits of sequence. A batch has consecutive ids.
"""

from __future__ import annotations

TWEPOCH = 1_288_834_974_288  # units of 2**20 ns since the Unix epoch
NODE_BITS = 10
SEQUENCE_BITS = 12
IDS_PER_TICK = 1 << SEQUENCE_BITS
TICK_SHIFT = SEQUENCE_BITS + NODE_BITS
TICK_BITS = 20
FIRST_ID_NS = TWEPOCH << TICK_BITS
END_OF_IDS_NS = FIRST_ID_NS + (1 << 63 - TICK_SHIFT + TICK_BITS)  # in the year 2083


def id_time_ns(message_id: int) -> int:
    """Return the latest time at which the id may have been generated, in ns since the epoch."""
    return ((message_id >> TICK_SHIFT) + TWEPOCH + 1 << TICK_BITS) - 1


class GuidFactory:
    """Generates rising ids, also when the clock steps back or ids are used up faster than it advances."""

    __slots__ = ("_end", "_next", "_node", "_tick")

    def __init__(self, node_id: int) -> None:
        self._node = node_id << SEQUENCE_BITS
        self._tick = TWEPOCH - 1  # a clock that was never set must not lead to negative ids
        self._next = self._end = 0  # the next id of this tick, and the one after its last

    @property
    def node_id(self) -> int:
        return self._node >> SEQUENCE_BITS

    @node_id.setter
    def node_id(self, node_id: int) -> None:
        """Give the ids from now on another node. To be called before the first one."""
        self._node = node_id << SEQUENCE_BITS

    def reserve(self, count: int, now_ns: int) -> int:
        """Return the first of `count` consecutive ids, 1 <= count <= IDS_PER_TICK."""
        tick = now_ns >> TICK_BITS
        if tick > self._tick or self._next + count > self._end:
            self._tick = max(tick, self._tick + 1)
            self._next = ((self._tick - TWEPOCH) << TICK_SHIFT) | self._node
            self._end = self._next + IDS_PER_TICK
        first = self._next
        self._next += count
        return first

    def skip_past(self, used_id: int) -> None:
        """Generate only ids above `used_id` from now on; after a restart, that is the highest one found."""
        used_tick = (used_id >> TICK_SHIFT) + TWEPOCH
        if used_tick >= self._tick:
            self._tick = used_tick
            self._next = self._end
