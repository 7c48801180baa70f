"""Writing the messages of Go's nsqd as a log of ours for each topic, and a journal for each channel.

`ExistingTopic` is what our own files have, `TopicImport` adds the messages of Go's nsqd with a `LogWriter`.

Go's nsqd has a queue for each topic, with messages that no channel has yet, and one for each channel. All of them go
into one log. First come the channels' queues, one after the other, in files that are marked as imported; the messages
of each are finished in all other channels. Then comes the topic's own queue, in an ordinary file. Messages keep their
ids, times and attempts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from pathlib import Path
from struct import Struct
from typing import BinaryIO, NamedTuple

from nsqd_py.diskqueue.files.log_file import LogFile, log_file_name, new_salt
from nsqd_py.diskqueue.journals.journal import Journal, SavedPosition, journal_name, read_journal
from nsqd_py.diskqueue.journals.ranges import SeqRanges
from nsqd_py.diskqueue.journals.waits import grouped
from nsqd_py.diskqueue.records import RECORD_HEADER_BYTES, Damaged, FileHeader, encode_record
from nsqd_py.diskqueue.recovery import TopicFiles, recover_file
from nsqd_py.go_import.go_files import GoMessage
from nsqd_py.go_import.go_queue import GoQueue, OnDamage
from nsqd_py.pqueues.deferred import Wait
from nsqd_py.protocol.batch import SIZE_BYTES, Batch
from nsqd_py.runtime import private_files

_BUFFER_BYTES = 1024 * 1024
_id_of = itemgetter(2)
_pack_size = Struct(">I").pack


# ---- what is there


@dataclass(slots=True)
class ExistingTopic:
    """A topic's log and channels.

    next_seq  a number above all known messages
    held      the position from which the topic holds messages back; None if there is none
    """

    next_seq: int = 0
    used_id: int = 0
    held: SavedPosition | None = None
    channels: dict[str, SavedPosition] = field(default_factory=dict)

    @property
    def first_unreleased(self) -> int:
        """The number at which the first channel begins."""
        if self.held is not None:
            return self.held.finished.floor
        return 0


def existing_topic(files: TopicFiles) -> ExistingTopic:
    """Read the files of a topic without changing them. Raises OSError."""
    found = ExistingTopic()
    for channel, path in files.journals.items():
        content = read_journal(path.read_bytes())
        if content.end and not content.saved.is_deleted:
            found.next_seq = max(found.next_seq, content.saved.end)
            if channel:
                found.channels[channel] = content.saved
            else:
                found.held = content.saved
    if files.logs:
        first_seq, path = max(files.logs)
        found.used_id, end_seq = _end_of_log(path, first_seq)
        found.next_seq = max(found.next_seq, end_seq)
    return found


def _end_of_log(path: Path, first_seq: int) -> tuple[int, int]:
    """Return the highest id and the number after the last message of the last file."""
    try:
        file = LogFile.open(path)
    except Damaged:
        return 0, first_seq + path.stat().st_size  # an upper bound: a message takes at least a byte
    try:
        return recover_file(file, is_last=True).used_id, file.end_seq
    finally:
        file.close()


@dataclass(slots=True)
class GoTopic:
    """The data of Go's nsqd for a topic; `channels` are all known channels, with or without a queue.

    is_named  True if `nsqd.dat` names it and its channels; otherwise new files must make them exist
    """

    name: str
    is_paused: bool = False
    is_named: bool = True
    queue: GoQueue | None = None
    channels: dict[str, GoQueue | None] = field(default_factory=dict)


@dataclass(slots=True)
class ImportedTopic:
    """The result of importing a topic: messages by channel, and those that no channel has yet."""

    name: str
    channels: dict[str, int] = field(default_factory=dict)
    unreleased: int = 0
    size_bytes: int = 0

    @property
    def message_count(self) -> int:
        return self.unreleased + sum(self.channels.values())


# ---- the import of a topic


class _ChannelBacklog(NamedTuple):
    """The messages of a channel: the numbers low..high (not included), and the attempts of some of them."""

    low: int
    high: int
    waits: list[Wait]


@dataclass(slots=True)
class TopicImport:
    """Writes the log of a topic and the journals of its channels into a folder.

    on_progress  called for each piece that is read
    """

    topic: GoTopic
    existing: ExistingTopic
    folder: Path
    max_file_bytes: int
    on_damage: OnDamage
    on_progress: Callable[[], None]

    def run(self) -> ImportedTopic:
        """Write all files. Raises OSError, and what `on_progress` raises."""
        existing = self.existing
        name = self.topic.name
        with LogWriter(self.folder, name, existing.next_seq, existing.used_id, self.max_file_bytes) as writer:
            backlogs = {
                channel: self._write_channel(writer, queue) for channel, queue in self.topic.channels.items()
            }
            own_from = writer.next_seq
            writer.is_imported = False
            writer.close()
            writer.write(self._blocks(self.topic.queue))
            was_written = writer.next_seq > existing.next_seq or not self.topic.is_named
            if was_written and writer.next_seq == own_from:
                writer.open()  # new messages are not imported ones
        if was_written:
            self._write_journals(backlogs, own_from)
        counts = {channel: backlog.high - backlog.low for channel, backlog in backlogs.items()}
        return ImportedTopic(name, counts, writer.next_seq - own_from, writer.size_bytes)

    def _write_channel(self, writer: LogWriter, queue: GoQueue | None) -> _ChannelBacklog:
        low = writer.next_seq
        waits = writer.write(self._blocks(queue))
        return _ChannelBacklog(low, writer.next_seq, waits)

    def _blocks(self, queue: GoQueue | None) -> Iterator[list[GoMessage]]:
        if queue is None:
            return
        for messages in queue.blocks(self.on_damage):
            self.on_progress()
            yield messages

    # ---- the journals

    def _write_journals(self, backlogs: dict[str, _ChannelBacklog], own_from: int) -> None:
        existing = self.existing
        channels = {**dict.fromkeys(existing.channels), **backlogs}
        start = existing.next_seq if existing.channels else existing.first_unreleased
        for channel in channels:
            position = existing.channels.get(channel) or SavedPosition(SeqRanges(start))
            for other, backlog in backlogs.items():
                if other != channel and backlog.high > backlog.low:
                    position.finished.add_missing(backlog.low, backlog.high)
            waits = []
            if channel in backlogs:
                waits = backlogs[channel].waits
            self._save(journal_name(self.topic.name, channel), position, waits)
        if self.topic.is_paused and channels:
            # Messages that it held back before are released: they cannot wait behind what its channels get now.
            is_between = own_from > existing.next_seq or existing.held is None
            held_from = own_from if is_between else existing.first_unreleased
            position = SavedPosition(SeqRanges(held_from))
            self._save(journal_name(self.topic.name), position, [])

    def _save(self, name: str, position: SavedPosition, waits: list[Wait]) -> None:
        journal = Journal(self.folder / name)
        waiting = chain(grouped(position.waiting.rising()), waits)
        journal.snapshot(position.finished.floor, position.finished.islands(), waiting)


# ---- the log


class LogWriter:
    """Writes log files of messages that have their own ids and times, one record for each message.

    next_seq     the number of the next message
    size_bytes   of all bodies so far
    is_imported  True if new files are marked as imported
    """

    def __init__(self, folder: Path, topic: str, next_seq: int, used_id: int, max_file_bytes: int) -> None:
        self.next_seq = next_seq
        self.size_bytes = 0
        self._folder = folder
        self._topic = topic
        self._used_id = used_id
        self._max_file_bytes = max_file_bytes
        self.is_imported = True
        self._file: BinaryIO | None = None
        self._free_bytes = -1  # for the body of the next record; there is no file yet
        self._salt = 0

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, blocks: Iterable[list[GoMessage]]) -> list[Wait]:
        """Write messages; return those that were attempted before, as runs. Raises OSError."""
        tried: list[Wait] = []
        for messages in blocks:
            self._write_block(messages, tried)
            self._used_id = max(self._used_id, max(map(_id_of, messages), default=0))
        return tried

    def _write_block(self, messages: list[GoMessage], tried: list[Wait]) -> None:
        for timestamp_ns, attempts, message_id, body in messages:
            if attempts:
                _note_tried(tried, self.next_seq, attempts)
            sized = _pack_size(len(body)) + body
            size = len(sized)
            if size > self._free_bytes:
                self.open()
            assert self._file is not None
            batch = Batch(self.next_seq, message_id, timestamp_ns, 0, 1, size, sized)
            self._file.write(encode_record(batch, self._salt))
            self.next_seq += 1
            self.size_bytes += size - SIZE_BYTES
            self._free_bytes -= RECORD_HEADER_BYTES + size

    def open(self) -> None:
        """Begin a new file. Raises OSError."""
        self.close()
        self._salt = new_salt()
        header = FileHeader(self._salt, self.next_seq, self._used_id, is_imported=self.is_imported)
        path = self._folder / log_file_name(self._topic, self.next_seq)
        self._file = private_files.create(path, _BUFFER_BYTES)
        written_bytes = self._file.write(header.encode())
        self._free_bytes = self._max_file_bytes - written_bytes - RECORD_HEADER_BYTES

    def close(self) -> None:
        """Close the file; the next message begins a new one. Raises OSError."""
        file, self._file = self._file, None
        self._free_bytes = -1
        if file is not None:
            file.close()


def _note_tried(tried: list[Wait], seq: int, attempts: int) -> None:
    """Add a message to the runs; neighbours with equal attempts are one run."""
    low = seq
    if tried:
        first, end, _, attempts_before = tried[-1]
        if end == seq and attempts_before == attempts:
            low = first
            tried.pop()
    tried.append((low, seq + 1, 0, attempts))
