"""Writes what a store has into a data path: all of it into an empty one, and what is missing into one that lost its end.

Into an empty data path go the small files, the end of each log, and what has unfinished messages and is in no sealed file of
the store. nsqd reads the others in the store when they are asked for, so that it serves soon. `nsqd.backup` lies in a data
path until it is restored completely.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, NamedTuple

from google_crc32c import extend

from nsqd_py.broker.metadata import BadMetadata, read_metadata
from nsqd_py.broker.state_files import (
    BACKUP_FILE,
    MEMBER_FILE,
    METADATA_FILE,
    forget_clean_stop,
    read_checked,
    write_checked,
)
from nsqd_py.diskqueue.checking import damage_in, numbers_in
from nsqd_py.diskqueue.files.log_file import (
    LogFile,
    log_file_name,
    parse_log_file_name,
    replace_file,
    sync_directory,
)
from nsqd_py.diskqueue.journals.journal import JOURNAL_SUFFIX, SavedPosition, encode_position, journal_name
from nsqd_py.diskqueue.journals.ranges import Range
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, Damaged, FileHeader
from nsqd_py.diskqueue.recovery import recover_file
from nsqd_py.errors import NsqdError, StartError
from nsqd_py.objects.calls import Missing, Objects
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.private_files import create, make_directory, open_file
from nsqd_py.standby.copies.data_path import check_name, topic_of
from nsqd_py.standby.copies.syncing import write_at
from nsqd_py.standby.copies.unfinished import Unfinished
from nsqd_py.store.image import LogSource, StoreImage
from nsqd_py.store.layout import BadObject
from nsqd_py.store.logs_here import LogsHere
from nsqd_py.store.ownership import CLAIMS_FILE

_AT_ONCE = 8  # files that are fetched at the same time
_PIECE_BYTES = 4 * 1024 * 1024
_POLL_S = 0.05
_MOST_NAMED = 20
_END_BYTES = 4096  # of a log file
_ALONE_PREFIX = "store-alone-"
# Files of an empty data path. A new file system has lost+found.
_OF_EMPTY = {"lost+found", CLAIMS_FILE, MEMBER_FILE}


class Incomplete(NsqdError):
    """The store has lost something; the text says what."""


@dataclass(frozen=True, slots=True)
class Restoration:
    """Writes files of a store into the data path `directory`.

    failed  why objects with log files could not be fetched as a whole, by their names
    gone    those of them that are missing
    """

    directory: Path
    objects: Objects
    on_progress: Callable[[], None]
    log: Log
    failed: dict[str, str] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)

    def is_due(self, restore_from: str, *, is_copy: bool = False) -> bool:
        """True if the data path is empty, and must be restored. Raises StartError and OSError.

        is_copy  it may be another nsqd's, which had the store
        """
        names = set(os.listdir(self.directory))
        if BACKUP_FILE in names:
            missing = read_checked(self.directory / BACKUP_FILE, lambda fields: str(fields["missing"]))
            if missing and not restore_from:  # the operator has read it
                self.log.error("STORE: nsqd serves without what the store has lost: %s", missing)
                return False
            if not restore_from:
                raise StartError(
                    f"{self.directory.absolute()} was not restored completely: give --restore-from again, which restores "
                    "it from the beginning"
                )
            return True
        if not restore_from or names <= _OF_EMPTY:
            return bool(restore_from)
        if CLAIMS_FILE in names or is_copy:
            return False
        raise StartError(
            f"{self.directory.absolute()} is not empty, and was in no store: choose an empty --data-path for --restore-from"
        )

    def run(self, image: StoreImage, *, is_complete: bool = False) -> int:
        """Write all files that are needed, and return their number; with `is_complete`, all that there are.

        The data path counts as restored after `end`. Raises OSError, BadObject, Incomplete and the errors of `Objects`.
        """
        write_checked(self.directory / BACKUP_FILE, {"missing": ""})
        self._remove_partial()
        for name, content in image.small.items():
            self.write_small(name, content)
        journals = _journals_in(image)
        sources = [
            source
            for topic in image.topics
            for source in self.needed(image, topic, journals[topic], is_complete=is_complete)
        ]
        self.fetch(sources)
        missing = ""
        if image.is_broken or self.failed:
            missing = missing_in(self.directory, image, self.failed)
        if missing:
            write_checked(self.directory / BACKUP_FILE, {"missing": missing})
        size_bytes = sum(source.size_bytes for source in sources)
        self.log.info("STORE: restored %d log files, %d bytes", len(sources), size_bytes)
        if missing:
            raise Incomplete(f"messages are missing in it: {missing}")
        return len(image.small) + len(sources)

    def end(self) -> None:
        """Note durably that the data path is restored. Raises OSError."""
        (self.directory / BACKUP_FILE).unlink(missing_ok=True)
        sync_directory(self.directory)

    def _remove_partial(self) -> None:
        for name in os.listdir(self.directory):
            if name not in _OF_EMPTY and name != BACKUP_FILE:
                (self.directory / name).unlink()

    def write_small(self, name: str, content: bytes | bytearray) -> None:
        """Write a journal, or one of the other small files."""
        check_name(name)
        replace_file(self.directory / name, bytes(content))

    def needed(
        self, image: StoreImage, topic: str, journals: set[str], *, is_complete: bool = False
    ) -> list[LogSource]:
        """Return the log files of a topic that a data path must have: nsqd reads the others in the store.

        journals  names of the topic's journals in the store
        """
        sources = image.log_files(topic)
        if is_complete or not sources:
            return sources
        names = {source.name: source for source in sources}
        unfinished = Unfinished(self.directory, {topic: names}, {topic: journals})
        needed = [
            source
            for source in sources[:-1]
            if not _is_sealed(source) and unfinished.in_file(topic, source.name)
        ]
        return [*needed, sources[-1]]  # where the log goes on

    # ---- log files

    def fetch(self, sources: Iterable[LogSource]) -> None:
        """Write these log files, several at once. Raises as `run` does."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            running = {pool.submit(self._fetch, source) for source in sources}
            try:
                while running:
                    done, running = wait(running, _POLL_S, "FIRST_COMPLETED")
                    for each in done:
                        each.result()
                    self.on_progress()
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        sync_directory(self.directory)

    def _fetch(self, source: LogSource) -> None:
        """Write one file under another name, then give it its own; runs in a thread.

        A damaged object is written as it is, since nsqd passes over the records that are damaged.
        """
        check_name(source.name)
        path = self.directory / source.name
        temporary = path.with_name(f"{path.name}.compact")  # a start removes it
        with create(temporary) as file:
            try:
                self._copy_to(source, 0, lambda _offset, data: file.write(data))
            except (BadObject, Missing) as error:
                self.note_failed(source, error)
                if not file.tell() and source.tail is None:
                    return
                self._write_rest(source, file)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)

    @staticmethod
    def _write_rest(source: LogSource, file: IO[bytes]) -> None:
        """Write the header of a file whose object is missing, and the tail of one whose object is damaged or missing."""
        if not file.tell():
            file.write(FileHeader(source.salt, source.first_seq, 0).encode())
        if source.tail is not None:
            file.seek(source.tail.start_offset)
            file.writelines(source.tail.chunks)

    def note_failed(self, source: LogSource, error: BadObject | Missing) -> None:
        """Note that the object of a log file is damaged or missing."""
        assert source.stored is not None
        name = source.stored.name
        self.failed[name] = str(error)
        if isinstance(error, Missing):
            self.gone.add(name)
        self.log.error("STORE: %s", error)

    def _copy_to(self, source: LogSource, start: int, write: Callable[[int, bytes], object]) -> None:
        """Read a log file from `start` on, and pass the pieces with their offsets to `write`."""
        stored = source.stored
        if stored is not None:
            crc = 0
            for offset in range(0, stored.size_bytes, _PIECE_BYTES):
                end = min(offset + _PIECE_BYTES, stored.size_bytes)
                data = self.objects.get_range(stored.name, offset, end)
                crc = extend(crc, data)
                if len(data) != end - offset:
                    raise BadObject(f"{stored.name} is damaged: it ends at {offset + len(data)}")
                if end > start:
                    write(max(offset, start), data[max(0, start - offset) :])
            if crc != stored.crc:
                raise BadObject(f"{stored.name} is damaged: its checksum is wrong")
        if source.tail is None:
            return
        offset = source.tail.start_offset
        for data in source.tail.chunks:
            end = offset + len(data)
            if end > start:
                write(max(offset, start), data[max(0, start - offset) :])
            offset = end

    def repair(self, source: LogSource, ranges: list[Range]) -> None:
        """Write these byte ranges of a local log file, which the store has, and sync it. Raises as `run` does."""
        descriptor = open_file(self.directory / source.name, os.O_RDWR)

        def write(offset: int, data: bytes) -> None:
            for start, end in _overlaps(ranges, offset, offset + len(data)):
                write_at(descriptor, start, memoryview(data)[start - offset : end - offset])

        try:
            self._copy_to(source, ranges[0][0], write)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def differs(self, source: LogSource, valid: list[Range]) -> bool:
        """True if the store has other bytes in these ranges of a local log file. Raises as `run` does."""
        descriptor = open_file(self.directory / source.name, os.O_RDONLY)
        is_other = False

        def compare(offset: int, data: bytes) -> None:
            nonlocal is_other
            for start, end in _overlaps(valid, offset, offset + len(data)):
                is_other |= os.pread(descriptor, end - start, start) != data[start - offset : end - offset]

        try:
            self._copy_to(source, 0, compare)
        finally:
            os.close(descriptor)
        return is_other

    def write_apart(self, source: LogSource) -> str:
        """Write the store's version of a log file into a directory of the data path, and return its name."""
        directory = self.directory / f"{_ALONE_PREFIX}{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
        make_directory(directory)
        replace(self, directory=directory)._fetch(source)
        return directory.name


