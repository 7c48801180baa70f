"""The keys of a terminal, and what they change in the live table: order, scrolling, filter. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from nsq_tools.stat.selection import BadPattern, Filter, Order

UP, DOWN, PAGE_UP, PAGE_DOWN, HOME, END = "up", "down", "page-up", "page-down", "home", "end"
ENTER, ESCAPE, BACKSPACE, CLEAR = "enter", "escape", "backspace", "clear"

_CHARACTERS = {"\n": ENTER, "\r": ENTER, "\x7f": BACKSPACE, "\x08": BACKSPACE, "\x15": CLEAR}
_ESC = "\x1b"
# ECMA-48, 5.4: CSI, parameters, intermediate characters, a final one; and SS3 with one character.
_SEQUENCE = re.compile(r"\x1b(?:\[(?P<parameters>[0-?]*)[ -/]*(?P<final>[@-~])|O(?P<single>[ -~]))")
_BEGINNING = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)?")
_BY_FINAL = {"A": UP, "B": DOWN, "H": HOME, "F": END}
_BY_NUMBER = {"1": HOME, "7": HOME, "4": END, "8": END, "5": PAGE_UP, "6": PAGE_DOWN}


class KeyDecoder:
    """Decodes keys from characters, which may arrive in pieces.

    A key is a printable character or one of the names above. Other keys are ignored.
    """

    def __init__(self) -> None:
        self._rest = ""

    @property
    def is_waiting(self) -> bool:
        """True if the last character may be the Escape key, or the beginning of another key's sequence."""
        return bool(self._rest)

    def feed(self, text: str) -> list[str]:
        """Return the keys that are complete."""
        text, self._rest = self._rest + text, ""
        keys = []
        position = 0
        while position < len(text):
            if text[position] != _ESC:
                keys.append(_CHARACTERS.get(text[position], text[position]))
                position += 1
                continue
            sequence = _SEQUENCE.match(text, position)
            if sequence is not None:
                keys.append(_named(sequence))
                position = sequence.end()
            elif _BEGINNING.fullmatch(text, position):
                self._rest = text[position:]
                break
            else:  # Escape, and then another key
                keys.append(ESCAPE)
                position += 1
        return [key for key in keys if key]

    def end(self) -> list[str]:
        """Return the pending key when nothing has followed it for a while: Escape, or no key."""
        rest, self._rest = self._rest, ""
        return [ESCAPE] if rest == _ESC else []


def _named(sequence: re.Match[str]) -> str:
    """Return the name of a key, or an empty text for an unknown key. Ctrl, Alt and Shift (`1;5A`) are ignored."""
    final = sequence["final"] or sequence["single"]
    if final == "~":
        return _BY_NUMBER.get((sequence["parameters"] or "").partition(";")[0], "")
    return _BY_FINAL.get(final, "")


_GLOB_CHARACTERS = "*?["


@dataclass(frozen=True, slots=True)
class Window:
    """The visible rows: `count` of `total`, from index `top` on."""

    top: int
    count: int
    total: int

    @classmethod
    def at(cls, top: int, count: int, total: int) -> Window:
        """Return the window nearest to `top` without empty lines below its rows."""
        return cls(max(0, min(top, total - count)), min(count, total), total)

    @property
    def above(self) -> int:
        return self.top

    @property
    def below(self) -> int:
        return self.total - self.top - self.count


class Controls:
    """The state that the user has set with keys.

    order      order of the rows
    top        index of the first visible row
    text       the filter as it was typed, or empty
    is_typing  True while the user types a filter
    error      the reason why `text` is invalid, or empty; the last valid filter then stays in use
    """

    def __init__(self, order: Order) -> None:
        self.order = order
        self.top = 0
        self.text = ""
        self.is_typing = False
        self.error = ""
        self.filter = Filter()
        self._text_before = ""

    def press(self, key: str, window: Window) -> None:
        """Apply a key to the state. `window` is what the user saw. Unknown keys are ignored."""
        scroll = _SCROLLS.get(key)
        if scroll is not None:
            self.top = max(0, scroll(window))
        elif self.is_typing:
            self._type(key)
        elif key in _COMMANDS:
            _COMMANDS[key](self)

    # --- the order

    def _sort_by_next(self) -> None:
        self.order = self.order.next
        self.top = 0

    def _turn_order(self) -> None:
        self.order = self.order.turned
        self.top = 0

    # --- the filter

    def _begin_typing(self) -> None:
        self.is_typing = True
        self._text_before = self.text

    def _type(self, key: str) -> None:
        if key == ENTER and not self.error:
            self.is_typing = False
        elif key == ESCAPE:
            self.is_typing = False
            self._set_text(self._text_before)
        elif key == BACKSPACE:
            self._set_text(self.text[:-1])
        elif key == CLEAR:
            self._set_text("")
        elif len(key) == 1 and key.isprintable():
            self._set_text(self.text + key)

    def _forget_filter(self) -> None:
        self._set_text("")

    def _set_text(self, text: str) -> None:
        self.text, self.error, self.top = text, "", 0
        try:
            self.filter = typed_filter(text)
        except BadPattern as error:
            self.error = str(error)


def typed_filter(text: str) -> Filter:
    """Return the filter for a typed text: a glob or regular expression as in --filter, or a part of a name.

    A regular expression needs no closing slash. Raises BadPattern.
    """
    if not text:
        return Filter()
    if text.startswith("/"):
        return Filter([f"{text.removesuffix('/')}/"] if len(text) > 1 else [])
    return Filter([text if any(character in text for character in _GLOB_CHARACTERS) else f"*{text}*"])


_SCROLLS: dict[str, Callable[[Window], int]] = {
    UP: lambda window: window.top - 1,
    DOWN: lambda window: window.top + 1,
    PAGE_UP: lambda window: window.top - max(window.count, 1),
    PAGE_DOWN: lambda window: window.top + max(window.count, 1),
    HOME: lambda window: 0,
    END: lambda window: window.total,
}
_COMMANDS: dict[str, Callable[[Controls], None]] = {
    "s": Controls._sort_by_next,
    "r": Controls._turn_order,
    "/": Controls._begin_typing,
    ESCAPE: Controls._forget_filter,
}
