"""How much flows: RDY spread over the connections, held back while messages fail. No I/O; the clock is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from nsqd_py.client.consuming.backoff import Backoff, Phase
from nsqd_py.client.consuming.rdy import Asked, RdySpread

Clock = Callable[[], float]


class BackoffState(NamedTuple):
    """`phase` is `flowing`, `waiting` (no messages) or `probing` (one); `remaining_s` is that of the wait."""

    phase: str
    level: int
    remaining_s: float


class Flow:
    """Decides what each connection is asked for, whenever something changes.

    `now_s()` is the clock; `on_change(text)` is called when back-off begins, ends or goes on, which changes `due_s`.
    """

    def __init__(
        self,
        max_in_flight: int,
        spread: RdySpread,
        backoff: Backoff,
        redistribute_s: float,
        clock: Clock,
        on_change: Callable[[str], None],
    ) -> None:
        self.max_in_flight = max_in_flight
        self.is_paused = False
        self._spread = spread
        self._backoff = backoff
        self._redistribute_s = redistribute_s
        self._next_turns_s = clock() + redistribute_s
        self.now_s = clock
        self._on_change = on_change

    # ---- connections and limits

    def opened(self, connection: Asked) -> None:
        self._spread.add(connection)
        self._share()

    def closed(self, connection: Asked) -> None:
        self._spread.remove(connection)
        self._share()

    def set_max_in_flight(self, count: int) -> None:
        self.max_in_flight = count
        self._share()

    def pause(self, *, is_paused: bool = True) -> None:
        """Ask for nothing, or go on."""
        self.is_paused = is_paused
        self._share()

    # ---- results

    @property
    def is_held_back(self) -> bool:
        """Whether a success changes anything: asked for each message, so that it need not be told of each."""
        return self._backoff.level > 0

    def succeeded(self) -> None:
        self._tell(self._backoff.succeeded(self.now_s()))

    def failed(self) -> None:
        self._tell(self._backoff.failed(self.now_s()))

    def continued(self) -> None:
        """A message was requeued, but not because anything failed."""
        self._tell(self._backoff.continued(self.now_s()))

    # ---- time

    @property
    def due_s(self) -> float:
        """When `tick` has something to do next."""
        until_s = self._backoff.until_s
        return self._next_turns_s if until_s is None else min(until_s, self._next_turns_s)

    def tick(self, now_s: float) -> None:
        self._tell(self._backoff.expire(now_s))
        if now_s >= self._next_turns_s:
            self._next_turns_s = now_s + self._redistribute_s
            self._spread.change_turns(now_s)

    def state(self, now_s: float) -> BackoffState:
        until_s = self._backoff.until_s
        remaining_s = 0.0 if until_s is None else max(0.0, until_s - now_s)
        return BackoffState(self._backoff.phase.value, self._backoff.level, remaining_s)

    # ---- what follows

    def _tell(self, has_changed: bool) -> None:
        if has_changed:
            self._share()
            self._on_change(self._news())

    def _news(self) -> str:
        level, wait_s = self._backoff.level, self._backoff.wait_s
        return {
            Phase.FLOWING: "back-off is over",
            Phase.WAITING: f"back-off, level {level}: no messages for {wait_s:g} s",
            Phase.PROBING: f"back-off, level {level}: asking for one message",
        }[self._backoff.phase]

    def _share(self) -> None:
        self._spread.share(self._most(), self.now_s())

    def _most(self) -> int:
        if self.is_paused:
            return 0
        allowed = {Phase.FLOWING: self.max_in_flight, Phase.WAITING: 0, Phase.PROBING: min(1, self.max_in_flight)}
        return allowed[self._backoff.phase]