def _overlaps(ranges: list[Range], start: int, end: int) -> Iterator[Range]:
    """Yield the parts of these ranges that are between `start` and `end`."""
    for low, high in ranges:
        if max(low, start) < min(high, end):
            yield max(low, start), min(high, end)


def _is_sealed(source: LogSource) -> bool:
    """True if the store has the file as one object, in which nsqd can read."""
    return source.tail is None and source.stored is not None and source.stored.is_sealed


def _journals_in(image: StoreImage) -> defaultdict[str, set[str]]:
    """Return the names of the journals in a store by topic."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for name in image.small:
        topic = topic_of(name)
        if topic is not None:
            found[topic].add(name)
    return found


# ---- what a store has lost


def missing_in(directory: Path, image: StoreImage, failed: Container[str]) -> str:
    """Return which messages of which topics are missing, or may be, in a data path that was restored from what is left.

    failed  names of objects that are damaged or missing
    """
    sentences = []
    for topic in sorted(image.topics):
        ranges, next_seq = _missing_in_topic(directory, image, topic, failed)
        if ranges:
            sentences.append(f"{topic}: messages {', '.join(ranges)}")
        elif image.is_broken:
            sentences.append(f"{topic}: what came from message {next_seq} on is not known")
    named = sentences[:_MOST_NAMED]
    left = len(sentences) - len(named)
    if left:
        named.append(f"and {left} other topics")
    return "; ".join(named) or "it is not known which"


def _missing_in_topic(
    directory: Path, image: StoreImage, topic: str, failed: Container[str]
) -> tuple[list[str], int]:
    """Return the ranges of messages that are missing in the logs of a topic, and the number after its last message."""
    ranges: list[str] = []
    next_seq = 0
    for source in image.log_files(topic):
        stored = source.stored
        path = directory / source.name
        is_damaged = source.name in image.holes or (stored is not None and stored.name in failed)
        next_seq = max(next_seq, source.first_seq)
        if path.exists() and (is_damaged or source.tail is not None):
            for start, end in numbers_in(path, source.salt, [(FILE_HEADER_BYTES, path.stat().st_size)]):
                if is_damaged and start > next_seq:
                    ranges.append(f"{next_seq} to {start - 1}")
                next_seq = end
        end_seq = stored.end_seq if stored is not None else 0
        if is_damaged and end_seq > next_seq:
            ranges.append(f"{next_seq} to {end_seq - 1}")
        next_seq = max(next_seq, end_seq)
    return ranges, next_seq


# ---- a data path that has lost its end


def catch_up(restoration: Restoration, image: StoreImage, *, is_last: bool, is_copy: bool = False) -> None:
    """Write into a data path what the store has and it lacks, after a power cut, a fault of the disk, or a takeover.

    is_last  the data path has the last nsqd.dat that was written: channels that it does not name were deleted, and so were
             topics of which the store has no messages. The deletion of others is in nsqd.epochs. It is not the last one
             where messages are missing: then the disk was put back to an earlier state
    is_copy  the data path is the copy of another nsqd's, which may be behind: where it lacks messages, it lacks positions too.
             Where a file has other messages than the store's, the store's count

    Where the store has an epoch that began before the end of a log here, what is behind that is set aside: another nsqd has
    written the store in the meantime, and this one something that the store never got.

    Raises as `Restoration.run` does.
    """
    directory = restoration.directory
    here = _files_in(directory)
    present = set(here)
    stored = _journals_in(image)
    known = _topics_of(directory)
    logs = LogsHere(directory, image)
    has_diverged = any(logs.common_end(topic) is not None for topic in image.topics)
    is_behind = has_diverged or any(
        _lacks_messages(directory, image, topic, logs, here[topic]) for topic in image.topics
    )
    is_store_right = is_copy
    is_copy |= is_last and is_behind
    is_behind |= is_copy
    is_last = is_last and not is_behind
    for topic in list(image.topics):
        restoration.on_progress()
        if logs.was_deleted(topic):
            restoration.log.info(
                "STORE: topic %s was deleted here; its messages in the store are too old", topic
            )
            image.files.pop(topic, None)
            continue
        if topic in present and _is_other_log(directory, image, topic, logs, here[topic]):
            is_older = _has_messages(image, topic) or is_behind
            if logs.is_later(topic) or not is_older:
                logs.keep(topic)
                _keep_apart(restoration, image, topic, stored[topic])
                continue
            _set_aside_log(restoration, topic, here[topic], is_deleted=logs.is_deleted_in_store(topic))
            present.remove(topic)
        if topic in present:
            channels = known.get(topic, set()) if is_last and known is not None else None
            files = _TopicFiles(_logs_of(here[topic]), stored[topic])
            one = _CatchUp(restoration, image, topic, files, is_copy=is_copy, is_store_right=is_store_right)
            one.run(channels, logs.common_end(topic))
            logs.take(topic)
        elif not is_last or known is None or topic in known or _has_messages(image, topic):
            restoration.log.warning("STORE: topic %s is missing here, and comes back from the store", topic)
            _write_journals(restoration, image, stored[topic])
            restoration.fetch(restoration.needed(image, topic, stored[topic]))
            logs.take(topic)
    only_here = (present | set(known or ())) - set(image.topics)
    for topic in only_here:
        if is_behind and logs.is_deleted_in_store(topic):
            _delete(restoration, topic, here[topic])
            logs.forget(topic)
        logs.keep(topic)
    logs.save()
    if METADATA_FILE in image.small:
        _restore_metadata(restoration, image)


def _restore_metadata(restoration: Restoration, image: StoreImage) -> None:
    """Write the store's `nsqd.dat` if there is none here, or a damaged one, which is kept."""
    path = restoration.directory / METADATA_FILE
    try:
        if path.exists():
            read_metadata(path)
            return
    except BadMetadata as error:
        os.replace(path, path.with_name(f"{METADATA_FILE}.damaged"))
        restoration.log.error("STORE: %s; set aside, and written again from the store", error)
    restoration.write_small(METADATA_FILE, image.small[METADATA_FILE])


