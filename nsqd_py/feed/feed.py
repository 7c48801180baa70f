"""The changes of a data path, in rounds, for a reader that keeps a copy of it.

Nothing is held in memory for a reader: a round reads the files, from where the last one stopped. First come the new
records of all changed logs, then the entries of their journals, then `nsqd.dat`, then the names of files that are gone.
So wherever the reader stops, its copy is a directory that nsqd could have left when it was killed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import gevent
from google_crc32c import extend

from nsqd_py.broker.broker import Broker
from nsqd_py.broker.services import Topic
from nsqd_py.broker.state_files import CLOCK_FILE, METADATA_FILE
from nsqd_py.diskqueue.checking import damage_in
from nsqd_py.diskqueue.files.log_file import LogFile, log_file_name
from nsqd_py.diskqueue.journals.epochs import EPOCHS_FILE, common_end
from nsqd_py.diskqueue.journals.journal import DELETED, encode_entry, journal_name
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.feed.lag import Amount, Lag
from nsqd_py.feed.only_stored import count_only_stored
from nsqd_py.feed.pieces import (
    CHECKED_BYTES,
    Begin,
    Commit,
    OfferedLog,
    Part,
    Piece,
    Remove,
    TopicListing,
    TopicsListed,
    Write,
)
from nsqd_py.queue.channel import Channel
from nsqd_py.queue.storage import PositionJournal
from nsqd_py.runtime.pacing import WorkSlices
from nsqd_py.runtime.threads import in_thread
from nsqd_py.settings.durations import MILLISECOND_NS

PIECE_BYTES = 256 * 1024
# What a reader that follows has not got yet was just written, so that reading it does not wait for the disk. A thread
# reads what is further back, and the first copy.
_RECENT_BYTES = 1024 * 1024
_FEW_TOPICS = 4
_JOURNAL_S = 0.01  # between two looks at a journal that is being written

# The version and the size of journals at one moment.
Ends: TypeAlias = "dict[Channel, tuple[int, int]]"


@dataclass(slots=True)
class _CopiedFile:
    """A log file, as far as the reader got it."""

    salt: int
    end_offset: int = 0


@dataclass(slots=True)
class _CopiedJournal:
    """A journal, as far as the reader got it; `version` changes when the file is replaced."""

    journal: PositionJournal
    version: int
    end_offset: int


@dataclass(slots=True)
class _CopiedTopic:
    """The part of a topic that the reader got.

    name        of the topic
    log         its log; a topic that is recreated has another one
    files       by first sequence number
    listed      the list of files at that time; another list means that files were dropped or replaced
    whole_count  number of files at the beginning of `listed` that will not grow
    next_seq    the number after the last message
    replaced    files of which the reader has another version, by first sequence number
    gone        names of files that were dropped
    may_go      those of them that were dropped before the journals that come next
    is_thin     True if the reader was told that only the store has some of the unfinished messages
    """

    name: str
    log: TopicLog
    files: dict[int, _CopiedFile] = field(default_factory=dict)
    listed: Any = None
    whole_count: int = 0
    next_seq: int = 0
    journals: dict[str, _CopiedJournal] = field(default_factory=dict)
    replaced: set[int] = field(default_factory=set)
    gone: list[str] = field(default_factory=list)
    may_go: list[str] = field(default_factory=list)
    is_thin: bool = False


@dataclass(eq=False, repr=False)
class Feed:
    """Everything that one reader gets. It learns of changes while it is a listener of `Broker.listen`.

    The reader takes all pieces of `list_files`, and then all of one `round` after the other. The end of a round is the
    mark: a copy that has its pieces has everything that was written before the round began. After an error, or a round
    that was not taken to its end, the reader needs a new feed. While it waits between two pieces, nsqd goes on.

    _offered      the logs that the reader has already, by topic
    _on_change    called when there is something for the next round; it must not block
    round_number  number of rounds that have begun
    is_following  True when the reader has said that it has the first round
    is_due        True if the last round left something out that the next one can have at once
    lacks_journals  True if the last round left a journal out, which was being written: its logs may be newer, and lack
        files whose messages it has finished
    since_ns      when the first of the changes that no round has yet was made; 0 if there are none
    message_count, size_bytes  the messages since the reader follows, and the bytes of logs, in all rounds until now
    """

    _broker: Broker
    _directory: Path
    _threadpool: Any
    _offered: Mapping[str, OfferedLog]
    _on_change: Callable[[], None]
    round_number: int = 0
    is_following: bool = False
    is_due: bool = False
    lacks_journals: bool = False
    since_ns: int = 0
    message_count: int = 0
    size_bytes: int = 0
    _topics: dict[str, _CopiedTopic] = field(default_factory=dict)
    _changed: dict[Topic, set[Channel]] = field(default_factory=dict)
    _positions: set[str] = field(default_factory=set)  # topics whose own position was written
    _deleted: dict[str, None] = field(default_factory=dict)
    _removed: list[str] = field(default_factory=list)
    _is_metadata_new: bool = True
    _are_epochs_new: bool = True
    _to_copy_bytes: int = 0

    def follow(self) -> None:
        """The reader has the first round: what comes from now on was just written."""
        self.is_following = True

    def close(self) -> None:
        """Forget the reader, which refers to this feed."""
        self._on_change = _ignore

    # ---- what has changed, as a `ChangeListener`

    def topic_changed(self, topic: Topic) -> None:
        """Note that the log of this topic has something new."""
        self._changed.setdefault(topic, set())
        self._note_change()

    def channel_changed(self, topic: Topic, channel: Channel) -> None:
        """Note that the journal of this channel has something new, or that the channel is deleted."""
        self._changed.setdefault(topic, set()).add(channel)
        self._note_change()

    def position_written(self, topic: Topic) -> None:
        """Note that the position of the topic itself is new."""
        self._positions.add(topic.name)
        self.topic_changed(topic)

    def topic_deleted(self, name: str) -> None:
        self._deleted[name] = None
        self._are_epochs_new = True  # they say which log was deleted, so that no other copy brings it back
        self._note_change()

    def metadata_written(self) -> None:
        self._is_metadata_new = True
        self._note_change()

    def _note_change(self) -> None:
        if not self.since_ns:
            self.since_ns = self._broker.clock()
        self._on_change()

    def note_gone_files(self) -> None:
        """Note for the next round where files were dropped or replaced, which no publish need have caused."""
        for name, copied in self._topics.items():
            topic = self._broker.topics.get(name)
            if topic is None or topic.log is not copied.log:
                continue
            if copied.listed is not copied.log.files:
                self._changed.setdefault(topic, set())

    def is_outdated(self) -> bool:
        """True if the list of a topic is wrong about messages that only the store has: a channel was moved, or has read them."""
        return any(map(self._is_outdated, self._topics.values()))

    def _is_outdated(self, copied: _CopiedTopic) -> bool:
        topic = self._broker.topics.get(copied.name)
        if topic is None or topic.log is not copied.log:
            return False
        return copied.is_thin != (count_only_stored(topic) > 0)

    # ---- what no round has yet

    def unread(self) -> Amount:
        """Return the size of the changes that no round has yet; a first copy counts in bytes only."""
        messages = 0
        size_bytes = self._to_copy_bytes
        for topic in self._changed:
            copied = self._topics.get(topic.name)
            if copied is not None and copied.log is topic.log:
                if self.is_following:
                    messages += max(0, topic.next_seq - copied.next_seq)
                for file in copied.log.files[copied.whole_count :]:
                    before = copied.files.get(file.first_seq)
                    size_bytes += file.end_offset - (before.end_offset if before is not None else 0)
        return Amount(messages, max(0, size_bytes))

    @property
    def amount(self) -> Amount:
        """What all rounds until now have."""
        return Amount(self.message_count, self.size_bytes)

    def lag(self, confirmed: Amount, since_ns: int = 0) -> Lag:
        """Return how far the reader is behind that has `confirmed` so much of the `amount`.

        since_ns  of the oldest change in a round that it has not confirmed; 0 if there is none
        """
        unread = self.unread()
        oldest_ns = self.oldest_ns(since_ns)
        behind_ns = 0
        if oldest_ns:
            behind_ns = self._broker.clock() - oldest_ns
        return Lag(
            unread.messages + self.message_count - confirmed.messages,
            unread.size_bytes + self.size_bytes - confirmed.size_bytes,
            behind_ns // MILLISECOND_NS,
        )

    def oldest_ns(self, since_ns: int) -> int:
        """Return the earlier one of this time and `since_ns` of the feed; 0 stands for none."""
        return min(since_ns or self.since_ns, self.since_ns or since_ns)

    def is_next_small(self) -> bool:
        """True if the next round has only new records of few topics, in less than a piece."""
        if len(self._changed) > _FEW_TOPICS or any(self._changed.values()):
            return False
        if self._positions or self._deleted or self._removed:
            return False
        if self._is_metadata_new or self._are_epochs_new:
            return False
        are_known = all(topic.name in self._topics for topic in self._changed)
        return are_known and self.unread().size_bytes < PIECE_BYTES

    # ---- what the reader takes

    def list_files(self) -> Iterator[Piece]:
        """Yield which files there are; the first round then has what the reader lacks of them."""
        topics = [topic for topic in self._broker.topics.values() if topic.log is not None]
        slices = WorkSlices()
        matching = {topic: self._matching(topic, slices) for topic in topics}
        for topic in topics:
            if not topic.is_closed and topic.log is not None:
                yield self._list_topic(topic, topic.log, matching[topic])
        yield TopicsListed()
        yield from self._file(CLOCK_FILE)
        self._positions.update(topic.name for topic in topics)
        for topic in topics:
            self._changed.setdefault(topic, set()).update(topic.channels.values())

    def round(self) -> Iterator[Piece]:
        """Yield everything that has changed until now, and what must come with it. Raises OSError."""
        self.since_ns = 0
        self.is_due = False
        self.lacks_journals = False
        self.round_number += 1
        deleted = self._deleted
        self._deleted = {}
        for name in deleted:
            if name not in self._broker.topics:
                self._topics.pop(name, None)
                yield TopicListing(name)
        changed = self._changed
        self._changed = {}
        yield from self._logs_then_journals(changed)
        self._to_copy_bytes = 0
        if self._are_epochs_new:
            self._are_epochs_new = False
            # Not from the disk: the copy needs them as soon as it has a log.
            yield from self._new_version(EPOCHS_FILE, self._broker.encode_epochs())
        if self._is_metadata_new:
            self._is_metadata_new = False
            yield from self._file(METADATA_FILE)
        removed = self._removed
        self._removed = []
        for name in removed:
            yield Remove(name)

    def whole_round(self, most_waits: int) -> Iterator[Piece]:
        """Yield a round, and the journals that it lacks, for which this greenlet waits: a copy without them may lack what a
        channel has finished. Raises OSError.
        """
        yield from self.round()
        for _ in range(most_waits):
            if not self.lacks_journals:
                return
            gevent.sleep(_JOURNAL_S)
            yield from self.round()

    # ---- one topic

    def _matching(self, topic: Topic, slices: WorkSlices) -> dict[str, int]:
        """Return the files of a topic that the reader has, and how many bytes of each."""
        log = topic.log
        offered = self._offered.get(topic.name)
        if log is None or offered is None:
            return {}
        # Each epoch begins in a new file, so the files of an earlier one that both have are the same: good bytes stay there.
        shared_end = common_end(offered.epochs, log.epochs)
        found = {}
        for file in list(log.files):
            if shared_end is not None and file.end_seq > shared_end:
                break
            slices.sleep_if_due()
            mine = offered.files.get(file.name)
            if mine is None or mine.salt != file.salt or not 0 < mine.end_offset <= file.end_offset:
                continue
            start = max(0, mine.end_offset - CHECKED_BYTES)
            is_same = extend(0, self._read(file, start, mine.end_offset - start)) == mine.checksum
            if is_same or self._is_damaged(file, start, mine.end_offset):
                found[file.name] = mine.end_offset
        return found

    def _is_damaged(self, file: LogFile, start: int, end: int) -> bool:
        """True if nsqd's own bytes here are damaged: then the reader must not lose its own, which may be the only good ones."""
        try:
            damaged = in_thread(self._threadpool, damage_in, file.path, file.salt, file.end_offset)
        except OSError:
            return False
        return any(low < end and high > start for low, high in damaged)

    def _list_topic(self, topic: Topic, log: TopicLog, matching: dict[str, int]) -> TopicListing:
        """Return the list of files. The reader removes others, and sets aside what only it has."""
        self._are_epochs_new = True
        copied = _CopiedTopic(topic.name, log)
        self._topics[topic.name] = copied
        offered = self._offered.get(topic.name)
        for file in log.files:
            offset = matching.get(file.name, 0)
            if offset:
                copied.files[file.first_seq] = _CopiedFile(file.salt, offset)
            elif offered is not None and file.name in offered.files:
                copied.replaced.add(file.first_seq)
            if not self.is_following:
                self._to_copy_bytes += file.end_offset - offset
        names = {file.name: matching.get(file.name, 0) for file in log.files}
        journals = [journal_name(topic.name, name) for name in topic.channels]
        only_stored = count_only_stored(topic)
        copied.is_thin = only_stored > 0
        store = self._broker.options.store if only_stored else ""
        return TopicListing(topic.name, log.epochs, log.next_seq, names, journals, only_stored, store)

    def _logs_then_journals(self, changed: dict[Topic, set[Channel]]) -> Iterator[Piece]:
        """Yield what is new in these logs, then in these journals, up to one moment in between.

        A message may move to a topic whose log the reader has already, before the journal that says so. Therefore logs
        that have changed since come again, up to the moment of the journals: a copy that is promoted then has it.
        """
        for topic, channels in changed.items():
            if (yield from self._log_of(topic)):
                channels.update(topic.channels.values())
        ends: Ends = {}
        for topic, channels in changed.items():
            for channel in channels:
                journal = channel.journal
                if journal is not None:
                    ends[channel] = journal.version, journal.size_bytes
            copied = self._topics.get(topic.name)
            if copied is not None:
                copied.may_go += copied.gone
                copied.gone = []
        for topic in list(self._changed):
            if (yield from self._log_of(topic)):
                self._changed[topic].update(topic.channels.values())
        for topic, channels in changed.items():
            yield from self._journals_of(topic, channels, ends)

    def _log_of(self, topic: Topic) -> Generator[Piece, None, bool]:
        """Yield what is new in the log of a topic. Return True if the reader did not know it."""
        log = topic.log
        if log is None or topic.is_closed:
            return False
        copied = self._topics.get(topic.name)
        is_new = copied is None or copied.log is not log
        if is_new:
            yield self._list_topic(topic, log, {})
        yield from self._log(self._topics[topic.name])
        return is_new

    def _log(self, copied: _CopiedTopic) -> Iterator[Piece]:
        """Yield what is new in a log, and note the files that are gone."""
        log = copied.log
        files = None
        while files is not log.files:  # else one may have been replaced before the reader got it
            files = log.files
            if files is not copied.listed:
                copied.listed = files
                copied.whole_count = 0
                self._note_gone_files(copied)
            next_seq = log.next_seq
            count = len(files)
            for index in range(copied.whole_count, count):
                yield from self._log_file(copied, files[index])
            copied.whole_count = max(0, count - 1)
        if self.is_following:
            self.message_count += max(0, next_seq - max(copied.next_seq, log.first_seq))
        copied.next_seq = max(copied.next_seq, next_seq)

    def _note_gone_files(self, copied: _CopiedTopic) -> None:
        present = {file.first_seq for file in copied.listed}
        gone = [first_seq for first_seq in copied.files if first_seq not in present]
        for first_seq in gone:
            del copied.files[first_seq]
            copied.gone.append(log_file_name(copied.name, first_seq))

    def _log_file(self, copied: _CopiedTopic, file: LogFile) -> Iterator[Piece]:
        # That of a file which is dropped in the meantime changes.
        name = log_file_name(copied.name, file.first_seq)
        before = copied.files.get(file.first_seq)
        is_other = before is not None and before.salt != file.salt
        is_replacement = is_other or (before is None and file.first_seq in copied.replaced)
        if before is None or is_replacement:
            before = _CopiedFile(file.salt)
        try:
            if is_replacement:
                yield Begin(name)
                yield from self._range(Part, name, file, before)
                yield Commit(name)
            else:
                yield from self._range(Write, name, file, before)
        except OSError:
            if file in copied.log.files:
                raise
            return  # it was dropped in the meantime
        copied.replaced.discard(file.first_seq)
        copied.files[file.first_seq] = before

    def _range(
        self, kind: type[Write | Part], name: str, file: LogFile, copied: _CopiedFile
    ) -> Iterator[Piece]:
        """Yield a file from where the reader has it up to its present end. Raises OSError."""
        end_offset = file.end_offset
        while copied.end_offset < end_offset:
            size_bytes = min(PIECE_BYTES, end_offset - copied.end_offset)
            data = self._read(file, copied.end_offset, size_bytes)
            if len(data) != size_bytes:
                raise OSError(f"{name} ends at {copied.end_offset + len(data)}, not at {end_offset}")
            yield kind(name, copied.end_offset, data)
            copied.end_offset += size_bytes
            self.size_bytes += size_bytes
            self._to_copy_bytes = max(0, self._to_copy_bytes - size_bytes)

    def _read(self, file: LogFile, offset: int, size_bytes: int) -> bytes:
        """Return these bytes of a log file. Raises OSError."""
        is_recent = file.end_offset - offset <= _RECENT_BYTES and self.is_following
        if is_recent and not self._broker.disk_speed.is_slow:
            return file.read(offset, size_bytes)
        file.pin()
        try:
            return in_thread(self._threadpool, os.pread, file.fileno(), size_bytes, offset)
        finally:
            file.unpin()

    # ---- journals

    def _journals_of(self, topic: Topic, channels: set[Channel], ends: Ends) -> Iterator[Piece]:
        copied = self._topics.get(topic.name)
        if topic.log is None or topic.is_closed or copied is None or copied.log is not topic.log:
            return
        if topic.name in self._positions:
            self._positions.discard(topic.name)
            yield from self._file(journal_name(topic.name))
        waiting = set()
        for channel in channels:
            is_complete = yield from self._journal(topic, copied, channel, ends)
            if not is_complete:
                waiting.add(channel)
        if waiting:
            self.lacks_journals = True
            self._changed.setdefault(topic, set()).update(waiting)
        else:
            self._removed += copied.may_go
            copied.may_go = []

    def _journal(
        self, topic: Topic, copied: _CopiedTopic, channel: Channel, ends: Ends
    ) -> Generator[Piece, None, bool]:
        """Yield what is new in a journal up to its end in `ends`; return False if that must wait for the next round."""
        name = channel.name
        journal = channel.journal
        if journal is None:
            return True
        file_name = journal_name(topic.name, name)
        if topic.channels.get(name) is not channel:
            if name not in topic.channels:  # the start of a promoted standby then removes the file
                copied.journals.pop(name, None)
                yield from self._new_version(file_name, encode_entry(DELETED, 0, [], []))
            return True
        before = copied.journals.get(name)
        version, end_offset = ends.get(channel, (-1, 0))
        is_writing = self._broker.journals.is_writing
        if is_writing or version != journal.version:  # or it was made or replaced a moment ago
            if self.round_number == 1 and before is None:
                yield from self._file(file_name)  # the first round has all; its end may be torn
            if not is_writing:  # whose end begins a round
                self.is_due = True
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
        copied.journals[name] = _CopiedJournal(journal, version, end_offset)
        if is_same:
            yield Write(file_name, start, data)
        else:
            yield from self._new_version(file_name, data)
        return True

    # ---- small files

    def _file(self, name: str) -> Iterator[Piece]:
        """Yield all of a small file, if it exists."""
        try:
            data = (self._directory / name).read_bytes()
        except FileNotFoundError:
            return
        yield from self._new_version(name, data)

    def _new_version(self, name: str, data: bytes) -> Iterator[Piece]:
        yield Begin(name)
        for start in range(0, len(data), PIECE_BYTES):
            yield Part(name, start, data[start : start + PIECE_BYTES])
        yield Commit(name)


def _ignore() -> None:
    pass
