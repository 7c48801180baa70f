r"""Records between delimiters: chunks of any size become batches, which are split by the size limits of an nsqd. Pure.

No Python code handles single bytes; 1 MiB of lines of 200 bytes takes 0.3 ms.

nsqd tells its limits only when it refuses a command, of which it then has stored nothing:
`E_BAD_MESSAGE MPUB message too big 1500 > 1000`, `E_BAD_BODY MPUB body too big ...`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, compress
from typing import NamedTuple

from nsqd_py.batch import SIZE_BYTES

_ESCAPES = {"\\0": b"\0", "\\a": b"\a", "\\n": b"\n", "\\r": b"\r", "\\t": b"\t", "\\\\": b"\\"}
_HEX = re.compile(r"\\x([0-9a-fA-F]{2})")


def parse_delimiter(text: str) -> bytes:
    r"""Return the byte between two records: the text or an escape such as `\0`, `\t`, `\x1e`. Raises ValueError."""
    if text in _ESCAPES:
        return _ESCAPES[text]
    if hexadecimal := _HEX.fullmatch(text):
        return bytes.fromhex(hexadecimal[1])
    delimiter = text.encode("utf-8", "surrogateescape")
    if len(delimiter) != 1:
        raise ValueError(r"--delimiter must be a single byte (or \n, \t, \r, \0, \\, \x1e...)")
    return delimiter


# No nsqd accepts a message of this size, so a longer record is not kept in memory.
MAX_RECORD_BYTES = 64 << 20


class RecordBatch(NamedTuple):
    """Consecutive records of the input, without empty ones.

    lines  the number of each record in the input, from 1; empty records count
    """

    records: Sequence[bytes]
    lines: Sequence[int]

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.records))

    def part(self, start: int, end: int) -> RecordBatch:
        return RecordBatch(self.records[start:end], self.lines[start:end])


class Refusal(NamedTuple):
    """A record that is not published, and the reason: `it takes no more than 1000`."""

    line: int
    size_bytes: int
    reason: str


NOTHING = RecordBatch((), ())


class RecordReader:
    """Splits the input at each delimiter.

    lines  the number of records so far, including empty ones
    """

    def __init__(self, delimiter: bytes, max_record_bytes: int = MAX_RECORD_BYTES) -> None:
        self.lines = 0
        self._too_large: list[Refusal] = []
        self._delimiter = delimiter
        self._max_record_bytes = max_record_bytes
        self._pieces: list[bytes] = []  # of an incomplete record
        self._pieces_bytes = 0

    @property
    def unended_bytes(self) -> int:
        """Return the number of bytes after the last delimiter."""
        return self._pieces_bytes

    def feed(self, chunk: bytes) -> RecordBatch:
        """Return the records that end in this chunk."""
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

    def finish(self) -> RecordBatch:
        """Return the last record, if the input does not end with a delimiter.

        If the delimiter is not a line feed, a line feed at the end of the input is not part of the last record:
        the last record of `echo a,b,c` is `c`. (Go's to_nsq removes the last byte, whatever it is.)
        """
        last = b"".join(self._pieces)
        if not self._pieces_bytes:
            return NOTHING
        if self._delimiter != b"\n" and last.endswith(b"\n"):
            self._pieces = [last[:-1]]
            self._pieces_bytes -= 1
        return self._batch(self._take_first())

    def take_too_large(self) -> list[Refusal]:
        """Return the records since the last call that are larger than `max_record_bytes`."""
        taken, self._too_large = self._too_large, []
        return taken

    def _keep(self, piece: bytes) -> None:
        self._pieces_bytes += len(piece)
        if self._pieces_bytes > self._max_record_bytes:
            self._pieces.clear()
        elif piece:
            self._pieces.append(piece)

    def _take_first(self) -> list[bytes]:
        """Return the record that is now complete, or an empty list if it is too large."""
        size_bytes, self._pieces_bytes = self._pieces_bytes, 0
        pieces, self._pieces = self._pieces, []
        if size_bytes <= self._max_record_bytes:
            return [b"".join(pieces)]
        self.lines += 1
        reason = f"to-nsq takes no more than {self._max_record_bytes}"
        self._too_large.append(Refusal(self.lines, size_bytes, reason))
        return []

    def _batch(self, records: list[bytes]) -> RecordBatch:
        first = self.lines + 1
        self.lines += len(records)
        lines = range(first, self.lines + 1)
        if all(records):
            return RecordBatch(records, lines)
        return RecordBatch(list(filter(None, records)), list(compress(lines, records)))


COUNT_BYTES = 4

_TOO_BIG = re.compile(r"(message|body) too big -?\d+ > (\d+)")


class SplitResult(NamedTuple):
    """Batches that nsqd accepts, each as one MPUB or, for one record, one PUB; and the records that it refuses."""

    parts: list[RecordBatch]
    refused: list[Refusal]


class Limits:
    """The size limits of one nsqd, as far as they are known."""

    def __init__(self, max_body_bytes: int) -> None:
        """`max_body_bytes`: the maximum size of an MPUB, even if nsqd accepts more."""
        self.max_message_bytes: int | None = None
        self.max_body_bytes = max_body_bytes

    def learn(self, refusal: str) -> bool:
        """Take a limit from the text of an error. Return True if it is a new one."""
        said = _TOO_BIG.search(refusal)
        if said is None:
            return False
        limit_bytes = int(said[2])
        if said[1] == "body":
            is_new = limit_bytes < self.max_body_bytes
            self.max_body_bytes = min(limit_bytes, self.max_body_bytes)
        else:
            is_new = self.max_message_bytes is None or limit_bytes < self.max_message_bytes
            self.max_message_bytes = limit_bytes
        return is_new

    def fit(self, batch: RecordBatch) -> SplitResult:
        """Split the batch into the smallest number of parts that this nsqd accepts."""
        limit_bytes = self.max_message_bytes
        if limit_bytes is None or all(len(record) <= limit_bytes for record in batch.records):
            return SplitResult(list(self._parts(batch)), [])
        pairs = list(zip(batch.records, batch.lines, strict=True))
        kept = [pair for pair in pairs if len(pair[0]) <= limit_bytes]
        reason = f"it takes no more than {limit_bytes}"
        refused = [Refusal(line, len(record), reason) for record, line in pairs if len(record) > limit_bytes]
        smaller = RecordBatch([record for record, _ in kept], [line for _, line in kept])
        return SplitResult(list(self._parts(smaller)), refused)

    def _parts(self, batch: RecordBatch) -> Iterator[RecordBatch]:
        """Yield parts with a body of at most `max_body_bytes`, or with one record."""
        ends = list(accumulate(len(record) + SIZE_BYTES for record in batch.records))
        room_bytes = self.max_body_bytes - COUNT_BYTES
        start = sent_bytes = 0
        while start < len(ends):
            end = max(bisect_right(ends, sent_bytes + room_bytes, lo=start), start + 1)
            yield batch.part(start, end)
            start, sent_bytes = end, ends[end - 1]


def halves(batch: RecordBatch) -> SplitResult:
    """Split a batch in two, after a refusal that names no limit."""
    middle = len(batch.records) // 2
    return SplitResult([batch.part(0, middle), batch.part(middle, len(batch.records))], [])