def _topics_of(directory: Path) -> dict[str, set[str]] | None:
    """Return the topics of a data path, and their channels; None if they are not known."""
    if not (directory / METADATA_FILE).exists():
        return None
    try:
        return {entry.name: set(entry.channels) for entry in read_metadata(directory / METADATA_FILE)}
    except BadMetadata:
        return None


def _lacks_messages(
    directory: Path, image: StoreImage, topic: str, logs: LogsHere, names: Iterable[str]
) -> bool:
    """True if a data path has the end of a log no more, which nsqd had written before the store got it.

    names  of the topic's files in the data path
    """
    if logs.was_deleted(topic) or not _has_messages(image, topic):
        return False
    if logs.is_other(topic):
        return not logs.is_later(topic)
    local = _logs_of(names)
    last = image.log_files(topic)[-1]
    if not local or last.name > local[-1]:
        return True
    # A compaction makes other files smaller.
    return last.name == local[-1] and _ends_early(directory / last.name, last)


def _ends_early(path: Path, source: LogSource) -> bool:
    """True if the records of a local log file end before those that the store has. Space may be preallocated behind them."""
    if path.stat().st_size < source.size_bytes:
        return True
    if _salt_of(path) != source.salt or _has_last_bytes(path, source):
        return False
    damaged = damage_in(path, source.salt, source.size_bytes)
    return bool(damaged) and damaged[-1][1] == source.size_bytes


