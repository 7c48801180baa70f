"""Log lines that clients can cause: of each kind a burst, then one a second, so that no client fills the disk.

What is left out is counted, and the next line of that kind says how many there were.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from nsqd_py.runtime.log_levels import ERROR, INFO, WARNING

BURST = 100
LINES_PER_S = 1.0
# Clients choose their names, and what they send is quoted in errors.
MOST_CHARACTERS = 500

_LINE_BREAKS = str.maketrans({"\n": "\\n", "\r": "\\r"})


class _Kind:
    """Lines of one text.

    allowance  how many may be written now
    left_out   how many were not written since the last
    """

    __slots__ = ("allowance", "args", "left_out", "level", "updated_s")

    def __init__(self, level: int, now_s: float) -> None:
        self.level = level
        self.allowance = float(BURST)
        self.updated_s = now_s
        self.left_out = 0
        self.args: tuple[object, ...] = ()

    def may_write(self, now_s: float) -> bool:
        self.allowance = min(BURST, self.allowance + (now_s - self.updated_s) * LINES_PER_S)
        self.updated_s = now_s
        return self.allowance >= 1


class ClientLines:
    """As the methods of a `Log`, for what a client can cause as often as it likes. Each text is a kind."""

    __slots__ = ("_clock", "_kinds", "_level_of", "_write")

    def __init__(
        self,
        level_of: Callable[[], int],
        write: Callable[[int, str], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`level_of` gives the lowest level that is written; `clock` gives seconds."""
        self._level_of = level_of
        self._write = write
        self._clock = clock
        self._kinds: dict[str, _Kind] = {}

    def info(self, text: str, *args: object) -> None:
        self._line(INFO, text, args)

    def warning(self, text: str, *args: object) -> None:
        self._line(WARNING, text, args)

    def error(self, text: str, *args: object) -> None:
        self._line(ERROR, text, args)

    def _line(self, level: int, text: str, args: tuple[object, ...]) -> None:
        """Write `text % args`, or count it. The texts are those of the program, so there are few of them."""
        if level < self._level_of():
            return
        now_s = self._clock()
        kind = self._kinds.get(text)
        if kind is None:
            kind = self._kinds[text] = _Kind(level, now_s)
        if kind.may_write(now_s):
            self._put(kind, text, args)
        else:
            kind.left_out += 1
            kind.args = args

    def tell(self) -> None:
        """Write the last line of each kind that was left out and may be written now. Call it about once a second."""
        for text, kind in self._kinds.items():
            if kind.left_out and kind.may_write(self._clock()):
                kind.left_out -= 1
                self._put(kind, text, kind.args)

    def _put(self, kind: _Kind, text: str, args: tuple[object, ...]) -> None:
        kind.allowance -= 1
        message = (text % args).translate(_LINE_BREAKS)
        if len(message) > MOST_CHARACTERS:
            message = message[:MOST_CHARACTERS] + "..."
        if kind.left_out:
            message += f" ({kind.left_out} more like this were left out)"
            kind.left_out = 0
        kind.args = ()
        self._write(kind.level, message)
