"""Writes a store into an empty data path: the small files, the end of each log, and what has unfinished messages and is in no
sealed file of the store.

nsqd reads the sealed files in the store when they are asked for, so that it serves soon. `nsqd.backup` lies in a data path
until it is restored completely.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from nsqd_py.broker.state_files import BACKUP_FILE, MEMBER_FILE, read_checked, write_checked
from nsqd_py.diskqueue.checking import numbers_in
from nsqd_py.diskqueue.files.log_file import replace_file, sync_directory
from nsqd_py.diskqueue.journals.journal import JOURNAL_SUFFIX
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, FileHeader
from nsqd_py.errors import NsqdError, StartError
from nsqd_py.objects.calls import Missing, Objects
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.private_files import create, make_directory
from nsqd_py.standby.copies.data_path import check_name, topic_of
from nsqd_py.standby.copies.unfinished import Unfinished
from nsqd_py.store.image import LogSource, StoreImage
from nsqd_py.store.layout import BadObject
from nsqd_py.store.log_bytes import read_source
from nsqd_py.store.ownership import CLAIMS_FILE

_AT_ONCE = 8  # files that are fetched at the same time
_POLL_S = 0.05
_MOST_NAMED = 20
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

    # ---- a whole data path

    def is_due(self, restore_from: str, *, is_copy: bool = False) -> bool:
        """True if the data path is empty, and must be restored. Raises StartError and OSError.

        is_copy  it may be another nsqd's, which had the store
        """
        names = set(os.listdir(self.directory))
        is_begun = BACKUP_FILE in names
        if not restore_from:
            if is_begun:
                self._check_is_decided()
            return False
        if is_begun or names <= _OF_EMPTY:
            return True
        if CLAIMS_FILE in names or is_copy:
            return False
        raise StartError(
            f"{self.directory.absolute()} is not empty, and was in no store: choose an empty --data-path for --restore-from"
        )

    def _check_is_decided(self) -> None:
        """Raise StartError unless the operator has read what is missing, and wants nsqd to serve without that."""
        missing = read_checked(self.directory / BACKUP_FILE, lambda fields: str(fields["missing"]))
        if not missing:
            raise StartError(
                f"{self.directory.absolute()} was not restored completely: give --restore-from again, which restores "
                "it from the beginning"
            )
        self.log.error("STORE: nsqd serves without what the store has lost: %s", missing)

    def run(self, image: StoreImage, *, is_complete: bool = False) -> int:
        """Write all files that are needed, and return their number; with `is_complete`, all that there are.

        The data path counts as restored after `end`. Raises OSError, BadObject, Incomplete and the errors of `Objects`.
        """
        write_checked(self.directory / BACKUP_FILE, {"missing": ""})
        self._remove_partial()
        for name in image.small:
            self.write_small(image, name)
        journals = journals_in(image)
        sources: list[LogSource] = []
        for topic in image.topics:
            if is_complete:
                sources += image.log_files(topic)
            else:
                sources += self.needed(image, topic, journals[topic])
        self.fetch(sources)
        missing = self._missing(image)
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

    def write_small(self, image: StoreImage, name: str) -> None:
        """Write a journal of the store, or one of the other small files."""
        check_name(name)
        replace_file(self.directory / name, bytes(image.small[name]))

    def write_journals(
        self, image: StoreImage, journals: Iterable[str], channels: Container[str] | None = None
    ) -> None:
        """Write those of the journals that are missing; with `channels`, only those of these channels."""
        for name in journals:
            channel = name.removesuffix(JOURNAL_SUFFIX).partition(":")[2]
            is_needed = channels is None or channel in channels
            if is_needed and not (self.directory / name).exists():
                self.write_small(image, name)

    # ---- log files

    def needed(self, image: StoreImage, topic: str, journals: set[str]) -> list[LogSource]:
        """Return the log files of a topic that a data path must have: nsqd reads the others in the store.

        journals  names of the topic's journals in the store
        """
        sources = image.log_files(topic)
        if not sources:
            return []
        names = {source.name: source for source in sources}
        unfinished = Unfinished(self.directory, {topic: names}, {topic: journals})
        open_sources = [source for source in sources[:-1] if not source.is_sealed]
        needed = [source for source in open_sources if unfinished.in_file(topic, source.name)]
        return [*needed, sources[-1]]  # where the log goes on

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
                for _, data in read_source(self.objects, source):
                    file.write(data)
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

    def write_apart(self, source: LogSource) -> str:
        """Write the store's version of a log file into a directory of the data path, and return its name."""
        aside = directory_aside(self.directory)
        replace(self, directory=aside)._fetch(source)
        return aside.name

    # ---- what the store has lost

    def _missing(self, image: StoreImage) -> str:
        """Return which messages of which topics are missing, or may be; "" if the store has lost nothing."""
        if not (image.is_broken or self.failed):
            return ""
        sentences = []
        for topic in sorted(image.topics):
            ranges, next_seq = self._missing_in(image, topic)
            if ranges:
                sentences.append(f"{topic}: messages {', '.join(ranges)}")
            elif image.is_broken:
                sentences.append(f"{topic}: what came from message {next_seq} on is not known")
        return joined(sentences, _MOST_NAMED, "topics") or "it is not known which"

    def _missing_in(self, image: StoreImage, topic: str) -> tuple[list[str], int]:
        """Return the ranges of messages that are missing in the logs of a topic, and the number after its last message."""
        ranges: list[str] = []
        next_seq = 0
        for source in image.log_files(topic):
            stored = source.stored
            path = self.directory / source.name
            is_damaged = source.name in image.holes or (stored is not None and stored.name in self.failed)
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


def journals_in(image: StoreImage) -> defaultdict[str, set[str]]:
    """Return the names of the journals in a store by topic."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for name in image.small:
        topic = topic_of(name)
        if topic is not None:
            found[topic].add(name)
    return found


def directory_aside(directory: Path) -> Path:
    """Make a directory of a data path for what is set aside at this moment, or return the one that is there."""
    aside = directory / f"store-alone-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    make_directory(aside)
    return aside


def joined(texts: Sequence[str], most: int, kind: str) -> str:
    """Return the first of these texts, and how many others of this kind there are, as one text."""
    named = list(texts[:most])
    left = len(texts) - len(named)
    if left:
        named.append(f"and {left} other {kind}")
    return "; ".join(named)
