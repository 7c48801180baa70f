r"""Bodies on a terminal: what would steer it is shown, not obeyed.

Without that a message could clear the screen, write over other lines, retitle the window, or answer for the user.
Line feeds and tabs stay; other control characters become `\x1b`, bytes that are no UTF-8 `\xff`, and characters that
turn the direction of writing `\u202e`.
"""

from __future__ import annotations

_KEPT = "\t\n"
_CONTROLS = [*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0))]
# Direction marks, embeddings, overrides and isolates (Unicode TR 9), and the line separators.
_TURNS = ["\u061c", "\u200e", "\u200f", *map(chr, range(0x2028, 0x202F)), *map(chr, range(0x2066, 0x206A))]


def _shown(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}"


_ESCAPES = str.maketrans({c: _shown(c) for c in [*_CONTROLS, *_TURNS] if c not in _KEPT})


def for_terminal(body: bytes) -> bytes:
    """The body as UTF-8 that a terminal only prints."""
    return body.decode("utf-8", "backslashreplace").translate(_ESCAPES).encode()


def for_terminal_line(body: bytes) -> bytes:
    r"""As `for_terminal`, with line feeds and tabs shown as `\n` and `\t`."""
    return for_terminal(body).replace(b"\n", b"\\n").replace(b"\t", b"\\t")
