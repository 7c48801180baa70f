r"""`--format`: text with fields in braces, as `{timestamp} {topic} {body}`.

`{{` and `}}` are braces, `\t`, `\n`, `\0`, `\\` and `\x1f` are what they are in a shell's `$'...'`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

FIELDS = ("timestamp", "timestamp_ns", "id", "attempts", "topic", "channel", "nsqd", "body")

_PARTS = re.compile(
    r"\{\{|\}\}|\{(?P<field>[^{}]*)\}|[{}]|\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<letter>.)|\\|[^{}\\]+", re.DOTALL
)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "0": "\0", "\\": "\\", "e": "\x1b"}
_SECOND_NS = 1_000_000_000


class Template:
    """A parsed template.

    fields  those that it names, in its order; one may come more than once
    """

    def __init__(self, text: str) -> None:
        """Raises ValueError for what is no template."""
        self.fields: list[str] = []
        self._pattern = b"".join(map(self._part, _PARTS.finditer(text)))

    def lines(self, columns: Sequence[Iterable[bytes]]) -> list[bytes]:
        """The template filled in for each message. One column for each of `fields`."""
        return list(map(self._pattern.__mod__, zip(*columns, strict=True)))

    def lines_without_fields(self, count: int) -> list[bytes]:
        """The template for so many messages, where it says the same of each."""
        return [self._pattern % ()] * count

    def _part(self, part: re.Match[str]) -> bytes:
        text = part[0]
        if part["field"] is not None:
            return self._field(part["field"])
        if part["hex"]:
            return bytes.fromhex(part["hex"]).replace(b"%", b"%%")
        if part["letter"]:
            return _LETTERS.get(part["letter"], text).encode().replace(b"%", b"%%")
        if text in ("{", "}"):
            raise ValueError(f"a lone {text} (write {text * 2} for the character itself)")
        return {"{{": "{", "}}": "}"}.get(text, text).replace("%", "%%").encode("utf-8", "surrogateescape")

    def _field(self, name: str) -> bytes:
        if name not in FIELDS:
            raise ValueError(f"there is no {{{name}}}, only {', '.join(f'{{{field}}}' for field in FIELDS)}")
        self.fields.append(name)
        return b"%b"


def iso_times(timestamps_ns: Iterable[int]) -> list[bytes]:
    """Times since the epoch as `2026-11-21T03:38:12.123456789Z`."""
    second, stamp, times = -1, "", []
    for timestamp_ns in timestamps_ns:
        now_s, rest_ns = divmod(timestamp_ns, _SECOND_NS)
        if now_s != second:
            second, stamp = now_s, _stamp(now_s)
        times.append(f"{stamp}.{rest_ns:09d}Z".encode())
    return times


def _stamp(now_s: int) -> str:
    try:
        return datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    except (OverflowError, ValueError, OSError):  # a clock far beyond the calendar
        return str(now_s)
