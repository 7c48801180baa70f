"""The number of messages that a consumer requests: RDY for each connection, and back-off after failures. No I/O, no clock.

Back-off is a state machine (https://nsq.io/clients/building_client_libraries.html, "Backoff"): a consumer whose
messages fail requests none for a while, then one, and continues if that one succeeds. Only one result of each wait
counts, so that a hundred messages that fail together are one failure.

RDY ("RDY State" there) limits what nsqd has in flight to the connection, and does not count down: only changes are
sent. `RdySpread` shares max_in_flight evenly; if it is below the number of connections, they take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

# The wait in seconds at a level (1, 2, 3...).
Duration = Callable[[int], float]

_LARGEST_EXPONENT = 62


class Phase(Enum):
    """The limit that back-off sets: none, no messages, or one."""

    FLOWING = "flowing"
    WAITING = "waiting"
    PROBING = "probing"


def exponential(multiplier_s: float) -> Duration:
    """Return go-nsq's `exponential`: the multiplier times 2 to the power of the level."""
    return lambda level: multiplier_s * 2.0 ** min(level, _LARGEST_EXPONENT)


def full_jitter(multiplier_s: float, chance: Callable[[], float]) -> Duration:
    """Return go-nsq's `full_jitter`: a random part of the exponential duration. `chance` returns 0 to 1."""
    longest_s = exponential(multiplier_s)
    return lambda level: longest_s(level) * chance()


class BackoffState(NamedTuple):
    """`phase` is `flowing`, `waiting` (no messages) or `probing` (one); `remaining_s` is the rest of the wait."""

    phase: str
    level: int
    remaining_s: float


class ConsumerBackoff:
    """The level and phase of back-off. A level rises only while its wait is at most `most_s`, as in go-nsq.

    Unlike in go-nsq, the first level always exists, with a wait of at most `most_s`. 0 for `most_s` disables back-off.
    """

    def __init__(self, duration: Duration, most_s: float) -> None:
        self._duration = duration
        self._most_s = most_s
        self.level = 0
        self.phase = Phase.FLOWING
        self.wait_s = 0.0
        self.until_s: float | None = None

    def failed(self, now_s: float) -> bool:
        """Count a failed message. Return True if the phase changed, or a new wait has begun."""
        if self.phase is Phase.WAITING or self._most_s <= 0:
            return False
        if self.level == 0 or self._duration(self.level + 1) <= self._most_s:
            self.level += 1
        return self._wait(now_s)

    def continued(self, now_s: float) -> bool:
        """Count a message that was requeued on purpose: neither a success nor a failure. Returns as `failed`."""
        return self.phase is Phase.PROBING and self._wait(now_s)

    def succeeded(self, now_s: float) -> bool:
        """Count a finished message. Returns as `failed`."""
        if self.phase is not Phase.PROBING:
            return False
        self.level -= 1
        if self.level:
            return self._wait(now_s)
        self.phase = Phase.FLOWING
        self.wait_s = 0.0
        return True

    def expire(self, now_s: float) -> bool:
        """Return True if the wait is over, and one message may be requested."""
        if self.until_s is None or now_s < self.until_s:
            return False
        self.until_s = None
        self.phase = Phase.PROBING
        return True

    def _wait(self, now_s: float) -> bool:
        self.phase = Phase.WAITING
        self.wait_s = min(self._duration(self.level), self._most_s)
        self.until_s = now_s + self.wait_s
        return True

    def most(self, max_in_flight: int) -> int:
        """Return how many messages may be requested now."""
        return {Phase.FLOWING: max_in_flight, Phase.WAITING: 0, Phase.PROBING: min(1, max_in_flight)}[
            self.phase
        ]

    def state(self, now_s: float) -> BackoffState:
        if self.until_s is None:
            remaining_s = 0.0
        else:
            remaining_s = max(0.0, self.until_s - now_s)
        return BackoffState(self.phase.value, self.level, remaining_s)

    def __str__(self) -> str:
        return {
            Phase.FLOWING: "back-off is over",
            Phase.WAITING: f"back-off, level {self.level}: no messages for {self.wait_s:g} s",
            Phase.PROBING: f"back-off, level {self.level}: asking for one message",
        }[self.phase]


