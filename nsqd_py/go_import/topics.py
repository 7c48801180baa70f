"""Writing the messages of Go's nsqd as a log of ours for each topic, and a journal for each channel.

Go's nsqd has a queue for each topic, with messages that no channel has yet, and one for each channel. All of them go
into one log. First come the channels' queues, one after the other, in files that are marked as imported; the messages
of each are finished in all other channels. Then comes the topic's own queue, in an ordinary file. Messages keep their
ids, times and attempts.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter, lt
from pathlib import Path
from struct import Struct
from typing import BinaryIO

from nsqd_py.batch import SIZE_BYTES, Batch
from nsqd_py.clock import Wait
from nsqd_py.diskqueue.files import LogFile, log_file_name, parse_log_file_name
from nsqd_py.diskqueue.journal import JOURNAL_SUFFIX, Journal, SavedPosition, group_waiting, journal_name, read_journal
from nsqd_py.diskqueue.ranges import SeqRanges
from nsqd_py.diskqueue.records import RECORD_HEADER_BYTES, Damaged, FileHeader, encode_record
from nsqd_py.diskqueue.recovery import recover_file
from nsqd_py.go_import.go_files import GoMessage
from nsqd_py.go_import.go_queue import GoQueue, OnDamage
from nsqd_py.runtime import private_files


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
        return self.held.finished.floor if self.held is not None else 0


class ExistingFiles:
    """The names in a directory, by topic. Raises OSError, also from its methods."""

    def __init__(self, directory: Path) -> None:
        self._logs: dict[str, dict[int, Path]] = defaultdict(dict)
        self._journals: dict[str, dict[str, Path]] = defaultdict(dict)
        for path in directory.iterdir():
            parsed = parse_log_file_name(path.name)
            if parsed is not None:
                self._logs[parsed[0]][parsed[1]] = path
            elif path.name.endswith(JOURNAL_SUFFIX):
                topic, _, channel = path.name.removesuffix(JOURNAL_SUFFIX).partition(":")
                self._journals[topic][channel] = path

    def topic(self, name: str) -> ExistingTopic:
        """Read the files of a topic without changing them."""
        found = ExistingTopic()
        for channel, position in self._positions(name):
            found.next_seq = max(found.next_seq, position.end)
            if channel:
                found.channels[channel] = position
            else:
                found.held = position
        if name in self._logs:
            first_seq, path = max(self._logs[name].items())
            found.used_id, end_seq = _end_of_log(path, first_seq)
            found.next_seq = max(found.next_seq, end_seq)
        return found

    def _positions(self, topic: str) -> Iterator[tuple[str, SavedPosition]]:
        for channel, path in self._journals.get(topic, {}).items():
            content = read_journal(path.read_bytes())
            if content.end and not content.saved.is_deleted:
                yield channel, content.saved


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


def import_topic(
    topic: GoTopic,
    existing: ExistingTopic,
    folder: Path,
    max_file_bytes: int,
    on_damage: OnDamage,
    on_progress: Callable[[], None],
) -> ImportedTopic:
    """Write the log of a topic and the journals of its channels into the folder.

    `on_progress` is called for each piece that is read. Raises OSError, and what `on_progress` raises.
    """
    return _TopicImport(topic, existing, folder, max_file_bytes, on_damage, on_progress).run()


@dataclass(slots=True)
class _ChannelBacklog:
    """The messages of a channel: the numbers low..high (not included), and the attempts of some of them."""

    low: int
    high: int
    waits: list[Wait]


class _TopicImport:
    def __init__(
        self,
        topic: GoTopic,
        existing: ExistingTopic,
        folder: Path,
        max_file_bytes: int,
        on_damage: OnDamage,
        on_progress: Callable[[], None],
    ) -> None:
        self._topic = topic
        self._existing = existing
        self._folder = folder
        self._on_damage = on_damage
        self._on_progress = on_progress
        self._writer = LogWriter(folder, topic.name, existing.next_seq, existing.used_id, max_file_bytes)

    def run(self) -> ImportedTopic:
        own = scan(self._blocks(self._topic.queue))
        scans = {channel: scan(self._blocks(queue), own.lowest) for channel, queue in self._topic.channels.items()}
        imported = ImportedTopic(self._topic.name)
        with self._writer as writer:
            given = self._given(scans.values())
            shares = {channel: self._write_channel(channel, found, own, given) for channel, found in scans.items()}
            own_from = writer.next_seq
            was_written = bool(own.count) or own_from > self._existing.next_seq or not self._topic.is_named
            if was_written:
                writer.roll(is_imported=False)  # new messages are not imported ones
                writer.write(without(once(self._blocks(self._topic.queue), own), given))
        if was_written:
            self._write_journals(shares, own_from)
        imported.channels = {channel: share.high - share.low for channel, share in shares.items()}
        imported.unreleased = writer.next_seq - own_from
        imported.size_bytes = writer.size_bytes
        return imported

    def _blocks(self, queue: GoQueue | None) -> Blocks:
        for messages in queue.blocks(self._on_damage) if queue is not None else ():
            self._on_progress()
            yield messages

    def _given(self, scans: Iterable[QueueScan]) -> set[int]:
        """Return ids in the topic's own queue that a channel has too: the topic was releasing them to all channels."""
        had = set[int]().union(*(found.shared for found in scans))
        if not had:
            return had
        return {message[2] for messages in self._blocks(self._topic.queue) for message in messages if message[2] in had}

    def _write_channel(self, channel: str, found: QueueScan, own: QueueScan, given: set[int]) -> _ChannelBacklog:
        low = self._writer.next_seq
        blocks = once(self._blocks(self._topic.channels[channel]), found)
        missed = given - found.shared
        if missed:
            blocks = chain(blocks, only(once(self._blocks(self._topic.queue), own), missed))
        waits = self._writer.write(blocks)
        return _ChannelBacklog(low, self._writer.next_seq, waits)

    # ---- the journals

    def _write_journals(self, shares: dict[str, _ChannelBacklog], own_from: int) -> None:
        channels = {**dict.fromkeys(self._existing.channels), **shares}
        for channel in channels:
            position = self._existing.channels.get(channel) or SavedPosition(SeqRanges(self._start_of_new_channel()))
            for other, share in shares.items():
                if other != channel and share.high > share.low:
                    position.finished.add_missing(share.low, share.high)
            waits = shares[channel].waits if channel in shares else []
            self._save(journal_name(self._topic.name, channel), position, waits)
        if self._topic.is_paused and channels:
            # Messages that it held back before are released: they cannot wait behind what its channels get now.
            is_between = own_from > self._existing.next_seq or self._existing.held is None
            held_from = own_from if is_between else self._existing.first_unreleased
            self._save(journal_name(self._topic.name), SavedPosition(SeqRanges(held_from)), [])

    def _start_of_new_channel(self) -> int:
        existing = self._existing
        return existing.next_seq if existing.channels else existing.first_unreleased

    def _save(self, name: str, position: SavedPosition, waits: list[Wait]) -> None:
        journal = Journal(self._folder / name)
        waiting = chain(group_waiting(position.waiting, position.end), waits)
        journal.snapshot(position.finished.floor, position.finished.islands(), waiting)