def _has_last_bytes(path: Path, source: LogSource) -> bool:
    """True if the store has the last record in a round, and the local file has its end: a cheap answer to most questions."""
    end = source.tail.chunks.last(_END_BYTES) if source.tail is not None else b""
    with open(path, "rb", opener=open_file) as file:
        file.seek(source.size_bytes - len(end))
        return bool(end) and file.read(len(end)) == end


def _files_in(directory: Path) -> defaultdict[str, list[str]]:
    """Return the names of the log files and journals in a data path by topic."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name in os.listdir(directory):
        topic = topic_of(name)
        if topic is not None:
            found[topic].append(name)
    return found


def _logs_of(names: Iterable[str]) -> list[str]:
    """Return the log files among the files of a topic, in the order of their messages."""
    return sorted(name for name in names if parse_log_file_name(name) is not None)


def _is_other_log(
    directory: Path, image: StoreImage, topic: str, logs: LogsHere, names: Iterable[str]
) -> bool:
    """True if the log in a data path is not the store's: its epochs are others, and its files are, too."""
    if not logs.is_other(topic):
        return False
    here = {name: _salt_of(directory / name) for name in _logs_of(names)}
    return not any(here.get(source.name) == source.salt for source in image.log_files(topic))


def _keep_apart(restoration: Restoration, image: StoreImage, topic: str, journals: set[str]) -> None:
    """Keep the end of the store's log of a topic apart, since the one that is here was made later."""
    if _has_messages(image, topic):
        kept = [restoration.write_apart(source) for source in restoration.needed(image, topic, journals)]
        restoration.log.error(
            "STORE: topic %s was made again here after the one in the store: nsqd serves the one that is here; the end of "
            "the store's is kept in %s",
            topic,
            kept[-1],
        )
    image.files.pop(topic, None)


