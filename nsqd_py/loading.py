"""The start: a data directory becomes topics and channels again.

What exists is the union of what `nsqd.dat` names and what has files: a crash may have come between the two.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import zip_longest
from pathlib import Path

from nsqd_py.broker import Broker
from nsqd_py.diskqueue.files import COMPACT_SUFFIX, GONE_SUFFIX, SPARE_SUFFIX, LogFile, parse_log_file_name
from nsqd_py.diskqueue.journal import Journal, SavedPosition
from nsqd_py.diskqueue.ranges import SeqRanges
from nsqd_py.diskqueue.records import Damaged
from nsqd_py.diskqueue.recovery import DeferredSpan, recover_file
from nsqd_py.diskqueue.salvage import mend_header
from nsqd_py.errors import StartError
from nsqd_py.metadata import METADATA_FILE, BadMetadata, TopicEntry, read_metadata
from nsqd_py.protocol.names import is_ephemeral, is_valid_name
from nsqd_py.restoring import restore_position
from nsqd_py.topic import Topic

_CURSOR_SUFFIX = ".cursor"
_LEFTOVERS = (COMPACT_SUFFIX, GONE_SUFFIX, SPARE_SUFFIX, ".cursor.tmp", ".dat.tmp")


def load(broker: Broker, directory: Path) -> None:
    """Put back all topics and channels that the directory knows. Raises StartError."""
    entries = {entry.name: entry for entry in _read_metadata(broker, directory / METADATA_FILE)}
    files = _find_files(directory, entries)
    for entry in entries.values():
        if not is_valid_name(entry.name.encode()):
            broker.log.warning("skipping creation of invalid topic %s", entry.name)
        elif not is_ephemeral(entry.name):
            try:
                _TopicLoader(broker, entry, sorted(files[entry.name])).load()
            except OSError as error:
                raise StartError(f"failed to read topic {entry.name} - {error}") from error


def _read_metadata(broker: Broker, path: Path) -> list[TopicEntry]:
    """What `nsqd.dat` says; one that is damaged is set aside: topics and channels have files of their own."""
    try:
        return read_metadata(path)
    except BadMetadata as error:
        aside = _set_aside(path)
        broker.log.error(
            "NSQ: %s; set aside as %s. Topics and channels are taken from their files; which of them were paused is "
            "not known any more",
            error,
            aside.name,
        )
        return []


def _set_aside(path: Path) -> Path:
    """A file that cannot be read at all keeps its bytes under another name."""
    aside = path.with_name(path.name + ".damaged")
    while aside.exists():
        aside = aside.with_name(aside.name + "~")
    path.rename(aside)
    return aside


def _find_files(directory: Path, entries: dict[str, TopicEntry]) -> dict[str, list[tuple[int, Path]]]:
    """Log files by topic as (first sequence number, path); topics and channels that `nsqd.dat` misses are added."""
    files: dict[str, list[tuple[int, Path]]] = defaultdict(list)
    for path in directory.iterdir():
        if path.name.endswith(_LEFTOVERS):
            path.unlink(missing_ok=True)
            continue
        parsed = parse_log_file_name(path.name)
        if parsed is not None:
            topic, first_seq = parsed
            files[topic].append((first_seq, path))
            entries.setdefault(topic, TopicEntry(topic))
        elif path.name.endswith(_CURSOR_SUFFIX):
            topic, _, channel = path.name.removesuffix(_CURSOR_SUFFIX).partition(":")
            if channel:
                entries.setdefault(topic, TopicEntry(topic)).channels.setdefault(channel, False)
    return files


class _TopicLoader:
    """Puts back one topic."""

    def __init__(self, broker: Broker, entry: TopicEntry, files: list[tuple[int, Path]]) -> None:
        self._broker = broker
        self._entry = entry
        self._paths = files
        self._log = broker.logs.make(entry.name)
        self._deferred: list[DeferredSpan] = []
        self._gaps: list[tuple[int, int]] = []

    def load(self) -> None:
        self._read_files()
        saved = {name: self._read_journal(name) for name in self._valid_channels()}
        for name in [name for name, position in saved.items() if position is not None and position.is_deleted]:
            del saved[name]
            self._broker.channel_journal(self._entry.name, name).remove()
        held = _load_and_close(self._broker.topic_journal(self._entry.name))
        log_end = self._log.next_seq
        for position in [*saved.values(), held]:
            if position is not None:
                self._log.start_at(position.end)
        if self._log.next_seq > log_end:
            self._gaps.append((log_end, self._log.next_seq))
        self._broker.guids.skip_past(self._log.used_id)
        topic = self._broker.add_topic(self._entry.name, self._log)
        topic.is_paused = self._entry.is_paused
        self._set_released(topic, saved, held)
        for name, position in saved.items():
            self._add_channel(topic, name, position)
        self._broker.log.info("TOPIC(%s): created", topic.name)
        self._broker.compactor.look_at(topic)

    def _read_files(self) -> None:
        files = self._open_files()
        for file, following in zip_longest(files, files[1:]):
            is_last = following is None
            recovered = recover_file(file, is_last=is_last, until=None if is_last else following.first_seq)
            if self._log.file_count and file.first_seq > self._log.next_seq:
                self._gaps.append((self._log.next_seq, file.first_seq))
            self._log.adopt(recovered, is_last=is_last)
            self._gaps.extend(recovered.gaps)
            self._deferred.extend(recovered.deferred)
        if self._log.first_seq:
            # Files were dropped by what is finished in memory; a journal may have known less.
            self._gaps.append((0, self._log.first_seq))

    def _open_files(self) -> list[LogFile]:
        files = []
        for first_seq, path in self._paths:
            try:
                file = self._open_file(path, first_seq)
            except Damaged as error:
                self._set_aside(path, str(error))
                continue
            if file.first_seq == first_seq:
                files.append(file)
            else:
                file.close()
                self._set_aside(path, "its header is that of another file")
        return files

    def _open_file(self, path: Path, first_seq: int) -> LogFile:
        """Raises Damaged where its header is, and nothing in the file tells what it said."""
        try:
            return LogFile.open(path)
        except Damaged:
            if not mend_header(path, first_seq):
                raise
        self._broker.log.error("DISKQUEUE: %s: its header was damaged, and is written anew", path.name)
        return LogFile.open(path)

    def _set_aside(self, path: Path, reason: str) -> None:
        aside = _set_aside(path)
        self._broker.log.error("DISKQUEUE: %s: %s; set aside as %s", path.name, reason, aside.name)

    def _valid_channels(self) -> list[str]:
        valid = []
        for name in self._entry.channels:
            if is_valid_name(name.encode()) and not is_ephemeral(name):
                valid.append(name)
            else:
                self._broker.log.warning("skipping creation of invalid channel %s", name)
        return valid

    def _read_journal(self, channel: str) -> SavedPosition | None:
        return _load_and_close(self._broker.channel_journal(self._entry.name, channel))

    def _set_released(
        self, topic: Topic, saved: dict[str, SavedPosition | None], held: SavedPosition | None
    ) -> None:
        """A topic that is held goes on from where it was; one that flows has released all it has."""
        if saved and not topic.is_paused:
            return
        reached = [position.end for position in saved.values() if position is not None]
        start = held.finished.floor if held is not None else 0
        topic.released = max([start, self._log.first_seq, *reached])
        topic.unreleased_deferred = [
            (span.low, span.high, span.due_ns) for span in self._deferred if span.low >= topic.released
        ]

    def _add_channel(self, topic: Topic, name: str, saved: SavedPosition | None) -> None:
        if saved is None:  # its journal is lost: rather twice than never
            saved = SavedPosition(SeqRanges(min(self._log.first_seq, topic.released)))
        for low, high in self._gaps:
            if low < topic.released:
                saved.finished.add_missing(low, min(high, topic.released))
        saved.forget_finished()
        deferred = [(span.low, span.high, span.due_ns) for span in self._deferred if span.low < topic.released]
        position = restore_position(saved, topic.released, deferred, self._broker.clock())
        channel = self._broker.add_channel(topic, name, position)
        if self._entry.channels[name]:
            channel.pause()
        channel.restore()
        channel.save()


def _load_and_close(journal: Journal) -> SavedPosition | None:
    """What a journal says. It is written anew from here, not gone on with."""
    try:
        return journal.load()
    finally:
        journal.close()
