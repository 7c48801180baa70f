"""The primary's side of one standby: sends what is new in files, in rounds, each of which the standby acknowledges.

Nothing is kept in memory for a standby: a round reads the files, from where the last one stopped. First come the new
records of all changed logs, then the entries of their journals, then `nsqd.dat`, then the names of files that are gone.
So whenever the stream ends, the standby's directory is one that nsqd could have left when it was killed.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import gevent
from gevent.event import Event
from google_crc32c import extend

from nsqd_py.broker.broker import Broker
from nsqd_py.broker.services import Topic
from nsqd_py.broker.state_files import CLOCK_FILE, METADATA_FILE
from nsqd_py.diskqueue.files.log_file import LogFile, log_file_name
from nsqd_py.diskqueue.journals.epochs import EPOCHS_FILE
from nsqd_py.diskqueue.journals.journal import DELETED, encode_entry, journal_name
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.errors import Invalid
from nsqd_py.net.transport import Stream
from nsqd_py.queue.channel import Channel
from nsqd_py.queue.storage import PositionJournal
from nsqd_py.runtime.pacing import WorkSlices
from nsqd_py.runtime.threads import in_thread
from nsqd_py.standby import messages
from nsqd_py.standby.messages import BEGIN, COMMIT, PART, REMOVE, WRITE, Offer, StandbyLag, TopicListing

_PIECE_BYTES = 256 * 1024
# What a standby that follows has not got yet was just written, so that reading it does not wait for the disk. A thread
# reads what is further back, and the first copy.
_RECENT_BYTES = 1024 * 1024
# The standby has not taken these bytes yet: wait.
_MOST_QUEUED_BYTES = 1024 * 1024
_LOOK_FOR_ROOM_S = 0.001
# The pause after a round that no publisher waits for. Without it, 16 publishers caused a round for every ten messages; primary
# and standby took 10 us of processor a message for that, now 4.
_PAUSE_S = 0.002
_FEW_TOPICS = 4

# The version and the size of journals at one moment.
Ends: TypeAlias = "dict[Channel, tuple[int, int]]"


@dataclass(slots=True)
class _SentFile:
    """A log file, as far as it is sent."""

    salt: int
    end_offset: int = 0


@dataclass(slots=True)
class _SentJournal:
    """A journal, as far as it is sent; `version` changes when the file is replaced."""

    journal: PositionJournal
    version: int
    end_offset: int


@dataclass(slots=True)
class _SentTopic:
    """The part of a topic that the standby was sent.

    name        of the topic
    log         its log; a topic that is recreated has another one
    files       by first sequence number
    listed      the list of files at that time; another list means that files were dropped or replaced
    whole_count  number of files at the beginning of `listed` that will not grow
    next_seq    the number after the last message
    replaced    files of which the standby has another version, by first sequence number
    gone        names of files that were dropped
    may_go      those of them that were dropped before the journals that are sent next
    """

    name: str
    log: TopicLog
    files: dict[int, _SentFile] = field(default_factory=dict)
    listed: Any = None
    whole_count: int = 0
    next_seq: int = 0
    journals: dict[str, _SentJournal] = field(default_factory=dict)
    replaced: set[int] = field(default_factory=set)
    gone: list[str] = field(default_factory=list)
    may_go: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Unacknowledged:
    """A round on its way: the write that it covers, when it began, and what was sent until its end."""

    number: int
    covers: int
    began_ns: int
    messages: int
    size_bytes: int


class _Gone(Exception):
    """The connection of the standby has ended."""


@dataclass(eq=False, repr=False)
class StandbyStream:
    """Everything that one standby gets. With `_is_awaited`, publishers wait for acknowledgements.

    acknowledged_write  number of the last write that it has, see `Standbys`
    is_following        True when it has acknowledged the first round: everything that there was when it connected
    """

    client: Stream
    _broker: Broker
    _directory: Path
    offer: Offer
    _threadpool: Any
    _last_write: Callable[[], int]
    _on_acknowledged: Callable[[], None]
    _is_awaited: bool
    acknowledged_write: int = 0
    is_following: bool = False
    _topics: dict[str, _SentTopic] = field(default_factory=dict)
    _changed: dict[Topic, set[Channel]] = field(default_factory=dict)
    _positions: set[str] = field(default_factory=set)  # topics whose own position was written
    _deleted: dict[str, None] = field(default_factory=dict)
    _removed: list[str] = field(default_factory=list)
    _is_metadata_new: bool = True
    _are_epochs_new: bool = True
    _wake: Event = field(default_factory=Event)
    _is_postponed: bool = False
    _is_idle: bool = False  # the greenlet waits for the next round
    _round: int = 0
    _unacknowledged: deque[_Unacknowledged] = field(default_factory=deque)
    _sent_messages: int = 0
    _sent_bytes: int = 0
    _acknowledged_messages: int = 0
    _acknowledged_bytes: int = 0
    _since_ns: int = 0  # when the first of the changes that no round has yet was made
    _to_copy_bytes: int = 0
    _slices: WorkSlices = field(default_factory=WorkSlices)
    _greenlet: Any = None

    def start(self) -> None:
        self._greenlet = gevent.spawn(self._run)

    def stop(self) -> None:
        """End; the connection is closed already, or its owner closes it."""
        # The greenlet keeps the exception that ends it, whose frames refer to this: no cycle may remain.
        greenlet, self._greenlet, self._is_idle = self._greenlet, None, False
        if greenlet is not None:
            greenlet.kill(block=False)

    # ---- what has changed

    def topic_changed(self, topic: Topic) -> None:
        """Send what is new in the log of this topic."""
        self._changed.setdefault(topic, set())
        self._wake_up()

    def channel_changed(self, topic: Topic, channel: Channel) -> None:
        """Send what is new in the journal of this channel, or that it is deleted."""
        self._changed.setdefault(topic, set()).add(channel)
        self._wake_up()

    def position_written(self, topic: Topic) -> None:
        """Send the position of the topic itself."""
        self._positions.add(topic.name)
        self.topic_changed(topic)

    def topic_deleted(self, name: str) -> None:
        self._deleted[name] = None
        self._wake_up()

    def metadata_written(self) -> None:
        self._is_metadata_new = True
        self._wake_up()

    def tick(self) -> None:
        """Begin a round, if none is running, although no publish may have changed anything: files may have been dropped."""
        for name, sent in self._topics.items():
            topic = self._broker.topics.get(name)
            if topic is not None and topic.log is sent.log and sent.listed is not sent.log.files:
                self._changed.setdefault(topic, set())
        self._wake.set()

    def _wake_up(self) -> None:
        if not self._since_ns:
            self._since_ns = self._broker.clock()
        if not (self._is_awaited and self.is_following):
            self._wake.set()
        elif not self._is_postponed:
            self._is_postponed = True
            self._broker.iteration.add_deferred_deliverer(self)

    def deliver(self) -> None:
        """Begin a round that publishers wait for, since no other input is ready that it could cover too.

        With 16 publishers, the primary takes 15 to 17 us of processor a message, not 19, and the standby 5.5, not 7.5.
        """
        self._is_postponed = False
        if not self._can_send_at_once():
            self._wake.set()
            return
        try:
            self._send_round()
        except Exception as error:  # noqa: BLE001 - else the next round would acknowledge what this one lacks
            self._end(error)

    def _can_send_at_once(self) -> bool:
        """True if the next round has only new records of few topics, so that nothing has to wait for the disk or the standby."""
        if not self._is_idle or len(self._changed) > _FEW_TOPICS or any(self._changed.values()):
            return False
        client, others = (
            self.client,
            (self._positions, self._deleted, self._removed, self._is_metadata_new, self._are_epochs_new),
        )
        if any(others) or client.out or client.unsent_bytes or self._broker.disk_speed.is_slow:
            return False
        return (
            all(topic.name in self._topics for topic in self._changed)
            and self._unsent().size_bytes < _PIECE_BYTES
        )

    # ---- what the standby says

    def waits_ns(self, now_ns: int) -> int:
        """Return how long the oldest round that is sent has waited for its acknowledgement."""
        return now_ns - self._unacknowledged[0].began_ns if self._unacknowledged else 0

    def acknowledge(self, number: int) -> None:
        """The standby has written this round and all before. Raises Invalid if it was not sent."""
        if not 0 < number <= self._round:
            raise Invalid(f"cannot ACK {number}: {self._round} rounds were sent")
        while self._unacknowledged and self._unacknowledged[0].number <= number:
            done = self._unacknowledged.popleft()
            self.acknowledged_write = done.covers
            self._acknowledged_messages, self._acknowledged_bytes = done.messages, done.size_bytes
            self.is_following = True
        self._on_acknowledged()

    @property
    def lag(self) -> StandbyLag:
        """The lag of the standby; its first copy counts in bytes only."""
        unsent = self._unsent()
        began = [each.began_ns for each in list(self._unacknowledged)[:1]] + [self._since_ns] * bool(
            self._since_ns
        )
        behind_ns = self._broker.clock() - min(began) if began else 0
        count = unsent.messages + self._sent_messages - self._acknowledged_messages
        return StandbyLag(
            count, unsent.size_bytes + self._sent_bytes - self._acknowledged_bytes, behind_ns // 1_000_000
        )

    def _unsent(self) -> StandbyLag:
        """The changes that no round has sent yet."""
        messages_behind, bytes_behind = 0, self._to_copy_bytes
        for topic in self._changed:
            sent = self._topics.get(topic.name)
            if sent is not None and sent.log is topic.log:
                messages_behind += max(0, topic.next_seq - sent.next_seq)
                for file in sent.log.files[sent.whole_count :]:
                    before = sent.files.get(file.first_seq)
                    bytes_behind += file.end_offset - (before.end_offset if before is not None else 0)
        behind_ns = self._broker.clock() - self._since_ns if self._since_ns else 0
        return StandbyLag(messages_behind, max(0, bytes_behind), behind_ns // 1_000_000)

    # ---- rounds, in a greenlet

    def _run(self) -> None:
        try:
            # A restart must keep the epochs that the standby gets. In its own greenlet: `stop` must not end a write in a thread.
            gevent.spawn(self._broker.metadata.persist).get()
            self._list_topics()
            while True:
                self._send_round()
                if self.is_following and not self._is_awaited:
                    gevent.sleep(_PAUSE_S)
                if self._round > 1 or not self.offer.is_backup:  # which waits for a second round
                    self._is_idle = True
                    self._wake.wait()
                    self._is_idle = False
                self._wake.clear()
        except Exception as error:  # noqa: BLE001 - logged
            self._end(error)

    def _end(self, error: Exception) -> None:
        if isinstance(error, OSError):
            self.client.close(f"failed to read what the standby needs - {error}")
        elif not isinstance(error, _Gone):
            self._broker.log.exception("STANDBY(%s): %r", self.client.peer, error)
            self.client.close("internal error")

    def _list_topics(self) -> None:
        """Send which files there are; the first round then has what the standby lacks of them."""
        topics = [topic for topic in self._broker.topics.values() if topic.log is not None]
        offered = {topic: self._matching(topic) for topic in topics}
        for topic in topics:
            if not topic.is_closed and topic.log is not None:
                self._list_topic(topic, topic.log, offered[topic])
        self._send(messages.listed_frame())
        self._send_file(CLOCK_FILE)
        self._positions.update(topic.name for topic in topics)
        for topic in topics:
            self._changed.setdefault(topic, set()).update(topic.channels.values())

    def _send_round(self) -> None:
        self._since_ns = 0
        self._slices = WorkSlices()
        self._round += 1
        covers = self._last_write()
        deleted, self._deleted = self._deleted, {}
        for name in deleted:
            if name not in self._broker.topics:
                self._topics.pop(name, None)
                self._send(messages.topic_frame(TopicListing(name)))
        changed, self._changed = self._changed, {}
        self._send_topics(changed)
        self._to_copy_bytes = 0
        if self._are_epochs_new:
            self._are_epochs_new = False
            # Not from the disk: the copy needs them as soon as it has a log.
            self._send_new_version(EPOCHS_FILE, self._broker.encode_epochs())
        if self._is_metadata_new:
            self._is_metadata_new = False
            self._send_file(METADATA_FILE)
        removed, self._removed = self._removed, []
        for name in removed:
            self._send(messages.file_frame(REMOVE, name))
        done = _Unacknowledged(
            self._round, covers, self._broker.clock(), self._sent_messages, self._sent_bytes
        )
        self._unacknowledged.append(done)
        self._send(messages.round_frame(self._round, self._unsent()))

    # ---- one topic

    def _matching(self, topic: Topic) -> dict[str, int]:
        """Return the files of a topic that the standby has, and how many bytes of each."""
        log, offered = topic.log, self.offer.logs.get(topic.name)
        if log is None or offered is None or offered.epochs[-1:] != log.epochs[-1:]:
            return {}
        found = {}
        for file in list(log.files):
            self._slices.sleep_if_due()
            mine = offered.files.get(file.path.name)
            if mine is None or mine.salt != file.salt or not 0 < mine.end_offset <= file.end_offset:
                continue
            start = max(0, mine.end_offset - messages.CHECKED_BYTES)
            if extend(0, self._read(file, start, mine.end_offset - start)) == mine.checksum:
                found[file.path.name] = mine.end_offset
        return found

    def _list_topic(self, topic: Topic, log: TopicLog, matching: dict[str, int]) -> None:
        """Send the standby the list of files. It removes others, and sets aside what only it has."""
        self._are_epochs_new = True
        sent = self._topics[topic.name] = _SentTopic(topic.name, log)
        offered = self.offer.logs.get(topic.name)
        for file in log.files:
            offset = matching.get(file.path.name, 0)
            if offset:
                sent.files[file.first_seq] = _SentFile(file.salt, offset)
            elif offered is not None and file.path.name in offered.files:
                sent.replaced.add(file.first_seq)
            if not self.is_following:
                self._to_copy_bytes += file.end_offset - offset
        names = {file.path.name: matching.get(file.path.name, 0) for file in log.files}
        journals = [journal_name(topic.name, name) for name in topic.channels]
        self._send(messages.topic_frame(TopicListing(topic.name, log.epochs, log.next_seq, names, journals)))

    def _send_topics(self, changed: dict[Topic, set[Channel]]) -> None:
        """Send what is new in these logs, then in these journals, up to one moment in between.

        A message may move to a topic whose log is sent already, before the journal that says so. Therefore logs that
        have changed since are resent, up to the moment of the journals: a standby that is promoted then has it.
        """
        for topic, channels in changed.items():
            if self._send_log_of(topic):
                channels.update(topic.channels.values())
        ends: Ends = {}
        for topic, channels in changed.items():
            journals = {channel: channel.journal for channel in channels}
            ends |= {
                channel: (each.version, each.size_bytes)
                for channel, each in journals.items()
                if each is not None
            }
            sent = self._topics.get(topic.name)
            if sent is not None:
                sent.may_go, sent.gone = sent.may_go + sent.gone, []
        for topic in list(self._changed):
            if self._send_log_of(topic):
                self._changed[topic].update(topic.channels.values())
        for topic, channels in changed.items():
            self._send_journals(topic, channels, ends)

    def _send_log_of(self, topic: Topic) -> bool:
        """Send what is new in the log of a topic. Return True if the standby did not know it."""
        log = topic.log
        if log is None or topic.is_closed:
            return False
        sent = self._topics.get(topic.name)
        is_new = sent is None or sent.log is not log
        if is_new:
            self._list_topic(topic, log, {})
        self._send_log(self._topics[topic.name])
        return is_new

    def _send_journals(self, topic: Topic, channels: set[Channel], ends: Ends) -> None:
        sent = self._topics.get(topic.name)
        if topic.log is None or topic.is_closed or sent is None or sent.log is not topic.log:
            return
        if topic.name in self._positions:
            self._positions.discard(topic.name)
            self._send_file(journal_name(topic.name))
        waiting = {channel for channel in channels if not self._send_journal(topic, sent, channel, ends)}
        if waiting:
            self._changed.setdefault(topic, set()).update(waiting)
        else:
            self._removed += sent.may_go
            sent.may_go = []

    def _send_log(self, sent: _SentTopic) -> None:
        """Send what is new in a log, and note the files that are gone."""
        log, files = sent.log, None
        while files is not log.files:  # else one may have been replaced before it was sent
            files = log.files
            if files is not sent.listed:
                sent.listed, sent.whole_count = files, 0
                present = {file.first_seq for file in files}
                for first_seq in [first_seq for first_seq in sent.files if first_seq not in present]:
                    del sent.files[first_seq]
                    sent.gone.append(log_file_name(sent.name, first_seq))
            next_seq, count = log.next_seq, len(files)
            for index in range(sent.whole_count, count):
                self._send_log_file(sent, files[index])
            sent.whole_count = max(0, count - 1)
        self._sent_messages += (
            max(0, next_seq - max(sent.next_seq, log.first_seq)) if self.is_following else 0
        )
        sent.next_seq = max(sent.next_seq, next_seq)

    def _send_log_file(self, sent: _SentTopic, file: LogFile) -> None:
        # That of a file which is dropped in the meantime changes.
        name = log_file_name(sent.name, file.first_seq)
        before = sent.files.get(file.first_seq)
        is_replacement = before.salt != file.salt if before is not None else file.first_seq in sent.replaced
        if before is None or is_replacement:
            before = _SentFile(file.salt)
        try:
            if is_replacement:
                self._send_range(BEGIN, PART, name, file, before)
                self._send(messages.file_frame(COMMIT, name))
            else:
                self._send_range(0, WRITE, name, file, before)
        except OSError:
            if file in sent.log.files:
                raise
            return  # it was dropped in the meantime
        sent.replaced.discard(file.first_seq)
        sent.files[file.first_seq] = before

    def _send_range(self, begin: int, kind: int, name: str, file: LogFile, sent: _SentFile) -> None:
        """Send a file from where it was sent before up to its present end. Raises OSError."""
        if begin:
            self._send(messages.file_frame(begin, name))
        end_offset = file.end_offset
        while sent.end_offset < end_offset:
            size_bytes = min(_PIECE_BYTES, end_offset - sent.end_offset)
            data = self._read(file, sent.end_offset, size_bytes)
            if len(data) != size_bytes:
                raise OSError(f"{name} ends at {sent.end_offset + len(data)}, not at {end_offset}")
            self._send(messages.file_frame(kind, name, sent.end_offset, data))
            sent.end_offset += size_bytes
            self._sent_bytes += size_bytes
            self._to_copy_bytes = max(0, self._to_copy_bytes - size_bytes)

    def _read(self, file: LogFile, offset: int, size_bytes: int) -> bytes:
        """Return these bytes of a log file. Raises OSError."""
        is_recent = file.end_offset - offset <= _RECENT_BYTES and self.is_following
        if is_recent and not self._broker.disk_speed.is_slow:
            return file.read(offset, size_bytes)
        found: list[bytes] = []
        file.pin()
        try:
            descriptor = file.fileno()
            in_thread(self._threadpool, lambda: found.append(os.pread(descriptor, size_bytes, offset)))
        finally:
            file.unpin()
        return found[0]

    def _send_journal(self, topic: Topic, sent: _SentTopic, channel: Channel, ends: Ends) -> bool:
        """Send what is new in a journal up to its end in `ends`; return False if that must wait for the next round."""
        name, journal = channel.name, channel.journal
        if journal is None:
            return True
        file_name = journal_name(topic.name, name)
        if topic.channels.get(name) is not channel:
            if name not in topic.channels:  # the start of a promoted standby then removes the file
                sent.journals.pop(name, None)
                self._send_new_version(file_name, encode_entry(DELETED, 0, [], []))
            return True
        before = sent.journals.get(name)
        version, end_offset = ends.get(channel, (-1, 0))
        is_writing = self._broker.journals.is_writing
        if is_writing or version != journal.version:  # or it was made or replaced a moment ago
            if self._round == 1 and before is None:
                self._send_file(file_name)  # the first round has all; its end may be torn
            if not is_writing:  # whose end begins a round
                self._wake.set()
            return False
        is_same = before is not None and before.journal is journal and before.version == version
        start = before.end_offset if before is not None and is_same else 0
        if is_same and start == end_offset:
            return True
        try:
            with (self._directory / file_name).open("rb") as file:
                file.seek(start)
                data = file.read(end_offset - start)
        except FileNotFoundError:  # another program has removed it: nsqd rewrites it
            return True
        sent.journals[name] = _SentJournal(journal, version, end_offset)
        if is_same:
            self._send(messages.file_frame(WRITE, file_name, start, data))
        else:
            self._send_new_version(file_name, data)
        return True

    # ---- small files

    def _send_file(self, name: str) -> None:
        """Send all of a small file, if it exists."""
        with suppress(FileNotFoundError):
            self._send_new_version(name, (self._directory / name).read_bytes())

    def _send_new_version(self, name: str, data: bytes) -> None:
        self._send(messages.file_frame(BEGIN, name))
        for start in range(0, len(data), _PIECE_BYTES):
            self._send(messages.file_frame(PART, name, start, data[start : start + _PIECE_BYTES]))
        self._send(messages.file_frame(COMMIT, name))

    def _send(self, frame: bytes) -> None:
        """Send a frame. Wait while the standby takes nothing; other greenlets run. Raises _Gone."""
        client = self.client
        if client.closed:
            raise _Gone
        client.send(frame)
        if self._is_idle:  # the event loop sends this one
            return
        self._slices.sleep_if_due()
        if len(frame) < _PIECE_BYTES and client.unsent_bytes + sum(map(len, client.out)) < _MOST_QUEUED_BYTES:
            return
        gevent.sleep(0)
        while client.unsent_bytes + sum(map(len, client.out)) > _MOST_QUEUED_BYTES:
            gevent.sleep(_LOOK_FOR_ROOM_S)
            if client.closed:
                raise _Gone