def _set_aside_log(restoration: Restoration, topic: str, names: Iterable[str], *, is_deleted: bool) -> None:
    """Move the files of a topic here aside, since its log in the store was made later."""
    directory = restoration.directory
    forget_clean_stop(directory)  # it names the end of the log that was here
    kept = _move_aside(directory, names)
    reason = "was deleted before" if is_deleted else "is another one, without a record of its deletion"
    report = restoration.log.warning if is_deleted else restoration.log.error
    report(
        "STORE: topic %s was made again after what is here, as after a return to an old state of the disk: nsqd serves the "
        "store's; the one that was here %s, and is kept in %s",
        topic,
        reason,
        kept,
    )


def _delete(restoration: Restoration, topic: str, names: Iterable[str]) -> None:
    """Let the start delete a topic, since the store has its deletion, and this data path not yet; keep its files aside."""
    directory = restoration.directory
    kept = _move_aside(directory, names)
    replace_file(directory / journal_name(topic), encode_position(SavedPosition(is_deleted=True)))
    restoration.log.warning(
        "STORE: topic %s was deleted after what is here: it is deleted here, too, and its files are kept in %s",
        topic,
        kept,
    )


def _move_aside(directory: Path, names: Iterable[str]) -> str:
    """Move files of a data path into a directory of it, and return the name of that."""
    aside = directory / f"{_ALONE_PREFIX}{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    make_directory(aside)
    for name in names:
        os.rename(directory / name, aside / name)
    return aside.name


def _salt_of(path: Path) -> int | None:
    """Return the salt of a log file; None if its header is damaged."""
    header = _header_of(path)
    return header.salt if header is not None else None


def _header_of(path: Path) -> FileHeader | None:
    """Return the header of a log file; None if it is damaged."""
    try:
        file = LogFile.open(path, os.O_RDONLY)
    except Damaged:
        return None
    file.close()
    return file.header


def _is_sparse(source: LogSource) -> bool:
    """True if the store has a file that was compacted before it was put."""
    if source.tail is None or source.tail.start_offset:
        return False
    first = next(iter(source.tail.chunks), b"")
    return len(first) >= FILE_HEADER_BYTES and FileHeader.unchecked(first).is_sparse


def _has_messages(image: StoreImage, topic: str) -> bool:
    return any(source.size_bytes > FILE_HEADER_BYTES for source in image.log_files(topic))


