r"""Templates of `--format`: text with fields in braces, such as `{timestamp} {topic} {body}`. Pure.

`{{` and `}}` are braces; `\t`, `\n`, `\0`, `\\` and `\x1f` mean the same as in a shell's `$'...'`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

FIELDS = ("timestamp", "timestamp_ns", "id", "attempts", "topic", "channel", "nsqd", "body")

_PARTS = re.compile(r"\{\{|\}\}|\{(?P<field>[^{}]*)\}|[{}]|\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<letter>.)|\\|[^{}\\]+", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "0": "\0", "\\": "\\", "e": "\x1b"}
_SECOND_NS = 1_000_000_000


class Template:
    """A parsed template.

    fields  the fields in the order of the text, with repetitions
    """

    def __init__(self, text: str) -> None:
        """Raises ValueError for an invalid template."""
        self.fields: list[str] = []
        self._pattern = b"".join(map(self._part, _PARTS.finditer(text)))

    def lines(self, columns: Sequence[Iterable[bytes]]) -> list[bytes]:
        """Fill in the template for each message, with one column for each of `fields`."""
        return list(map(self._pattern.__mod__, zip(*columns, strict=True)))

    def lines_without_fields(self, count: int) -> list[bytes]:
        """Return the text `count` times, for a template without fields."""
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
    """Return times since the epoch in the form `2026-11-21T03:38:12.123456789Z`."""
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
    except (OverflowError, ValueError, OSError):  # a time outside the range of datetime
        return str(now_s)
