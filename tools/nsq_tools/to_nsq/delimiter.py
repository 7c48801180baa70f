r"""The byte between two records: itself, or an escape such as `\0`, `\t`, `\x1e`."""

from __future__ import annotations

import re

_ESCAPES = {"\\0": b"\0", "\\a": b"\a", "\\n": b"\n", "\\r": b"\r", "\\t": b"\t", "\\\\": b"\\"}
_HEX = re.compile(r"\\x([0-9a-fA-F]{2})")


def parse_delimiter(text: str) -> bytes:
    """One byte. `text` is as the command line gives it. Raises ValueError."""
    if text in _ESCAPES:
        return _ESCAPES[text]
    if hexadecimal := _HEX.fullmatch(text):
        return bytes.fromhex(hexadecimal[1])
    delimiter = text.encode("utf-8", "surrogateescape")
    if len(delimiter) != 1:
        raise ValueError(r"--delimiter must be a single byte (or \n, \t, \r, \0, \\, \x1e...)")
    return delimiter
