"""The limit on the bytes of messages that one nsqd holds in memory.

Three kinds are counted: copies of messages in logs, which can be dropped at any time; messages of ephemeral topics,
which exist only in memory; and the buffers of connections.

Threads
CountedBatch  the collector may free one in any thread, whose account then changes there
MemoryAccount.memory_bytes  the event loop, and a thread that frees a batch: an addition without a call in it is one step
MemoryBudget.ephemeral_bytes, _accounts  as `MemoryAccount.memory_bytes`; each change of the dictionary is one call
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Protocol

from nsqd_py.protocol.batch import Batch

_SLACK = 8  # above the limit, an eighth of it is dropped at once, so that it happens rarely
_OUTPUT_PART = 4  # unsent output may take a quarter of the limit, or
_LEAST_WINDOW_BYTES = 64 * 1024  # this much for each client
_MOST_WINDOW_BYTES = 1024 * 1024
_EPHEMERAL_PART = 2  # ephemeral topics together may take half of the limit; then each has a quota


class MemoryUser(Protocol):
    """An owner of copies of messages in a log."""

    @property
    def memory_bytes(self) -> int: ...

    def shrink(self, most_bytes: int) -> None:
        """Drop the oldest copies until at most `most_bytes` are held."""


@dataclass(slots=True, eq=False, repr=False)
class MemoryBudget:
    """The bytes that all topics and connections of one nsqd hold.

    cached_bytes     copies of messages in logs
    ephemeral_bytes  messages of ephemeral topics: queued, in flight or deferred
    buffer_bytes     partly received requests and unsent output, counted about once a second
    window_bytes     unsent output above which a client gets no more messages
    """

    limit_bytes: int = sys.maxsize
    cached_bytes: int = 0
    ephemeral_bytes: int = 0
    buffer_bytes: int = 0
    window_bytes: int = _MOST_WINDOW_BYTES
    _is_making_room: bool = False
    _users: dict[MemoryUser, None] = field(default_factory=dict)
    _accounts: dict[MemoryAccount, None] = field(default_factory=dict)

    @property
    def memory_bytes(self) -> int:
        """The sum of everything that is counted."""
        return self.cached_bytes + self.ephemeral_bytes + self.buffer_bytes

    def statistics(self) -> dict[str, int]:
        """Return the statistics for `/stats`: bytes of messages and of connections' buffers."""
        return {"message_bytes": self.cached_bytes + self.ephemeral_bytes, "buffer_bytes": self.buffer_bytes}

    # ---- copies of what is in logs

    def note(self, user: MemoryUser, change_bytes: int) -> None:
        """Record a change of a user's bytes. It may be asked to drop copies at once."""
        self.cached_bytes += change_bytes
        if user.memory_bytes:
            self._users[user] = None
        else:
            self._users.pop(user, None)
        if change_bytes > 0 and self.memory_bytes > self.limit_bytes:
            self.make_room()

    def make_room(self) -> None:
        """Drop copies until the bytes are within the limit: the oldest ones of the largest users."""
        if self._is_making_room:  # a user that drops copies calls `note`
            return
        self._is_making_room = True
        most = max(
            0, self.limit_bytes - self.limit_bytes // _SLACK - self.ephemeral_bytes - self.buffer_bytes
        )
        # Ordered once: to search for the largest after each took 2 s with 10,000 topics of equal size.
        for user in sorted(self._users, key=attrgetter("memory_bytes"), reverse=True):
            # The total may rise: a user that drops copies also reports those that it had not reported.
            while self.cached_bytes > most and (before := user.memory_bytes):
                user.shrink(max(0, before - (self.cached_bytes - most)))
                if user.memory_bytes >= before:
                    break
        self._is_making_room = False

    def note_buffers(self, size_bytes: int) -> None:
        """Record the bytes in the buffers of connections."""
        self.buffer_bytes = size_bytes
        if self.memory_bytes > self.limit_bytes:
            self.make_room()

    def set_window(self, client_count: int) -> None:
        """Set `window_bytes` for this number of clients, any of which may stop reading."""
        window_bytes = self.limit_bytes // _OUTPUT_PART // max(1, client_count)
        self.window_bytes = min(max(window_bytes, _LEAST_WINDOW_BYTES), _MOST_WINDOW_BYTES)

    # ---- ephemeral topics

    def account(self) -> MemoryAccount:
        """Return an account for one ephemeral topic."""
        return MemoryAccount(self)

    def count_ephemeral(self, account: MemoryAccount, change_bytes: int) -> None:
        """Record a change of an account's bytes."""
        self.ephemeral_bytes += change_bytes
        if account.memory_bytes:
            self._accounts[account] = None
        else:
            self._accounts.pop(account, None)
        if change_bytes > 0 and self.memory_bytes > self.limit_bytes:
            self.make_room()

    def quota_bytes(self) -> int | None:
        """Return how much each ephemeral topic may hold, if together they hold too much; else None."""
        most_bytes = self.limit_bytes // _EPHEMERAL_PART
        if self.ephemeral_bytes >= most_bytes:
            return most_bytes // max(1, len(self._accounts))
        return None


class MemoryAccount:
    """The bytes of one ephemeral topic's messages. They count until nothing refers to them, also while in flight."""

    __slots__ = ("_budget", "memory_bytes")

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self.memory_bytes = 0

    def change(self, size_bytes: int) -> None:
        """Add this many bytes, which may be negative."""
        self.memory_bytes += size_bytes
        self._budget.count_ephemeral(self, size_bytes)

    def most_bytes(self) -> int | None:
        """Return how much this topic may hold now; None while there is room for all."""
        quota = self._budget.quota_bytes()
        if quota is not None and self.memory_bytes >= quota:
            return quota
        return None


class CountedBatch(Batch):
    """A batch of an ephemeral topic; its account counts it as long as the object exists."""

    __slots__ = ("_counted_bytes", "_account")

    def __init__(self, batch: Batch, account: MemoryAccount) -> None:
        super().__init__(
            batch.first_seq,
            batch.base_id,
            batch.timestamp_ns,
            batch.due_ns,
            batch.count,
            batch.stride,
            batch.body,
        )
        self._account = account
        self._counted_bytes = self.memory_bytes
        account.change(self._counted_bytes)

    def __del__(self) -> None:
        self._account.change(-self._counted_bytes)
