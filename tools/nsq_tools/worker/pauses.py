"""How long the supervisor waits before it starts a child again. Pure."""

from __future__ import annotations

FIRST_S = 0.25
FACTOR = 2.0
MOST_S = 15.0
# A child that ran longer than this has not failed at its start: its next pause is the first one again.
ENOUGH_S = 5.0


class RestartPause:
    """The pause before the next start of one child: it doubles with each run that was short."""

    def __init__(self) -> None:
        self._next_s = FIRST_S

    def after(self, ran_s: float) -> float:
        """Return the seconds to wait after a child that ran for `ran_s`."""
        if ran_s >= ENOUGH_S:
            self._next_s = FIRST_S
        pause_s = self._next_s
        self._next_s = min(pause_s * FACTOR, MOST_S)
        return pause_s
