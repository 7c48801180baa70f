"""Moving a channel in its topic's log: to a time, to the earliest kept message, or to the end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import gevent

from nsqd_py.broker.broker import Broker
from nsqd_py.diskqueue.compaction import holes
from nsqd_py.diskqueue.files import LogFile, sync_directory
from nsqd_py.diskqueue.journal import Journal
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.reading import RecordWindow
from nsqd_py.diskqueue.records import Damaged, Incomplete
from nsqd_py.queue.channel import Channel
from nsqd_py.queue.topic import Topic
from nsqd_py.runtime.threads import in_thread
from nsqd_py.settings.durations import parse_time

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
    return text if text in (EARLIEST, LATEST) else parse_time(text, now_ns)


def seek_channel(broker: Broker, topic: Topic, name: str, target: str | int) -> SeekResult:
    """Queue everything from `target` on in the channel; create the channel if there is none.

    Queued messages from before a time, or before the end of the log, are skipped if they were never sent. All others
    from before `target` keep their state. Only messages that the log still has can be queued. Return when the position
    is on the disk. Raises OSError. Blocks this greenlet.
    """
    log = topic.log
    assert log is not None
    topic.settle()
    wanted = _seq_of(topic, log, target)
    not_due = _find_deferred(log, wanted, broker.clock())
    broker.journals.settle()
    channel = broker.channels.make(topic, name)
    # During the search, files may have been dropped or compacted.
    seq = topic.released if target == LATEST else min(max(wanted, log.earliest_seq), topic.released)
    skip_below = seq if target == LATEST else 0
    if isinstance(target, int):
        skip_below = log.seq_at(target)  # in compacted files, which are before `seq`
    skipped = channel.seek(seq, not_due, holes(log.files, seq, topic.released), skip_below)
    broker.log.of_clients.info(
        "TOPIC(%s): channel(%s) goes on at message %d; %d queued messages are skipped", topic.name, name, seq, skipped
    )
    broker.replication.channel_changed(topic, channel)
    _bring_to_disk(channel, log)
    return SeekResult(seq, _timestamp_ns(topic, seq), skipped)


def _seq_of(topic: Topic, log: TopicLog, target: str | int) -> int:
    if isinstance(target, int):
        return log.seq_at(target, log.earliest_seq)
    return log.earliest_seq if target == EARLIEST else log.next_seq


def _timestamp_ns(topic: Topic, seq: int) -> int | None:
    if seq >= topic.released:
        return None
    try:
        batch = topic.batch_at(seq)
    except OSError:  # the topic has reported it; the channel was moved
        return None
    return batch.timestamp_ns if batch is not None else None


def _bring_to_disk(channel: Channel, log: TopicLog) -> None:
    journal = channel.journal
    if journal is not None:
        in_thread(gevent.get_hub().threadpool, _sync, journal, log)


def _sync(journal: Journal, log: TopicLog) -> None:
    journal.sync()
    sync_directory(log.directory)


# ---- messages that were published with a delay and are not due


def _find_deferred(log: TopicLog, seq: int, now_ns: int) -> list[_Deferred]:
    """Return messages from `seq` on that are not due yet. Only a log with such messages is read: 100 ms per 100 MB."""
    found: list[_Deferred] = []
    if log.latest_due_ns > now_ns:
        for file in list(log.files):
            if file.end_seq > seq and file in log.files:
                search = _Search(file, seq, now_ns)
                in_thread(gevent.get_hub().threadpool, search.run)
                found += search.found
    return found


class _Search:
    """A search through one file, in a thread."""

    def __init__(self, file: LogFile, seq: int, now_ns: int) -> None:
        self.found: list[_Deferred] = []
        self._fd = file.duplicate()
        self._offset = file.offset_before(seq)
        self._end_offset = file.end_offset
        self._now_ns = now_ns

    def run(self) -> None:
        """Run the search. Raises OSError."""
        try:
            self.found.extend(self._deferred())
        except (Damaged, Incomplete):
            pass  # messages behind the damage in this file are delivered at once
        finally:
            os.close(self._fd)

    def _deferred(self) -> Iterator[_Deferred]:
        for _, record in RecordWindow(self._fd, self._end_offset).headers(self._offset):
            if record.due_ns > self._now_ns:
                yield record.first_seq, record.end_seq, record.due_ns
