"""How many messages each connection is asked for: max_in_flight, spread evenly; below one each, in turn.

No clock and no I/O (https://nsq.io/clients/building_client_libraries.html, "RDY State"). RDY is a cap on what nsqd
has in flight to the connection, and does not count down: only changes are sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol


class Asked(Protocol):
    """What is known of a connection here; `ask_for` changes `rdy` and `rdy_since_s`."""

    @property
    def rdy(self) -> int: ...
    @property
    def max_rdy(self) -> int: ...
    @property
    def rdy_since_s(self) -> float: ...
    @property
    def last_message_s(self) -> float: ...

    def ask_for(self, rdy: int, now_s: float) -> None: ...


def even_shares(total: int, caps: Sequence[int]) -> list[int]:
    """`total` in shares that differ by one at most, but none above its cap; what it leaves goes to the others."""
    shares = [0] * len(caps)
    by_cap = sorted(range(len(caps)), key=caps.__getitem__)
    for rank, index in enumerate(by_cap):
        shares[index] = min(caps[index], total // (len(caps) - rank))
        total -= shares[index]
    return shares


class RdySpread:
    """Shares `most` messages out among the connections. The sum of their RDY never exceeds it.

    With fewer messages than connections, `most` of them have RDY 1. A turn ends when nothing came for `idle_s`, or
    after `turn_s` whatever came, and the next one is that of the connection that had none for the longest time.
    """

    def __init__(self, idle_s: float, turn_s: float) -> None:
        self._idle_s = idle_s
        self._turn_s = turn_s
        self._queue: list[Asked] = []  # who waits longest is first
        self._most = 0

    @property
    def has_turns(self) -> bool:
        """There are connections that have to wait for their turn."""
        return 0 < self._most < len(self._queue)

    def add(self, connection: Asked) -> None:
        """One more; `share` has to follow."""
        self._queue.append(connection)

    def remove(self, connection: Asked) -> None:
        """One less; `share` has to follow."""
        self._queue.remove(connection)

    def share(self, most: int, now_s: float) -> None:
        """Ask for `most` messages at a time, of all connections together."""
        self._most = most
        if self.has_turns:
            self._seat(most, now_s)
        else:
            targets = even_shares(most, [connection.max_rdy for connection in self._queue])
            _ask(zip(self._queue, targets, strict=True), now_s)

    def change_turns(self, now_s: float) -> None:
        """End the turns that are over, and give their RDY to others."""
        if not self.has_turns:
            return
        over = [connection for connection in self._queue if connection.rdy and self._is_over(connection, now_s)]
        for connection in over:
            connection.ask_for(0, now_s)
            self._queue.remove(connection)
            self._queue.append(connection)
        self._seat(self._most, now_s)

    def _is_over(self, connection: Asked, now_s: float) -> bool:
        idle_since_s = max(connection.last_message_s, connection.rdy_since_s)
        return now_s - idle_since_s > self._idle_s or now_s - connection.rdy_since_s > self._turn_s

    def _seat(self, seats: int, now_s: float) -> None:
        """RDY 1 for `seats` connections: those that have their turn, then those that wait longest."""
        seated = [connection for connection in self._queue if connection.rdy][:seats]
        waiting = [connection for connection in self._queue if connection not in seated]
        chosen = waiting[: seats - len(seated)]
        _ask([(connection, 0) for connection in waiting[len(chosen) :]], now_s)
        _ask([(connection, 1) for connection in seated + chosen], now_s)
        self._queue = [*waiting[len(chosen) :], *seated, *chosen]


def _ask(targets: Iterable[tuple[Asked, int]], now_s: float) -> None:
    """Lower before raising: at no time is more asked for than the sum of before or of after."""
    changes = [(connection, rdy) for connection, rdy in targets if rdy != connection.rdy]
    for connection, rdy in sorted(changes, key=lambda change: change[1] > change[0].rdy):
        connection.ask_for(rdy, now_s)
