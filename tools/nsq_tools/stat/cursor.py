"""The selected line of a list, and the part of the list or of a text that is visible. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from nsq_tools.stat.keys import DOWN, END, HOME, PAGE_DOWN, PAGE_UP, UP

# The keys that move, and where they move to: the function has the place now, the lines of a page and all lines.
_MOVES: dict[str, Callable[[int, int, int], int]] = {
    **dict.fromkeys((UP, "k"), lambda place, page, total: place - 1),
    **dict.fromkeys((DOWN, "j"), lambda place, page, total: place + 1),
    PAGE_UP: lambda place, page, total: place - page,
    PAGE_DOWN: lambda place, page, total: place + page,
    **dict.fromkeys((HOME, "g"), lambda place, page, total: 0),
    **dict.fromkeys((END, "G"), lambda place, page, total: total - 1),
}


class Scroll:
    """The visible part of a text: `page` of `total` lines, from line `top` on."""

    def __init__(self) -> None:
        self.top = 0
        self.page = self.total = 0

    def show(self, total: int, page: int) -> None:
        """Note how many lines there are, and how many are visible. There are no empty lines below the last one."""
        self.page, self.total = min(page, total), total
        self.top = _between(self.top, total - self.page)

    def press(self, key: str) -> bool:
        """Scroll, if this key does that. Return False if it does not."""
        if key not in _MOVES:
            return False
        self.top = _between(_MOVES[key](self.top, max(self.page, 1), self.total), self.total - self.page)
        return True


class Cursor:
    """The selected line of a list, and its visible lines: `page` of them, from line `top` on.

    The cursor stays with its line when others come, go or change places; on the first line, it stays there.
    """

    def __init__(self) -> None:
        self.index = self.top = self.page = 0
        self._keys: Sequence[Hashable] = ()

    @property
    def total(self) -> int:
        return len(self._keys)

    @property
    def key(self) -> Hashable | None:
        """The key of the selected line; None if there are no lines."""
        return self._keys[self.index] if self._keys else None

    def show(self, keys: Sequence[Hashable], page: int) -> None:
        """Note the lines that there are now, and how many of them are visible."""
        selected = self.key
        if self.index and keys[self.index : self.index + 1] != [selected] and selected in keys:
            self._move_to(keys.index(selected), len(keys))
        self._keys, self.page = keys, min(page, len(keys))
        self._move_to(self.index, len(keys))

    def press(self, key: str) -> bool:
        """Move, if this key does that. Return False if it does not."""
        if key not in _MOVES:
            return False
        page, top_before = max(self.page, 1), self.top
        self._move_to(_MOVES[key](self.index, page, self.total), self.total)
        if key in (PAGE_UP, PAGE_DOWN):  # a whole page, also if the cursor was not on its last line
            self.top = _between(_MOVES[key](top_before, page, self.total), self.total - self.page)
            self._move_to(self.index, self.total)
        return True

    def reset(self) -> None:
        """Select the first line."""
        self.index = self.top = 0

    def _move_to(self, index: int, total: int) -> None:
        """Select a line, and scroll just as far as is needed to see it."""
        self.index = _between(index, total - 1)
        self.top = _between(min(max(self.top, self.index - self.page + 1), self.index), total - self.page)


def _between(value: int, most: int) -> int:
    return max(0, min(value, most))
