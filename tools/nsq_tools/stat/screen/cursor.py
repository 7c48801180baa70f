"""The selected line of a list, and the part of the list or of a text that is visible. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from nsq_tools.stat.screen.keys import DOWN, END, HOME, PAGE_DOWN, PAGE_UP, UP

# The keys that move, and where they move to: the function has the index now, the lines of a page and all lines.
_MOVES: dict[str, Callable[[int, int, int], int]] = {
    UP: lambda index, page, total: index - 1,
    DOWN: lambda index, page, total: index + 1,
    PAGE_UP: lambda index, page, total: index - page,
    PAGE_DOWN: lambda index, page, total: index + page,
    HOME: lambda index, page, total: 0,
    END: lambda index, page, total: total - 1,
}
_MOVES |= {letter: _MOVES[key] for letter, key in (("k", UP), ("j", DOWN), ("g", HOME), ("G", END))}


class Scroll:
    """The visible part of a text: `page` of `total` lines, from line `top` on."""

    def __init__(self) -> None:
        self.top = 0
        self.page = 0
        self.total = 0

    def fit(self, total: int, page: int) -> None:
        """Note how many lines there are, and how many are visible. There are no empty lines below the last one."""
        self.page = min(page, total)
        self.total = total
        self._scroll_to(self.top)

    def press(self, key: str) -> bool:
        """Scroll, if this key does that. Return False if it does not."""
        if key in _MOVES:
            self._scroll_to(self._moved(key, self.top))
        return key in _MOVES

    def _moved(self, key: str, index: int) -> int:
        return _MOVES[key](index, max(self.page, 1), self.total)

    def _scroll_to(self, top: int) -> None:
        self.top = _between(top, self.total - self.page)


class Cursor(Scroll):
    """The selected line of a list, and its visible lines: `page` of them, from line `top` on.

    The cursor stays with its line when others come, go or change their order; on the first line, it stays there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.index = 0
        self._keys: Sequence[Hashable] = ()

    @property
    def key(self) -> Hashable | None:
        """The key of the selected line; None if there are no lines."""
        if self._keys:
            return self._keys[self.index]
        return None

    def show(self, keys: Sequence[Hashable], page: int) -> None:
        """Note the lines that there are now, and how many of them are visible."""
        index = self.index
        selected = self.key
        if index and keys[index : index + 1] != [selected] and selected in keys:
            index = keys.index(selected)
        self._keys = keys
        self.fit(len(keys), page)
        self._move_to(index)

    def press(self, key: str) -> bool:
        """Move, if this key does that. Return False if it does not."""
        if key not in _MOVES:
            return False
        top_before = self.top
        self._move_to(self._moved(key, self.index))
        if key in (PAGE_UP, PAGE_DOWN):  # a whole page, also if the cursor was not on its last line
            self._scroll_to(self._moved(key, top_before))
            self._move_to(self.index)
        return True

    def reset(self) -> None:
        """Select the first line."""
        self.index = 0
        self.top = 0

    def _move_to(self, index: int) -> None:
        """Select a line, and scroll just as far as is needed to see it."""
        self.index = _between(index, self.total - 1)
        lowest = self.index - self.page + 1
        self._scroll_to(min(max(self.top, lowest), self.index))


def _between(value: int, most: int) -> int:
    return max(0, min(value, most))
