"""From a time to a number: the first message of a log, in the order of numbers, of that time or later.

Clocks step back: a time may come twice, and the first place counts. So all before it is older.
"""

from __future__ import annotations

from collections.abc import Iterable

from nsqd_py.diskqueue.files import LogFile
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, Damaged, Incomplete, RecordHeader
from nsqd_py.diskqueue.walking import RecordWindow


def first_since(files: Iterable[LogFile], timestamp_ns: int, low: int) -> int | None:
    """The number of the first message from `low` on that was published at `timestamp_ns` or later; None: none was.

    Reads up to about 256 KiB of one file. Raises OSError.
    """
    for file in files:
        if file.end_seq > low and file.newest_ns >= timestamp_ns:
            found = _first_in(file, timestamp_ns, low)
            if found is not None:
                return found
    return None


def _first_in(file: LogFile, timestamp_ns: int, low: int) -> int | None:
    offset = max(file.offset_before_time(timestamp_ns), file.offset_before(low))
    reached = max(file.first_seq, low)
    try:
        for _, record in RecordWindow(file.fileno(), file.end_offset).headers(offset):
            if record.timestamp_ns >= timestamp_ns and record.end_seq > low:
                return max(record.first_seq, low)
            reached = max(reached, record.end_seq)
    except (Damaged, Incomplete):
        return reached  # rather too early: what is behind it may be of that time
    return None


def first_record(file: LogFile) -> RecordHeader | None:
    """What the file's first record says of itself; None where it cannot be read. Raises OSError."""
    try:
        return RecordWindow(file.fileno(), file.end_offset).header(FILE_HEADER_BYTES)
    except (Damaged, Incomplete):
        return None
