"""A limit on the memory of all answers that are being received or processed."""

from __future__ import annotations

from types import TracebackType

from gevent.event import Event

# Answers up to this size need no permission: a thousand of them take less memory than one larger answer.
FREE_BYTES = 256 * 1024
# Of the answers that are larger than this, only one is received at a time.
LARGE_BYTES = 8 * 1024 * 1024
# All other answers share this much memory.
SHARED_BYTES = 32 * 1024 * 1024


class AnswerBudget:
    """Admits answers while memory is left for them. Small answers do not wait for large ones."""

    def __init__(self) -> None:
        self.shared_bytes = 0
        self.has_large = False
        self._changed = Event()

    def answer(self) -> Answer:
        return Answer(self)

    def _take(self, most_bytes: int) -> None:
        while not self._fits(most_bytes):
            self._changed.clear()
            self._changed.wait()
        if most_bytes > LARGE_BYTES:
            self.has_large = True
        else:
            self.shared_bytes += most_bytes

    def _fits(self, most_bytes: int) -> bool:
        if most_bytes > LARGE_BYTES:
            return not self.has_large
        return self.shared_bytes + most_bytes <= SHARED_BYTES

    def _give_back(self, most_bytes: int) -> None:
        if most_bytes > LARGE_BYTES:
            self.has_large = False
        else:
            self.shared_bytes -= most_bytes
        self._changed.set()


class Answer:
    """One answer, from its request until it has been processed: a context manager."""

    def __init__(self, budget: AnswerBudget) -> None:
        self.date = ""  # the Date header of the answer
        self._budget = budget
        self._taken_bytes = 0

    def note_date(self, date: str) -> None:
        self.date = date

    def admit(self, most_bytes: int) -> None:
        """Wait until an answer of this size may be received. The deadline of the request keeps running."""
        if most_bytes > FREE_BYTES and not self._taken_bytes:
            self._budget._take(most_bytes)
            self._taken_bytes = most_bytes

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._taken_bytes:
            self._budget._give_back(self._taken_bytes)