_BUFFER_BYTES = 1024 * 1024
_id_of = itemgetter(2)
_pack_size = Struct(">I").pack


class LogWriter:
    """Writes log files of messages that have their own ids and times, one record for each message.

    next_seq    the number of the next message
    size_bytes  of all bodies so far
    """

    def __init__(self, folder: Path, topic: str, next_seq: int, used_id: int, max_file_bytes: int) -> None:
        self.next_seq = next_seq
        self.size_bytes = 0
        self._folder = folder
        self._topic = topic
        self._used_id = used_id
        self._max_file_bytes = max_file_bytes
        self._is_imported = True
        self._file: BinaryIO | None = None
        self._room = -1  # for the body of the next record; there is no file yet
        self._salt = 0

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def roll(self, *, is_imported: bool) -> None:
        """Begin a new file of this kind. Raises OSError."""
        self._close()
        self._is_imported = is_imported
        self._open()

    def write(self, blocks: Blocks) -> list[Wait]:
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
            if size > self._room:
                self.roll(is_imported=self._is_imported)
            assert self._file is not None
            batch = Batch(self.next_seq, message_id, timestamp_ns, 0, 1, size, sized)
            self._file.write(encode_record(batch, self._salt))
            self.next_seq += 1
            self.size_bytes += size - SIZE_BYTES
            self._room -= RECORD_HEADER_BYTES + size

    def _open(self) -> None:
        self._salt = secrets.randbits(32)
        header = FileHeader(self._salt, self.next_seq, self._used_id, is_imported=self._is_imported)
        path = self._folder / log_file_name(self._topic, self.next_seq)
        self._file = private_files.create(path, _BUFFER_BYTES)
        self._room = self._max_file_bytes - self._file.write(header.encode()) - RECORD_HEADER_BYTES

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _note_tried(tried: list[Wait], seq: int, attempts: int) -> None:
    """Add a message to the runs; neighbours with equal attempts make one run."""
    low = seq
    if tried and tried[-1][1] == seq and tried[-1][3] == attempts:
        low = tried.pop()[0]
    tried.append((low, seq + 1, 0, attempts))


NO_ID = 1 << 64

_id_of = itemgetter(2)

Blocks = Iterator[list[GoMessage]]


@dataclass(slots=True)
class QueueScan:
    """The result of reading a queue once.

    lowest   the lowest id
    repeats  ids that were not in rising order, each with the index of its last message; all repeated ids are among them
    shared   the ids at or above the lowest id of another queue
    """

    count: int = 0
    lowest: int = NO_ID
    repeats: dict[int, int] = field(default_factory=dict)
    shared: set[int] = field(default_factory=set)


def scan(blocks: Blocks, shared_from: int = NO_ID) -> QueueScan:
    """Read all messages. Ids in rising order are remembered only from `shared_from` on."""
    found = QueueScan()
    highest = -1
    for messages in blocks:
        ids = list(map(_id_of, messages))
        if ids[0] <= highest or not all(map(lt, ids, ids[1:])):
            _note_repeats(found, ids, highest)
        found.lowest = min(found.lowest, *ids)
        highest = max(highest, *ids)
        if highest >= shared_from:
            found.shared.update(message_id for message_id in ids if message_id >= shared_from)
        found.count += len(ids)
    return found


def _note_repeats(found: QueueScan, ids: list[int], highest: int) -> None:
    for place, message_id in enumerate(ids, found.count):
        if message_id > highest:
            highest = message_id
        else:
            found.repeats[message_id] = place


def once(blocks: Blocks, scanned: QueueScan) -> Blocks:
    """Yield the messages without those that are repeated later in the queue."""
    repeats = scanned.repeats
    place = 0
    for messages in blocks:
        first = place
        place += len(messages)
        if repeats:
            last_place = repeats.get
            messages = [message for at, message in enumerate(messages, first) if last_place(message[2], at) <= at]
        yield messages


def only(blocks: Blocks, ids: Container[int]) -> Blocks:
    for messages in blocks:
        yield [message for message in messages if message[2] in ids]


def without(blocks: Blocks, ids: Container[int]) -> Blocks:
    for messages in blocks:
        yield [message for message in messages if message[2] not in ids] if ids else messages
