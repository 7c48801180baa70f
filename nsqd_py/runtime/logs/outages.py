"""Failures that last: when the next attempt may start, and which log lines an outage writes."""

from __future__ import annotations

from collections.abc import Callable

from nsqd_py.runtime.logs.lines import LineWriter

_JITTER = 0.25
_REMIND_EVERY_S = 60.0


class Backoff:
    """Delays that double with every failure. Each is up to a quarter shorter, so that nsqds do not reconnect at once.

    Times are in seconds of a steady clock.
    """

    def __init__(self, first_s: float, most_s: float, chance: Callable[[], float]) -> None:
        """`chance` returns a number from 0 to 1."""
        self._first_s = first_s
        self._most_s = most_s
        self._chance = chance
        self._next_s = first_s
        self._not_before_s = 0.0

    def failed(self, now_s: float) -> None:
        """Delay the next attempt, after one that failed or whose result did not last."""
        delay_s = self._next_s * (1 - _JITTER * self._chance())
        self._next_s = min(self._next_s * 2, self._most_s)
        self._not_before_s = now_s + delay_s

    def reset(self) -> None:
        """Return to the first delay, after an attempt whose result lasted."""
        self._next_s = self._first_s

    def wait_s(self, now_s: float) -> float:
        """Return the time until the next attempt may start."""
        return max(0.0, self._not_before_s - now_s)


class OutageLog:
    """The log lines of one outage: an error when it starts, a reminder every minute, a line when it ends.

    `clock` returns seconds of a steady clock.
    """

    def __init__(self, log: LineWriter, clock: Callable[[], float]) -> None:
        self._log = log
        self._clock = clock
        self._reported_s: float | None = None

    @property
    def is_on(self) -> bool:
        """True between the first failure and the next success."""
        return self._reported_s is not None

    def report(self, text: str, *args: object) -> None:
        """Record a failure. Write `text % args` if it is the first one, or if the last line is a minute old."""
        now_s = self._clock()
        if self._reported_s is None or now_s - self._reported_s >= _REMIND_EVERY_S:
            self._reported_s = now_s
            self._log.error(text, *args)

    def end(self, text: str, *args: object) -> None:
        """Record a success. Write `text % args` if it ends an outage."""
        if self._reported_s is not None:
            self._reported_s = None
            self._log.info(text, *args)