class Asked(Protocol):
    """A connection to share RDY with. `ask_for` sets `rdy` and `rdy_since_s`."""

    rdy: int
    max_rdy: int
    rdy_since_s: float
    last_message_s: float

    def ask_for(self, rdy: int, now_s: float) -> None: ...


def even_quotas(total: int, caps: Sequence[int]) -> list[int]:
    """Return quotas of `total` that differ by at most one, but are not above their caps.

    Others get what a cap leaves.
    """
    quotas = [0] * len(caps)
    by_cap = sorted(range(len(caps)), key=caps.__getitem__)
    for rank, index in enumerate(by_cap):
        fair = total // (len(caps) - rank)
        quotas[index] = min(caps[index], fair)
        total -= quotas[index]
    return quotas


class RdySpread:
    """Shares `most` messages among the connections. The sum of their RDY never exceeds it.

    If there are more connections than messages, `most` of them have RDY 1. A turn ends after `idle_s` without messages,
    and always after `turn_s`. The next turn is for the connection that has waited longest.
    """

    def __init__(self, idle_s: float, turn_s: float) -> None:
        self._idle_s = idle_s
        self._turn_s = turn_s
        self._queue: list[Asked] = []  # the one that has waited longest is first
        self._most = 0

    @property
    def has_turns(self) -> bool:
        """True if connections must wait for their turn."""
        return 0 < self._most < len(self._queue)

    def add(self, connection: Asked) -> None:
        """Add a connection; call `distribute` afterwards."""
        self._queue.append(connection)

    def remove(self, connection: Asked) -> None:
        """Remove a connection; call `distribute` afterwards."""
        self._queue.remove(connection)

    def distribute(self, most: int, now_s: float) -> None:
        """Request at most `most` messages at a time from all connections together."""
        self._most = most
        if self.has_turns:
            self._seat(most, now_s)
        else:
            targets = even_quotas(most, [connection.max_rdy for connection in self._queue])
            _ask(zip(self._queue, targets, strict=True), now_s)

    def change_turns(self, now_s: float) -> None:
        """End the turns that are over, and give their RDY to other connections."""
        if not self.has_turns:
            return
        over = [
            connection for connection in self._queue if connection.rdy and self._is_over(connection, now_s)
        ]
        for connection in over:
            connection.ask_for(0, now_s)
            self._queue.remove(connection)
            self._queue.append(connection)
        self._seat(self._most, now_s)

    def _is_over(self, connection: Asked, now_s: float) -> bool:
        idle_since_s = max(connection.last_message_s, connection.rdy_since_s)
        if now_s - idle_since_s > self._idle_s:
            return True
        return now_s - connection.rdy_since_s > self._turn_s

    def _seat(self, seats: int, now_s: float) -> None:
        """Set RDY 1 for `seats` connections: those that have a turn, then those that have waited longest."""
        seated = [connection for connection in self._queue if connection.rdy][:seats]
        waiting = [connection for connection in self._queue if connection not in seated]
        chosen = waiting[: seats - len(seated)]
        _ask([(connection, 0) for connection in waiting[len(chosen) :]], now_s)
        _ask([(connection, 1) for connection in seated + chosen], now_s)
        self._queue = [*waiting[len(chosen) :], *seated, *chosen]


def _ask(targets: Iterable[tuple[Asked, int]], now_s: float) -> None:
    """Lower values before raising others, so that the sum never exceeds both the old and the new total."""
    changes = [(connection, rdy) for connection, rdy in targets if rdy != connection.rdy]
    for connection, rdy in sorted(changes, key=lambda change: change[1] > change[0].rdy):
        connection.ask_for(rdy, now_s)
