"""Occurrences: the times at which a schedule is due, in whole seconds since the epoch. No I/O, and no clock."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from nsqd_py.client.errors import BadClientOption

_SOME_TIME_S = 1_700_000_000  # any time: an expression that never occurs has no occurrence after it either


class BadSchedule(BadClientOption):
    """A schedule that cannot be: its interval, its expression, its time zone, or its name. The text says the remedy."""


class Occurrences(Protocol):
    """The times of one schedule. Two processes that declare it in the same way know the same times."""

    def next_after(self, time_s: float) -> int:
        """Return the first occurrence that is later than `time_s`."""

    def includes(self, time_s: int) -> bool:
        """True if this is an occurrence."""


class Every:
    """Each multiple of an interval since the epoch: every 5 minutes is at :00, :05 and :10, whenever a process started."""

    def __init__(self, interval: timedelta) -> None:
        """Raises BadSchedule."""
        if interval < timedelta(seconds=1) or interval.microseconds:
            raise BadSchedule(
                f"the interval of a schedule must be whole seconds, at least 1, got {interval.total_seconds():g} s"
            )
        self._interval_s = int(interval.total_seconds())

    def next_after(self, time_s: float) -> int:
        return (int(time_s // self._interval_s) + 1) * self._interval_s

    def includes(self, time_s: int) -> bool:
        return time_s % self._interval_s == 0


class Cron:
    """The times of a cron expression in a time zone, as cronsim has them: changes of the clocks as in Debian's cron."""

    def __init__(self, expression: str, tz: str) -> None:
        """Raises BadSchedule; ImportError, which names the remedy, if cronsim is not installed."""
        try:
            from cronsim import CronSim, CronSimError
        except ImportError as error:
            raise ImportError("cron expressions need cronsim: pip install 'nsqd-py[work]'") from error
        self._simulate = CronSim
        self._expression = expression
        try:
            self._zone = ZoneInfo(tz)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise BadSchedule(
                f"there is no time zone {tz!r}: give a name as Europe/Zurich; systems without time zones need "
                "pip install tzdata"
            ) from error
        try:
            self.next_after(_SOME_TIME_S)
        except (CronSimError, StopIteration) as error:
            reason = str(error) or "it never occurs"
            raise BadSchedule(f"cron expression {expression!r}: {reason}") from error

    def next_after(self, time_s: float) -> int:
        """Raises StopIteration if the expression never occurs."""
        start = datetime.fromtimestamp(int(time_s), self._zone)
        times = self._simulate(self._expression, start)
        # An hour that comes twice: cronsim goes on in the first one.
        while (found_s := int(next(times).timestamp())) <= time_s:
            pass
        return found_s

    def includes(self, time_s: int) -> bool:
        return self.next_after(time_s - 1) == time_s