def _write_journals(
    restoration: Restoration,
    image: StoreImage,
    journals: Iterable[str],
    channels: Container[str] | None = None,
) -> None:
    """Write those of the journals that are missing; with `channels`, only those of these channels."""
    for name in journals:
        channel = name.removesuffix(JOURNAL_SUFFIX).partition(":")[2]
        is_needed = channels is None or channel in channels
        if is_needed and not (restoration.directory / name).exists():
            restoration.write_small(name, image.small[name])


class _TopicFiles(NamedTuple):
    """Names of the files of one topic: the logs in the data path, in order, and the journals in the store."""

    local: list[str]
    journals: set[str]


class _CatchUp:
    """Brings one topic of a data path up to the state of the store.

    is_copy         where messages are missing here, the positions are too old as well
    is_store_right  where a file here has other messages than the store's, the store's count: another nsqd has written them
    """

    def __init__(
        self,
        restoration: Restoration,
        image: StoreImage,
        topic: str,
        files: _TopicFiles,
        *,
        is_copy: bool,
        is_store_right: bool,
    ) -> None:
        self._restoration = restoration
        self._directory = restoration.directory
        self._image = image
        self._topic = topic
        self._is_copy = is_copy
        self._is_store_right = is_store_right
        self._local = files.local
        self._journals = files.journals
        self._is_behind = False

    def run(self, channels: Container[str] | None, common_end: int | None) -> None:
        """Write what is missing.

        channels    those that were not deleted; None if that is not known, since the data path is not the last one
        common_end  from this number on, the messages here are others than the store's; None without such a limit
        """
        sources = self._image.log_files(self._topic)
        if common_end is not None:
            self._set_aside_from(common_end, sources)
        _write_journals(self._restoration, self._image, self._journals, channels)
        if channels is None:
            self._set_aside_other_end(sources)
        for source in sources:
            if source.name in self._local:
                self._try_to_compare(source)
        last = self._local[-1] if self._local else ""
        lost = [
            source
            for source in self._restoration.needed(self._image, self._topic, self._journals)
            if source.name not in self._local and self._is_lost(source, last)
        ]
        if lost:
            self._is_behind |= lost[-1].name > last
            self._restoration.fetch(lost)
            names = ", ".join(source.name for source in lost if (self._directory / source.name).exists())
            self._restoration.log.warning(
                "STORE: files that were missing here came back from the store: %s", names
            )
        if self._is_copy and self._is_behind and not self._image.is_broken:
            self._replace_journals()

    def _replace_journals(self) -> None:
        """Write the positions that the store has, which are newer too. They are of messages that are here now."""
        for name in self._journals:
            self._restoration.write_small(name, self._image.small[name])

    def _is_lost(self, source: LogSource, last: str) -> bool:
        """True if nsqd has lost this file: it is behind its last one, or unfinished here, and no other one has it."""
        if source.name > last:
            return True
        own = {name for name in os.listdir(self._directory) if name.endswith(JOURNAL_SUFFIX)}
        journals = {name for name in own if topic_of(name) == self._topic}
        names = dict.fromkeys([*self._local, source.name])
        unfinished = Unfinished(self._directory, {self._topic: names}, {self._topic: journals})
        return bool(unfinished.in_file(self._topic, source.name)) and not self._is_covered(source)

    def _is_covered(self, source: LogSource) -> bool:
        """True if a sparse file, which a compaction has made, reaches over this one."""
        before = [name for name in self._local if name < source.name]
        if not before:
            return False
        try:
            file = LogFile.open(self._directory / before[-1], os.O_RDONLY)
        except Damaged:
            return False
        try:
            recover_file(file, is_last=False)
            return file.end_seq > source.first_seq
        finally:
            file.close()

    def _try_to_compare(self, source: LogSource) -> None:
        try:
            self._compare(source)
        except (BadObject, Missing) as error:
            self._restoration.note_failed(source, error)

    def _compare(self, source: LogSource) -> None:
        """Repair a local log file from the same one in the store: what its disk has lost, and what is damaged.

        A file that is an object as a whole is compared only in size: the scrub finds the rest.
        """
        path = self._directory / source.name
        if self._is_store_right and self._is_of_another(source):
            self._set_aside([source.name])
            return
        size_bytes = path.stat().st_size
        is_whole = source.stored is not None and source.stored.is_sealed
        if is_whole and size_bytes >= source.size_bytes and source.name != self._local[-1]:
            return
        if _salt_of(path) != source.salt:
            return
        ranges = [*damage_in(path, source.salt), (size_bytes, source.size_bytes)]
        stored_from = 0 if source.stored is not None or source.tail is None else source.tail.start_offset
        holes = self._image.holes.get(source.name, [])
        lost = [
            (start, end)
            for start, end in _overlaps(ranges, stored_from, source.size_bytes)
            if not any(_overlaps(holes, start, end))
        ]
        is_other = self._is_other(source, size_bytes, lost, holes)
        if is_other and self._is_store_right:
            self._set_aside([source.name])
        elif is_other:
            self._use_local(source)
        elif lost:
            self._is_behind |= source.name == self._local[-1] and lost[-1][1] == source.size_bytes
            self._restoration.repair(source, lost)
            self._restoration.log.warning(
                "STORE: %s: %d bytes that were missing or damaged here came back from the store",
                source.name,
                sum(end - start for start, end in lost),
            )

    def _is_other(self, source: LogSource, size_bytes: int, lost: list[Range], holes: list[Range]) -> bool:
        """True if the local file and the store's differ where both are valid: nsqd has served without the store."""
        if not (lost or holes) and self._has_end_of(source):
            return False
        left_out = sorted([*lost, *holes])
        ends = [0, *(offset for each in left_out for offset in each), min(size_bytes, source.size_bytes)]
        valid = list(zip(ends[::2], ends[1::2], strict=True))
        return self._restoration.differs(source, valid)

    def _has_end_of(self, source: LogSource) -> bool:
        """True if the local file has the last bytes that the store has."""
        with open(self._directory / source.name, "rb", opener=open_file) as file:
            if source.tail is not None:
                file.seek(source.tail.start_offset)
                return all(file.read(len(data)) == data for data in source.tail.chunks)
            stored = source.stored
            assert stored is not None
            crc = 0
            for offset in range(0, stored.size_bytes, _PIECE_BYTES):
                crc = extend(crc, file.read(min(_PIECE_BYTES, stored.size_bytes - offset)))
            return crc == stored.crc

    def _use_local(self, source: LogSource) -> None:
        """Keep the store's version apart, and let the local file go up as a new one."""
        kept = self._restoration.write_apart(source)
        if source.stored is not None:
            files = self._image.files[self._topic]
            files.remove(source.stored)
        self._restoration.log.error(
            "STORE: %s has other messages here than in the store, as after a time without --store: nsqd serves those that "
            "are here; the store's file is kept in %s",
            source.name,
            kept,
        )

    def _set_aside_other_end(self, sources: list[LogSource]) -> None:
        """Set the last file here aside if the store's last one is another one under the same name."""
        if not sources or not self._local or sources[-1].name != self._local[-1]:
            return
        if _salt_of(self._directory / self._local[-1]) != sources[-1].salt:
            self._set_aside([self._local[-1]])

    def _set_aside_from(self, common_end: int, sources: list[LogSource]) -> None:
        """Set the files aside that begin where the messages are others than the store's, and take its positions.

        Each nsqd begins a new file with its epoch. If the store has one of the files, this data path was a copy of the
        nsqd that has written it, and lacks only the epoch.
        """
        stored = {source.name: source.salt for source in sources}
        others = [name for name in self._local if name >= log_file_name(self._topic, common_end)]
        if any(_salt_of(self._directory / name) == stored.get(name, -1) for name in others):
            return
        self._replace_journals()  # also after a crash in between: the epochs are written last
        if others:
            self._set_aside(others)

    def _is_of_another(self, source: LogSource) -> bool:
        """True if the local file was not written by the nsqd whose file the store has. A compaction makes others, too."""
        header = _header_of(self._directory / source.name)
        if header is None:
            return False
        is_compacted = header.is_sparse or _is_sparse(source)
        return header.salt != source.salt and not is_compacted

    def _set_aside(self, names: list[str]) -> None:
        forget_clean_stop(self._directory)  # it names the end of the log that was here
        kept = _move_aside(self._directory, names)
        self._local = [name for name in self._local if name not in names]
        self._is_behind = True
        self._restoration.log.error(
            "STORE: %s has other messages than the store under the same numbers; nsqd serves the store's; what was here is "
            "kept in %s",
            ", ".join(names),
            kept,
        )
