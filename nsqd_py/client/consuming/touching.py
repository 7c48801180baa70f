"""When unanswered messages are touched, so that they do not time out. No clock, no I/O.

The client guide warns of clients that touch without being asked: a handler that hangs would keep its message for
ever. nsqd's `max_msg_timeout` bounds that, and nothing is touched past it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

_TOUCH_AT = 0.6  # of the time-out: early enough for a late tick and a slow network


class Timed(Protocol):
    """A batch of messages that came together."""

    arrived_s: float
    due_s: float


Batch = TypeVar("Batch", bound=Timed)


class Touching(Generic[Batch]):
    """The unanswered batches of one connection, in the order in which something is to be done about them.

    As all have the same time-out, that is the order in which they came or were touched last.
    """

    __slots__ = ("_batches", "_is_automatic", "_most_s", "timeout_s")

    def __init__(self, timeout_s: float, most_s: float, *, is_automatic: bool) -> None:
        self.timeout_s = timeout_s
        self._most_s = max(timeout_s, most_s)
        self._is_automatic = is_automatic
        self._batches: dict[Batch, None] = {}

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._batches)

    def add(self, batch: Batch) -> None:
        """It came at its `arrived_s`."""
        batch.due_s = batch.arrived_s + self.timeout_s * (_TOUCH_AT if self._is_automatic else 1.0)
        self._batches[batch] = None

    def discard(self, batch: Batch) -> None:
        """It is answered."""
        self._batches.pop(batch, None)

    def touched(self, batch: Batch, now_s: float) -> None:
        """Its messages, or some of them, have the whole time-out again."""
        if batch not in self._batches:
            return
        del self._batches[batch]
        next_s = now_s + self.timeout_s * (_TOUCH_AT if self._is_automatic else 1.0)
        batch.due_s = min(next_s, batch.arrived_s + self._most_s)
        self._batches[batch] = None

    def clear(self) -> None:
        self._batches.clear()

    @property
    def due_s(self) -> float | None:
        """When the first batch is to be looked at; None: there is none."""
        return next((batch.due_s for batch in self._batches), None)

    def look(self, now_s: float) -> tuple[list[Batch], list[Batch]]:
        """Those to touch now, and those that have timed out, which are forgotten."""
        to_touch: list[Batch] = []
        expired: list[Batch] = []
        for batch in self._batches:
            if batch.due_s > now_s:
                break
            is_late = now_s >= batch.arrived_s + self._most_s
            (to_touch if self._is_automatic and not is_late else expired).append(batch)
        for batch in expired:
            del self._batches[batch]
        return to_touch, expired
