"""The commands of nsqlookupd's TCP protocol: lines, and one body. Bytes in, commands out, no I/O."""

from __future__ import annotations

from nsqd_py.batch import SIZE_BYTES
from nsqd_py.errors import BadBody, Invalid

MAX_LINE_BYTES = 16 * 1024
MAX_BODY_BYTES = 64 * 1024  # a body of nested lists of this size takes 2 ms to read

_SPACE = b" \t\n\v\f\r"


class LookupParser:
    """Bytes of one connection, behind its magic."""

    __slots__ = ("_buffer", "_position")

    def __init__(self) -> None:
        self._buffer = b""
        self._position = 0

    def feed(self, data: bytes) -> None:
        self._buffer = self._buffer[self._position :] + data if self._position < len(self._buffer) else data
        self._position = 0

    def next_line(self) -> list[str] | None:
        """The words of the next line; None while it is not complete. Raises Invalid for one that never ends.

        Bytes that are not UTF-8 become surrogates.
        """
        end = self._buffer.find(b"\n", self._position)
        if end < 0:
            if len(self._buffer) - self._position > MAX_LINE_BYTES:
                raise Invalid(f"the command is longer than {MAX_LINE_BYTES} bytes")
            return None
        line = self._buffer[self._position : end]
        self._position = end + 1
        return line.strip(_SPACE).decode("utf-8", "surrogateescape").split(" ")

    def next_body(self) -> bytes | None:
        """`[4-byte size][data]`: the data; None while it is not complete. Raises BadBody."""
        start = self._position + SIZE_BYTES
        if len(self._buffer) < start:
            return None
        size = int.from_bytes(self._buffer[self._position : start], "big", signed=True)
        if not 0 <= size <= MAX_BODY_BYTES:
            raise BadBody("IDENTIFY failed to read body")
        if len(self._buffer) < start + size:
            return None
        self._position = start + size
        return self._buffer[start : start + size]

    def cut_short(self) -> BadBody:
        """Why a body is missing whose rest will not come."""
        missing = "body size" if len(self._buffer) - self._position < SIZE_BYTES else "body"
        return BadBody(f"IDENTIFY failed to read {missing}")
