"""The keys of a terminal, by name: `up`, `enter`, or the character itself. Pure."""

from __future__ import annotations

import re

UP = "up"
DOWN = "down"
PAGE_UP = "page up"
PAGE_DOWN = "page down"
HOME = "home"
END = "end"
ENTER = "enter"
ESCAPE = "escape"
BACKSPACE = "backspace"
CLEAR = "clear"

# A sequence of ECMA-48 (CSI or SS3, parameters and a final character), a function key of the Linux console, or a character.
_KEY = re.compile(r"\x1b\[\[[A-E]|\x1b[\[O][0-9;?]*[@-Z\\-~]|[^\x1b]|\x1b(?=\x1b|[^\[O])", re.DOTALL)
_NAMES = {
    **dict.fromkeys(("\x1b[A", "\x1bOA"), UP),
    **dict.fromkeys(("\x1b[B", "\x1bOB"), DOWN),
    "\x1b[5~": PAGE_UP,
    "\x1b[6~": PAGE_DOWN,
    **dict.fromkeys(("\x1b[H", "\x1bOH", "\x1b[1~", "\x1b[7~"), HOME),
    **dict.fromkeys(("\x1b[F", "\x1bOF", "\x1b[4~", "\x1b[8~"), END),
    **dict.fromkeys(("\r", "\n", "\x1bOM"), ENTER),
    "\x1b": ESCAPE,
    **dict.fromkeys(("\x7f", "\b"), BACKSPACE),
    "\x15": CLEAR,  # Ctrl-U
}


class KeyReader:
    """Finds the keys in what a terminal sends. A sequence may come in pieces, and Esc is the beginning of one."""

    def __init__(self) -> None:
        self._rest = ""

    @property
    def is_in_sequence(self) -> bool:
        """True if more may follow that belongs to the last key. After a pause, call `flush`."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[str]:
        text = self._rest + data.decode("ascii", "replace")
        keys = []
        end = 0
        while match := _KEY.match(text, end):
            name = _name_of(match[0])
            if name:
                keys.append(name)
            end = match.end()
        self._rest = text[end:]
        return keys

    def flush(self) -> list[str]:
        """Return Esc if it was pressed alone. The beginning of a sequence without an end is dropped."""
        was_alone, self._rest = self._rest == "\x1b", ""
        return [ESCAPE] if was_alone else []


def _name_of(text: str) -> str:
    """Return the name of a key; empty if the key has no use here."""
    if text in _NAMES:
        return _NAMES[text]
    if len(text) == 1 and text.isascii() and text.isprintable():
        return text
    return ""
