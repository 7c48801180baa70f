"""From a time to a number: the first message of a log, in the order of numbers, of that time or later.

Clocks step back: a time may come twice, and the first place counts. So all before it is older.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest

from nsqd_py.diskqueue.files import LogFile
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, Damaged, Incomplete, RecordHeader
from nsqd_py.diskqueue.walking import RecordWindow
from nsqd_py.guid import id_time_ns


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


def first_published_since(
    files: Sequence[LogFile], steady_ns: int, low: int, *, by_timestamp: bool = False
) -> int | None:
    """Return the number of the first message from `low` on whose id was handed out at `steady_ns` or later, or None.

    Ids rise with the steady clock, whatever the wall clock does. Those of dead letters do not: where there may be such
    (`by_timestamp`), the place that the timestamps lead to counts, if it is before. Raises OSError.
    """
    for file, following in zip_longest(files, files[1:]):
        # A file's header has the highest id before it.
        newest_id = following.header.used_id if following is not None else 0
        if file.end_seq <= low or (newest_id and id_time_ns(newest_id) < steady_ns):
            continue
        offset = _place_before(file, steady_ns)
        if by_timestamp:
            offset = min(offset, file.offset_before_time(steady_ns))
        offset = max(offset, file.offset_before(low))
        found = _first_from(file, offset, low, lambda record: id_time_ns(record.base_id) >= steady_ns)
        if found is not None:
            return found
    return None


def _place_before(file: LogFile, steady_ns: int) -> int:
    """Return the offset of a record before which there are only ids of an earlier time. Raises OSError."""
    window = RecordWindow(file.fileno(), file.end_offset)

    def is_young(offset: int) -> bool:
        try:
            return id_time_ns(window.header(offset).base_id) >= steady_ns
        except (Damaged, Incomplete):
            return True  # rather too early

    places = file.places()
    return places[max(0, bisect_left(places, True, key=is_young) - 1)]


def _first_in(file: LogFile, timestamp_ns: int, low: int) -> int | None:
    offset = max(file.offset_before_time(timestamp_ns), file.offset_before(low))
    return _first_from(file, offset, low, lambda record: record.timestamp_ns >= timestamp_ns)


def _first_from(file: LogFile, offset: int, low: int, is_wanted: Callable[[RecordHeader], bool]) -> int | None:
    """Return the number of the first message from `low` on that is wanted, reading on from `offset`, or None."""
    reached = max(file.first_seq, low)
    try:
        for _, record in RecordWindow(file.fileno(), file.end_offset).headers(offset):
            if is_wanted(record) and record.end_seq > low:
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
