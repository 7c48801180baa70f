"""Which messages of a log some channel needs, and which are retained."""

from __future__ import annotations

from collections.abc import Iterator

from nsqd_py.broker.services import Topic
from nsqd_py.diskqueue.compaction import retained_seq
from nsqd_py.diskqueue.files.log_file import LogFile
from nsqd_py.diskqueue.journals.ranges import Range, union
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.protocol.message_ids import id_time_ns
from nsqd_py.runtime.pacing import WorkSlices

_COUNT_AT_ONCE = 16_384  # messages that are checked without a pause


def living(topic: Topic, low: int, high: int) -> list[Range]:
    """Return the numbers in low..high (not included) that some channel needs, or none has received yet.

    A channel needs what is neither finished nor lost.
    """
    ranges = []
    if high > topic.released:
        ranges = [(max(low, topic.released), high)]
    for channel in topic.channels.values():
        ranges += channel.position.unsettled(low, high)
    return union(ranges)


def living_of(topic: Topic, file: LogFile, slices: WorkSlices) -> list[Range]:
    """Return the live numbers of a file; the search through a large file pauses in between."""
    found = []
    for low, high in _portions(file):
        found += living(topic, low, high)
        slices.sleep_if_due()
    return union(found)


def _portions(file: LogFile) -> Iterator[Range]:
    """Yield the file's numbers in ranges of about _COUNT_AT_ONCE messages."""
    low = file.first_seq
    count = 0
    for segment in list(file.segments()):
        count += segment.message_count
        if count >= _COUNT_AT_ONCE or segment.high == file.end_seq:
            yield low, segment.high
            low = segment.high
            count = 0


def retained_from(topic: Topic, now_ns: int, steady_ns: int) -> int:
    """Return the number from which on retention keeps everything.

    `now_ns` is the wall clock, `steady_ns` the steady clock. The one that keeps more decides, so that setting a clock
    drops nothing too early.
    """
    log = topic.log
    policy = topic.policy
    assert log is not None
    if not policy.retention_ns and not policy.retention_bytes:
        return log.next_seq
    retained = retained_seq(log.files, policy.retention_ns, policy.retention_bytes, now_ns, log.next_seq)
    if not policy.retention_ns:
        return retained
    return min(retained, _young_from(log, steady_ns - policy.retention_ns))


def _young_from(log: TopicLog, oldest_ns: int) -> int:
    """Return the number from which on files may have ids of that time or later."""
    young = log.next_seq
    newest_id = log.used_id
    for file in reversed(log.files):
        if not file.is_whole or id_time_ns(newest_id) <= oldest_ns:
            break
        young = file.first_seq
        newest_id = file.header.used_id
    return young
