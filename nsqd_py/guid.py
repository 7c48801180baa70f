"""Message ids: 64 bits of time, node and sequence, shown as 16 hex characters.

Layout (most significant first), as in Go's nsqd, which took it from noeqd and Snowflake: the time in
units of 2**20 ns since `TWEPOCH`, 10 bits of node id, 12 bits of sequence. A batch gets consecutive ids.
"""

from __future__ import annotations

TWEPOCH = 1_288_834_974_288  # units of 2**20 ns since the Unix epoch
NODE_BITS = 10
SEQUENCE_BITS = 12
IDS_PER_TICK = 1 << SEQUENCE_BITS
_TICK_SHIFT = SEQUENCE_BITS + NODE_BITS
_TICK_BITS = 20
FIRST_ID_NS = TWEPOCH << _TICK_BITS
END_OF_IDS_NS = FIRST_ID_NS + (1 << 63 - _TICK_SHIFT + _TICK_BITS)  # in the year 2083


def id_time_ns(message_id: int) -> int:
    """Return the latest time at which the id may have been generated, in ns since the epoch."""
    return ((message_id >> _TICK_SHIFT) + TWEPOCH + 1 << _TICK_BITS) - 1


class GuidFactory:
    """Generates rising ids, also when the clock steps back or ids are used up faster than it advances."""

    __slots__ = ("_next", "_node", "_tick")

    def __init__(self, node_id: int) -> None:
        self._node = node_id << SEQUENCE_BITS
        self._tick = 0
        self._next = IDS_PER_TICK

    def reserve(self, count: int, now_ns: int) -> int:
        """Return the first of `count` consecutive ids, 1 <= count <= IDS_PER_TICK."""
        tick = max(now_ns >> _TICK_BITS, TWEPOCH)  # a clock that was never set must not lead to negative ids
        if tick > self._tick:
            self._tick = tick
            self._next = 0
        elif self._next + count > IDS_PER_TICK:
            self._tick += 1
            self._next = 0
        first = ((self._tick - TWEPOCH) << _TICK_SHIFT) | self._node | self._next
        self._next += count
        return first

    def skip_past(self, used_id: int) -> None:
        """Generate only ids above `used_id` from now on; after a restart, that is the highest one found."""
        used_tick = (used_id >> _TICK_SHIFT) + TWEPOCH
        if used_tick >= self._tick:
            self._tick = used_tick
            self._next = IDS_PER_TICK
