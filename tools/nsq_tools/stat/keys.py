"""Keys as a terminal sends them: characters, and the sequences of arrows and other keys. Pure."""

from __future__ import annotations

import re

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
    """Makes keys of characters, in whatever pieces these arrive.

    A key is a printable character, or one of the names above. Keys without a name here are left out.
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
        """Return what the rest is when nothing follows it for a while: Escape, or nothing."""
        rest, self._rest = self._rest, ""
        return [ESCAPE] if rest == _ESC else []


def _named(sequence: re.Match[str]) -> str:
    """The name of a key; empty for one without a name. Ctrl, Alt and Shift (`1;5A`) make no difference."""
    final = sequence["final"] or sequence["single"]
    if final == "~":
        return _BY_NUMBER.get((sequence["parameters"] or "").partition(";")[0], "")
    return _BY_FINAL.get(final, "")
