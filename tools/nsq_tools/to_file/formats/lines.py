"""`lines`: each body and a newline, byte for byte as Go's nsq_to_file writes them.

A body with newlines becomes several lines, and its end is lost; `jsonl` and `framed` keep such bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

from nsq_tools.to_file.compression import GZIP, NONE, ZSTD, Codec, Data
from nsq_tools.to_file.formats.format import Encoded, FileScan, Format, Warn
from nsq_tools.to_file.portions import Portion, Tally

NEWLINE_WARNING = (
    "there are messages with newlines in them: each becomes several lines, as with Go's nsq_to_file; "
    "--format=jsonl and --format=framed keep them whole"
)


class LinesEncoder:
    """The encoder of one file of lines."""

    header = b""

    def __init__(self, codec: Codec, level: int, warn: Warn) -> None:
        self._codec = codec
        self._level = level
        self._warn = warn

    def encode(self, portions: Sequence[Portion]) -> Encoded:
        data = b"\n".join(chain(chain.from_iterable(portion.bodies for portion in portions), (b"",)))
        if data.count(b"\n") != sum(map(len, portions)):
            self._warn(NEWLINE_WARNING)
        return Encoded(self._codec.compress(data, self._level), len(data))

    def empty(self) -> bytes:
        return self._codec.compress(b"", self._level)


def scan_lines(data: Data, codec: Codec, start: int, count: Callable[[Tally, bytes], None]) -> FileScan:
    """Scan the complete lines of a file. `count` adds a block of lines to the tally."""
    scan = FileScan(start)
    blocks: list[bytes] = []
    rest: list[bytes] = []
    for piece in codec.pieces(data, start):
        whole, newline, behind = piece.data.rpartition(b"\n")
        if newline:
            blocks.append(b"".join((*rest, whole, newline)))
            rest.clear()
        rest.append(behind)
        if piece.end:
            for block in blocks:
                count(scan.tally, block)
            blocks.clear()
            scan.end = piece.end - (sum(map(len, rest)) if codec.is_plain else 0)
    return scan


def _count_newlines(tally: Tally, block: bytes) -> None:
    tally.add_all(block.count(b"\n"))


def scan_plain_lines(data: Data, codec: Codec, start: int) -> FileScan:
    return scan_lines(data, codec, start, _count_newlines)


LINES = Format(
    name="lines",
    suffix=".log",
    codecs=(NONE, GZIP, ZSTD),
    overhead_bytes=1,
    encoder=LinesEncoder,
    scan=scan_plain_lines,
    is_appendable=True,
)
