"""Writes the batches of a topic to its log: in the event loop while the disk is quick, else in a thread."""

from __future__ import annotations

from time import monotonic_ns
from typing import TYPE_CHECKING

from nsqd_py.batch import Batch
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.open_files import OPEN_FILES
from nsqd_py.queue.publish_buffer import Tickets
from nsqd_py.runtime.disk_pace import NOTED_NS, DiskPace

if TYPE_CHECKING:
    from nsqd_py.broker.slow_disk import SlowWriter

# A larger publish is written in a thread, also while the disk is quick. A publish of 5 MB blocked the loop for 7 to 15
# ms, for its checksum and the copy to the page cache; now for 1.5 ms, or 5 ms if it has a million messages.
_AT_ONCE_BYTES = 2 * 1024 * 1024


def append(
    log: TopicLog,
    pace: DiskPace,
    writer: SlowWriter | None,
    batches: list[Batch],
    size_bytes: int,
    publishers: Tickets,
    *,
    is_in_thread: bool,
) -> bool:
    """Append batches to a log. Return False if a thread writes them, or the rest of them. Raises OSError.

    is_in_thread  True while the thread still writes earlier batches
    """
    if writer is not None and (is_in_thread or pace.is_slow or size_bytes > _AT_ONCE_BYTES):
        writer.add(batches, publishers)
        return False
    if append_at_once(log, pace, batches, size_bytes):
        return True
    if writer is not None and log.opens_file(size_bytes) and not OPEN_FILES.has_room():
        writer.add(batches, publishers)
        return False
    return _append_in_steps(log, pace, writer, batches, publishers)


def append_at_once(log: TopicLog, pace: DiskPace, batches: list[Batch], size_bytes: int) -> bool:
    """Append with one system call and return True; if it takes more than one, do nothing and return False.

    Raises OSError.
    """
    began_ns = monotonic_ns()
    try:
        return log.append_at_once(batches, size_bytes)
    finally:
        took_ns = monotonic_ns() - began_ns
        if took_ns >= NOTED_NS:
            pace.note(took_ns)


def _append_in_steps(log: TopicLog, pace: DiskPace, writer: SlowWriter | None, batches: list[Batch], publishers: Tickets) -> bool:
    """Append with several system calls. After a slow one, a thread does the rest. Return and raise as `append`."""
    appending = log.begin_append(batches)
    try:
        while not appending.is_written:
            if writer is not None and pace.is_slow:
                writer.go_on(appending, publishers)
                return False
            pace.timed(appending.step)
    except BaseException:
        log.end_append(appending)
        raise
    log.end_append(appending)
    return True
