"""`framed`: the records of `nsqd_py.diskqueue.messages`. Each write makes one record for each nsqd.

Records have checksums, and a reader can find the next record from any position in a file. Each record is compressed
separately with zstd, so that a compressed file can be split.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from itertools import chain

from nsq_tools.to_file.compression import NONE, ZSTD, Codec, Data
from nsq_tools.to_file.formats.format import Encoded, FileScan, Format, Warn
from nsq_tools.to_file.portions import Portion
from nsqd_py.diskqueue.messages import Messages, encode_messages, record_positions
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, Damaged, FileHeader


class FramedEncoder:
    """The encoder of one file of records."""

    def __init__(self, codec: Codec, level: int, warn: Warn) -> None:
        self._salt = secrets.randbits(32)
        self._next_seq = 0
        self._zstd_level = None if codec.is_plain else level
        self.header = FileHeader(self._salt, first_seq=0, used_id=0).encode()

    def encode(self, portions: Sequence[Portion]) -> Encoded:
        by_nsqd: dict[str, list[Portion]] = {}
        for portion in portions:
            by_nsqd.setdefault(portion.nsqd, []).append(portion)
        records = [self._record(of_one) for of_one in by_nsqd.values()]
        return Encoded(b"".join(records), sum(portion.size_bytes for portion in portions))

    def _record(self, portions: Sequence[Portion]) -> bytes:
        messages = joined(portions)
        record = encode_messages(messages, self._next_seq, self._salt, self._zstd_level)
        self._next_seq += len(messages)
        return record

    def empty(self) -> bytes:
        return b""


def joined(portions: Sequence[Portion]) -> Messages:
    """Return the messages of several portions of the same topic, channel and nsqd."""
    first = portions[0]
    return Messages(
        first.topic,
        first.channel,
        first.nsqd,
        list(chain.from_iterable(portion.timestamps_ns for portion in portions)),
        list(chain.from_iterable(portion.attempts for portion in portions)),
        list(chain.from_iterable(portion.ids for portion in portions)),
        list(chain.from_iterable(portion.bodies for portion in portions)),
    )


def scan_records(data: Data, codec: Codec, start: int) -> FileScan:
    """Scan a file of records. A damaged record before a valid one is skipped; only an incomplete end is excluded."""
    scan = FileScan()
    try:
        salt = FileHeader.decode(data[:FILE_HEADER_BYTES]).salt
    except Damaged:
        return scan
    scan.end = FILE_HEADER_BYTES
    for position, header in record_positions(data, FILE_HEADER_BYTES, salt):
        scan.end = position + header.record_bytes
        scan.tally.add_all(header.count, header.timestamp_ns, header.base_id)
    return scan


FRAMED = Format(
    name="framed",
    suffix=".framed",
    codecs=(NONE, ZSTD),
    overhead_bytes=30,
    encoder=FramedEncoder,
    scan=scan_records,
    gathers=True,
)
