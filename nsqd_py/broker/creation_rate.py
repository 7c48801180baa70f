"""Refusing topics and channels from clients that create many."""

from __future__ import annotations

from nsqd_py.errors import TooManyNewTopics
from nsqd_py.net.addresses import host_of
from nsqd_py.pqueues.alarms import Clock
from nsqd_py.settings.durations import SECOND_NS

# A client may create as many topics and channels at once as in this time.
_BURST_S = 100
_MOST_ADDRESSES = 4096  # that the rate remembers


class CreationRate:
    """Limits how many topics and channels the clients of each address create per second.

    Each topic costs memory and a file, and `--max-topics` is for all clients: one that uses it up stops the others.
    """

    def __init__(self, most_per_s: int, clock: Clock) -> None:
        """`most_per_s` 0 means no limit; `clock` returns ns."""
        self._most_per_s = most_per_s
        self._clock = clock
        # The next turn of each address; in the past, as far as turns are left over.
        self._next_ns: dict[str, int] = {}

    def take(self, peer: str) -> None:
        """Count a topic or channel that a client creates. Raises TooManyNewTopics."""
        if not self._most_per_s:
            return
        address = host_of(peer)
        now_ns = self._clock()
        oldest_ns = now_ns - _BURST_S * SECOND_NS
        turn_ns = max(self._next_ns.get(address, 0), oldest_ns)
        if turn_ns > now_ns:
            raise TooManyNewTopics(self._most_per_s)
        if len(self._next_ns) >= _MOST_ADDRESSES:
            self._next_ns = {name: ns for name, ns in self._next_ns.items() if ns > oldest_ns}
            if len(self._next_ns) >= _MOST_ADDRESSES:
                del self._next_ns[min(self._next_ns, key=self._next_ns.__getitem__)]
        self._next_ns[address] = turn_ns + SECOND_NS // self._most_per_s
