"""Moving a channel in its topic's log: to a time, to the earliest retained message, or to the end."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from nsqd_py.broker.broker import Broker
from nsqd_py.broker.services import Topic
from nsqd_py.diskqueue.checking import read_by
from nsqd_py.diskqueue.compaction import holes
from nsqd_py.diskqueue.files.log_file import sync_directory
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.reading import RecordWindow
from nsqd_py.diskqueue.records import Damaged, Incomplete
from nsqd_py.runtime.threads import in_thread
from nsqd_py.settings.durations import parse_time

# The ends of a log, as targets of a seek.
EARLIEST = "earliest"
LATEST = "latest"

_Deferred = tuple[int, int, int]  # low, high (not included), due_ns


@dataclass(frozen=True, slots=True)
class SeekResult:
    """The new position of a channel: the next number, and the time of that message (ns since the epoch), if any.

    skipped  messages that were queued, and are finished without having been sent
    """

    seq: int
    timestamp_ns: int | None
    skipped: int


def parse_target(text: str, now_ns: int) -> str | int:
    """Return EARLIEST, LATEST, or a time in ns since the epoch. Raises ValueError."""
    if text in (EARLIEST, LATEST):
        return text
    return parse_time(text, now_ns)


def seek_channel(broker: Broker, topic: Topic, name: str, target: str | int) -> SeekResult:
    """Queue everything from `target` on in the channel; create the channel if there is none.

    Queued messages from before a time, or before the end of the log, are skipped if they were never sent. All others
    from before `target` keep their state. Only messages that the log still has can be queued. Return when the position
    is on the disk. Raises OSError. Blocks this greenlet.
    """
    log = topic.log
    assert log is not None
    topic.settle()
    requested = _seq_of(topic, log, target)
    not_due = _find_deferred(log, requested, broker.clock(), broker.services.threadpool)
    broker.journals.settle()
    channel = broker.make_channel(topic, name)
    if channel.journal is not None:
        broker.check_writable()
    # During the search, files may have been dropped or compacted.
    if target == LATEST:
        seq = topic.released
    else:
        seq = min(max(requested, log.earliest_seq), topic.released)
    skip_below = seq if target == LATEST else 0
    if isinstance(target, int):
        skip_below = log.seq_at(target)  # in compacted files, which are before `seq`
    missing = log.not_stored(holes(log.files, seq, topic.released))
    skipped = channel.seek(seq, not_due, missing, skip_below)
    broker.log.of_clients.info(
        "TOPIC(%s): channel(%s) goes on at message %d; %d queued messages are skipped",
        topic.name,
        name,
        seq,
        skipped,
    )
    broker.channel_changed(topic, channel)
    if channel.journal is not None:
        in_thread(broker.services.threadpool, channel.journal.sync)
        in_thread(broker.services.threadpool, sync_directory, log.directory)
    return SeekResult(seq, _timestamp_ns(topic, log, seq), skipped)


def _seq_of(topic: Topic, log: TopicLog, target: str | int) -> int:
    if isinstance(target, int):
        return log.seq_at(target, log.earliest_seq)
    if target == EARLIEST:
        return log.earliest_seq
    return log.next_seq


def _timestamp_ns(topic: Topic, log: TopicLog, seq: int) -> int | None:
    if seq >= topic.released:
        return None
    try:
        if log.history is not None and seq < log.first_seq:
            log.history.load(seq)
        batch = topic.messages.batch_at(seq)
    except OSError:  # the topic has reported it; the channel was moved
        return None
    if batch is not None:
        return batch.timestamp_ns
    return None


# ---- messages that were published with a delay and are not due


def _find_deferred(log: TopicLog, seq: int, now_ns: int, threadpool: Any) -> list[_Deferred]:
    """Return messages from `seq` on that are not due yet. Only a log with such messages is read: 100 ms per 100 MB.

    Those of stored files are not searched: before their file left the disk, each channel had finished them.
    """
    found: list[_Deferred] = []
    if log.latest_due_ns > now_ns:
        for file in list(log.files):
            if file.end_seq > seq and file in log.files:
                window = file.duplicate(), file.offset_before(seq), file.end_offset
                found += in_thread(threadpool, _deferred_in, *window, now_ns)
    return found


def _deferred_in(descriptor: int, offset: int, end_offset: int, now_ns: int) -> list[_Deferred]:
    """Return such messages of one file, whose descriptor is closed then. Runs in a thread. Raises OSError."""
    found = []
    try:
        for _, record in RecordWindow(read_by(descriptor), end_offset).headers(offset):
            if record.due_ns > now_ns:
                found.append((record.first_seq, record.end_seq, record.due_ns))
    except (Damaged, Incomplete):
        pass  # messages behind the damage in this file are delivered at once
    finally:
        os.close(descriptor)
    return found
