"""One lasting trouble in the log: its beginning, a reminder now and then, its end."""

from __future__ import annotations

from collections.abc import Callable

from nsqd_py.runtime.logs import Log

_REMIND_EVERY_S = 60.0


class Trouble:
    """What keeps failing in the same place. `clock` gives seconds of a steady clock."""

    def __init__(self, log: Log, clock: Callable[[], float]) -> None:
        self._log = log
        self._clock = clock
        self._reported_s: float | None = None

    @property
    def is_on(self) -> bool:
        return self._reported_s is not None

    def report(self, text: str, *args: object) -> None:
        """It failed (again)."""
        now_s = self._clock()
        if self._reported_s is None or now_s - self._reported_s >= _REMIND_EVERY_S:
            self._reported_s = now_s
            self._log.error(text, *args)

    def end(self, text: str, *args: object) -> None:
        """It works; the text is written where there was trouble."""
        if self._reported_s is not None:
            self._reported_s = None
            self._log.info(text, *args)
