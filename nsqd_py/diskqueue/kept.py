"""Reading records of a log by sequence number, for readers that are no channel. They are encoded with the salt 0."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from nsqd_py.diskqueue.files import LogFile
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.records import Damaged, FileHeader, Incomplete, decode, decode_header, encode_record
from nsqd_py.diskqueue.recovery import find_record

SALT = 0
_PIECE_BYTES = 256 * 1024


@dataclass(slots=True)
class KeptRecords:
    """Whole records, in order.

    asked_seq  the first requested message that the log still has
    next_seq   the number after the last one, where the next read begins
    """

    asked_seq: int
    next_seq: int
    records: list[bytes] = field(default_factory=list)
    size_bytes: int = 0

    @property
    def first_seq(self) -> int:
        """The number of the first message in the records."""
        return decode_header(self.records[0], 0).first_seq if self.records else self.next_seq

    def encode(self) -> bytes:
        """Return the records as a log file."""
        return b"".join([FileHeader(SALT, self.first_seq, 0).encode(), *self.records])


def read_kept(log: TopicLog, seq: int, most_bytes: int, in_thread: Callable[[Callable[[], None]], None]) -> KeptRecords:
    """Return records from the one that holds `seq`, or the next one, up to about `most_bytes`; at least one.

    Raises OSError. Blocks as `in_thread` does.
    """
    seq = max(seq, log.earliest_seq)
    kept = KeptRecords(seq, seq)
    while kept.size_bytes < most_bytes:
        file = _file_with(log, kept.next_seq)
        if file is None:
            kept.next_seq = max(kept.next_seq, log.next_seq)
            break
        piece = _Piece(file, kept.next_seq, most_bytes - kept.size_bytes, has_some=bool(kept.records))
        try:
            in_thread(piece.read)
        finally:
            os.close(piece.descriptor)
        for start, end in piece.damaged:
            if file in log.files:
                log.report_damage(file, start, end)
        kept.records += piece.records
        kept.size_bytes += sum(map(len, piece.records))
        kept.next_seq = piece.next_seq
        if piece.is_full:
            break
    kept.asked_seq = max(seq, kept.first_seq)
    return kept


def _file_with(log: TopicLog, seq: int) -> LogFile | None:
    """Return the first file with messages from `seq` on, or None."""
    return next((file for file in log.files if file.end_seq > seq and file.end_seq > file.first_seq), None)


class _Piece:
    """About 256 KiB of one file, up to its end when this was made.

    is_full   True if a record was left out because it exceeds `most_bytes`
    has_some  True if there are records before this piece; otherwise it takes at least one
    damaged   byte ranges that were skipped
    """

    def __init__(self, file: LogFile, seq: int, most_bytes: int, *, has_some: bool) -> None:
        self.descriptor = file.duplicate()
        self.records: list[bytes] = []
        self.next_seq = seq
        self.is_full = False
        self.damaged: list[tuple[int, int]] = []
        self._salt = file.salt
        self._offset = file.offset_before(seq)
        self._end_offset = file.end_offset
        self._end_seq = file.end_seq
        self._left_bytes = most_bytes
        self._has_some = has_some

    def read(self) -> None:
        """Read the piece; runs in a thread. Raises OSError."""
        wanted = _PIECE_BYTES
        while self._offset < self._end_offset and not self.records and not self.is_full:
            data = os.pread(self.descriptor, min(wanted, self._end_offset - self._offset), self._offset)
            if not data:  # another program truncated the file
                self.damaged.append((self._offset, self._end_offset))
                self._offset = self._end_offset
                break
            position = 0
            try:
                while position < len(data) and not self.is_full:
                    position = self._take(data, position)
            except Incomplete as incomplete:
                if self._offset + position + incomplete.needed > self._end_offset:
                    position = self._pass_damage(position)
                elif position == 0:
                    wanted = incomplete.needed
            except Damaged:
                position = self._pass_damage(position)
            self._offset += position
        if self._offset >= self._end_offset:
            self.next_seq = max(self.next_seq, self._end_seq)

    def _take(self, data: bytes, position: int) -> int:
        """Take the record at `position` if it was asked for; return where the next one begins."""
        header = decode_header(data, position)
        if header.end_seq <= self.next_seq:
            if position + header.record_bytes > len(data):
                raise Incomplete(header.record_bytes)
            return position + header.record_bytes
        if header.record_bytes > self._left_bytes and self._has_some:
            self.is_full = True
            return position
        batch, after = decode(data, position, self._salt)
        self.records.append(encode_record(batch, SALT))
        self.next_seq = batch.end_seq
        self._left_bytes -= header.record_bytes
        self._has_some = True
        return after

    def _pass_damage(self, position: int) -> int:
        """Note a damaged record; return where the next valid one begins, relative to the offset."""
        if self.records:
            return position
        data = os.pread(self.descriptor, self._end_offset - self._offset, self._offset)
        found = find_record(data, position + 1, self._salt)
        after = found if found is not None else len(data)
        self.damaged.append((self._offset + position, self._offset + after))
        return after
