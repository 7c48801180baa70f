"""The bytes of messages that one nsqd holds in memory, and what is let go when they are too many.

Three kinds are counted: copies of what is in a log, which can be let go at any time; messages of ephemeral topics,
which are nowhere else; and the buffers of connections.
"""

from __future__ import annotations

import sys
from typing import Protocol

from nsqd_py.batch import Batch

_SLACK = 8  # when there is too much, this part of the limit is let go at once, so that it happens seldom
_OUTPUT_SHARE = 4  # what waits for consumers may be this part of the limit, or
_LEAST_ROOM_BYTES = 64 * 1024  # for each client this much
_MOST_ROOM_BYTES = 1024 * 1024
_EPHEMERAL_SHARE = 2  # ephemeral topics together may take this part of the limit; their shares go on top


class Holder(Protocol):
    """Has copies of what is in a log."""

    @property
    def held_bytes(self) -> int: ...

    def let_go(self, most_bytes: int) -> None:
        """Forget the oldest until at most `most_bytes` are held."""


class MemoryBudget:
    """What all topics and connections of one nsqd hold, in bytes.

    cached_bytes     copies of what is in logs
    ephemeral_bytes  messages of ephemeral topics: queued, in flight or deferred
    buffer_bytes     what connections have received in part or have to send, counted about once a second
    room_bytes       output at which a client gets no more messages until its socket took it
    """

    __slots__ = (
        "_holders", "_is_making_room", "_ledgers", "buffer_bytes", "cached_bytes", "ephemeral_bytes", "limit_bytes",
        "room_bytes",
    )  # fmt: skip

    def __init__(self, limit_bytes: int = sys.maxsize) -> None:
        self.limit_bytes = limit_bytes
        self.cached_bytes = 0
        self.ephemeral_bytes = 0
        self.buffer_bytes = 0
        self.room_bytes = _MOST_ROOM_BYTES
        self._is_making_room = False
        self._holders: dict[Holder, None] = {}
        self._ledgers: dict[Ledger, None] = {}

    @property
    def held_bytes(self) -> int:
        """All that is counted."""
        return self.cached_bytes + self.ephemeral_bytes + self.buffer_bytes

    def figures(self) -> dict[str, int]:
        """For `/stats`: bytes that messages take, and connections' buffers."""
        return {
            "message_bytes": self.cached_bytes + self.ephemeral_bytes,
            "buffer_bytes": self.buffer_bytes,
        }

    # ---- copies of what is in logs

    def note(self, holder: Holder, change_bytes: int) -> None:
        """The holder has this much more than when it last said so, or less. It may be told to let go at once."""
        self.cached_bytes += change_bytes
        if holder.held_bytes:
            self._holders[holder] = None
        else:
            self._holders.pop(holder, None)
        if change_bytes > 0 and self.held_bytes > self.limit_bytes:
            self.make_room()

    def make_room(self) -> None:
        """Let go of copies until all fits: of those who hold most, the oldest."""
        if self._is_making_room:  # a holder that lets go says what it has
            return
        self._is_making_room = True
        most = max(0, self.limit_bytes - self.limit_bytes // _SLACK - self.ephemeral_bytes - self.buffer_bytes)
        while self.cached_bytes > most and self._holders:
            holder = max(self._holders, key=_held_bytes)
            before = self.cached_bytes
            holder.let_go(max(0, holder.held_bytes - (before - most)))
            if self.cached_bytes >= before:
                break
        self._is_making_room = False

    def note_buffers(self, size_bytes: int) -> None:
        """Connections have this much in their buffers."""
        self.buffer_bytes = size_bytes
        if self.held_bytes > self.limit_bytes:
            self.make_room()

    def share_room(self, client_count: int) -> None:
        """There are so many clients, any of which may stop reading."""
        share = self.limit_bytes // _OUTPUT_SHARE // max(1, client_count)
        self.room_bytes = min(max(share, _LEAST_ROOM_BYTES), _MOST_ROOM_BYTES)

    # ---- ephemeral topics

    def ledger(self) -> Ledger:
        """A ledger for one ephemeral topic."""
        return Ledger(self)

    def count_ephemeral(self, ledger: Ledger, change_bytes: int) -> None:
        """A ledger has this much more, or less."""
        self.ephemeral_bytes += change_bytes
        if ledger.held_bytes:
            self._ledgers[ledger] = None
        else:
            self._ledgers.pop(ledger, None)
        if change_bytes > 0 and self.held_bytes > self.limit_bytes:
            self.make_room()

    def share_bytes(self) -> int:
        """How much an ephemeral topic may hold when together they hold too much."""
        return self._most_ephemeral // max(1, len(self._ledgers))

    @property
    def _most_ephemeral(self) -> int:
        return self.limit_bytes // _EPHEMERAL_SHARE

    @property
    def has_too_many_ephemeral(self) -> bool:
        return self.ephemeral_bytes >= self._most_ephemeral


class Ledger:
    """The bytes of one ephemeral topic's messages, until nobody refers to them: a consumer may have them in flight."""

    __slots__ = ("_budget", "held_bytes")

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self.held_bytes = 0

    def change(self, size_bytes: int) -> None:
        """Count this much more, or less."""
        self.held_bytes += size_bytes
        self._budget.count_ephemeral(self, size_bytes)

    def most_bytes(self) -> int | None:
        """How much this topic may hold now; None while there is room for all."""
        budget = self._budget
        if not budget.has_too_many_ephemeral:
            return None
        share = budget.share_bytes()
        return share if self.held_bytes >= share else None


class CountedBatch(Batch):
    """A batch of an ephemeral topic: its ledger counts it for as long as it exists, whoever holds it."""

    __slots__ = ("_counted_bytes", "_ledger")

    def __init__(self, batch: Batch, ledger: Ledger) -> None:
        super().__init__(
            batch.first_seq, batch.base_id, batch.timestamp_ns, batch.due_ns, batch.count, batch.stride, batch.body
        )
        self._ledger = ledger
        self._counted_bytes = self.memory_bytes
        ledger.change(self._counted_bytes)

    def __del__(self) -> None:
        self._ledger.change(-self._counted_bytes)


def _held_bytes(holder: Holder) -> int:
    return holder.held_bytes
