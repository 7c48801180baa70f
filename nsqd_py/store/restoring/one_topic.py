"""One topic of a data path that catches up with a store, file by file."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nsqd_py.broker.state_files import forget_clean_stop
from nsqd_py.diskqueue.checking import damage_in
from nsqd_py.diskqueue.files.log_file import log_file_name
from nsqd_py.diskqueue.journals.journal import JOURNAL_SUFFIX
from nsqd_py.diskqueue.journals.ranges import Range
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, FileHeader
from nsqd_py.objects.calls import Missing
from nsqd_py.runtime.private_files import open_file
from nsqd_py.standby.copies.data_path import topic_of
from nsqd_py.standby.copies.syncing import write_at
from nsqd_py.standby.copies.unfinished import Unfinished
from nsqd_py.store.image import LogSource, StoreImage
from nsqd_py.store.layout import BadObject
from nsqd_py.store.log_bytes import end_of, has_bytes_of, header_of, read_source, salt_of
from nsqd_py.store.restoring.restoration import Restoration, directory_aside


@dataclass(eq=False, repr=False)
class TopicCatchUp:
    """Brings one topic of a data path up to the state of the store.

    local           names of the log files here, in order
    journals        names of the journals in the store
    is_copy         where messages are missing here, the positions are too old as well
    is_store_right  where a file here has other messages than the store's, the store's count: another nsqd has written them
    """

    restoration: Restoration
    image: StoreImage
    topic: str
    local: list[str]
    journals: set[str]
    is_copy: bool
    is_store_right: bool
    _is_behind: bool = False

    def run(self, channels: Container[str] | None, common_end: int | None) -> None:
        """Write what is missing. Raises as `Restoration.run` does.

        channels    those that were not deleted; None if that is not known, since the data path is not the last one
        common_end  from this number on, the messages here are others than the store's; None without such a limit
        """
        sources = self.image.log_files(self.topic)
        if common_end is not None:
            self._set_aside_from(common_end, sources)
        self.restoration.write_journals(self.image, self.journals, channels)
        if channels is None:
            self._set_aside_other_end(sources)
        for source in sources:
            if source.name in self.local:
                self._try_to_compare(source)
        self._fetch_lost()
        if self.is_copy and self._is_behind and not self.image.is_broken:
            self._replace_journals()

    def _replace_journals(self) -> None:
        """Write the positions that the store has, which are newer too. They are of messages that are here now."""
        for name in self.journals:
            self.restoration.write_small(self.image, name)

    def _path(self, name: str) -> Path:
        return self.restoration.directory / name

    # ---- files that are missing here

    def _fetch_lost(self) -> None:
        last = self.local[-1] if self.local else ""
        needed = self.restoration.needed(self.image, self.topic, self.journals)
        not_here = [source for source in needed if source.name not in self.local]
        lost = [source for source in not_here if self._is_lost(source, last)]
        if lost:
            self._is_behind |= lost[-1].name > last
            self.restoration.fetch(lost)
            names = ", ".join(source.name for source in lost if self._path(source.name).exists())
            self.restoration.log.warning(
                "STORE: files that were missing here came back from the store: %s", names
            )

    def _is_lost(self, source: LogSource, last: str) -> bool:
        """True if nsqd has lost this file: it is behind its last one, or unfinished here, and no other one has it."""
        if source.name > last:
            return True
        journals = set()
        for name in os.listdir(self.restoration.directory):
            if name.endswith(JOURNAL_SUFFIX) and topic_of(name) == self.topic:
                journals.add(name)
        logs = dict.fromkeys([*self.local, source.name])
        unfinished = Unfinished(self.restoration.directory, {self.topic: logs}, {self.topic: journals})
        if not unfinished.in_file(self.topic, source.name):
            return False
        return not self._is_covered(source)

    def _is_covered(self, source: LogSource) -> bool:
        """True if a sparse file, which a compaction has made, reaches over this one."""
        before = [name for name in self.local if name < source.name]
        end = None
        if before:
            end = end_of(self._path(before[-1]))
        return end is not None and end.seq > source.first_seq

    # ---- files that are in both

    def _try_to_compare(self, source: LogSource) -> None:
        try:
            self._compare(source)
        except (BadObject, Missing) as error:
            self.restoration.note_failed(source, error)

    def _compare(self, source: LogSource) -> None:
        """Repair a local log file from the same one in the store: what its disk has lost, and what is damaged.

        A file that is an object as a whole is compared only in size: the scrub finds the rest.
        """
        path = self._path(source.name)
        if self.is_store_right and _is_of_another(path, source):
            self._set_aside([source.name])
            return
        size_bytes = path.stat().st_size
        is_whole = source.stored is not None and source.stored.is_sealed
        if is_whole and size_bytes >= source.size_bytes and source.name != self.local[-1]:
            return
        if salt_of(path) != source.salt:
            return
        ranges = [*damage_in(path, source.salt), (size_bytes, source.size_bytes)]
        if source.stored is not None or source.tail is None:
            stored_from = 0
        else:
            stored_from = source.tail.start_offset
        holes = self.image.holes.get(source.name, [])
        lost = []
        for start, end in _overlaps(ranges, stored_from, source.size_bytes):
            if not any(_overlaps(holes, start, end)):
                lost.append((start, end))
        is_other = self._is_other(source, size_bytes, lost, holes)
        if is_other and self.is_store_right:
            self._set_aside([source.name])
        elif is_other:
            self._use_local(source)
        elif lost:
            self._is_behind |= source.name == self.local[-1] and lost[-1][1] == source.size_bytes
            self._repair(source, lost)

    def _is_other(self, source: LogSource, size_bytes: int, lost: list[Range], holes: list[Range]) -> bool:
        """True if the local file and the store's differ where both are valid: nsqd has served without the store."""
        path = self._path(source.name)
        if not (lost or holes) and _has_end_of(path, source):
            return False
        valid = []
        valid_from = 0
        for start, end in sorted([*lost, *holes]):
            valid.append((valid_from, start))
            valid_from = end
        valid.append((valid_from, min(size_bytes, source.size_bytes)))
        is_other = False
        with open(path, "rb", opener=open_file) as file:
            for offset, data in read_source(self.restoration.objects, source):
                for start, end in _overlaps(valid, offset, offset + len(data)):
                    file.seek(start)
                    is_other |= file.read(end - start) != data[start - offset : end - offset]
        return is_other

    def _repair(self, source: LogSource, lost: list[Range]) -> None:
        """Write these byte ranges of a local log file, which the store has, and sync it."""
        descriptor = open_file(self._path(source.name), os.O_RDWR)
        try:
            for offset, data in read_source(self.restoration.objects, source):
                for start, end in _overlaps(lost, offset, offset + len(data)):
                    write_at(descriptor, start, memoryview(data)[start - offset : end - offset])
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self.restoration.log.warning(
            "STORE: %s: %d bytes that were missing or damaged here came back from the store",
            source.name,
            sum(end - start for start, end in lost),
        )

    # ---- files with other messages

    def _use_local(self, source: LogSource) -> None:
        """Keep the store's version apart, and let the local file go up as a new one."""
        kept = self.restoration.write_apart(source)
        if source.stored is not None:
            self.image.drop_file(source.stored)
        self.restoration.log.error(
            "STORE: %s has other messages here than in the store, as after a time without --store: nsqd serves those that "
            "are here; the store's file is kept in %s",
            source.name,
            kept,
        )

    def _set_aside_other_end(self, sources: list[LogSource]) -> None:
        """Set the last file here aside if the store's last one is another one under the same name."""
        if not sources or not self.local:
            return
        last = self.local[-1]
        stored = sources[-1]
        if stored.name == last and salt_of(self._path(last)) != stored.salt:
            self._set_aside([last])

    def _set_aside_from(self, common_end: int, sources: list[LogSource]) -> None:
        """Set the files aside that begin where the messages are others than the store's, and take its positions.

        Each nsqd begins a new file with its epoch. If the store has one of the files, this data path was a copy of the
        nsqd that has written it, and lacks only the epoch.
        """
        stored = {source.name: source.salt for source in sources}
        others = [name for name in self.local if name >= log_file_name(self.topic, common_end)]
        if any(salt_of(self._path(name)) == stored.get(name, -1) for name in others):
            return
        self._replace_journals()  # also after a crash in between: the epochs are written last
        if others:
            self._set_aside(others)

    def _set_aside(self, names: list[str]) -> None:
        forget_clean_stop(self.restoration.directory)  # it names the end of the log that was here
        kept = move_aside(self.restoration.directory, names)
        self.local = [name for name in self.local if name not in names]
        self._is_behind = True
        self.restoration.log.error(
            "STORE: %s has other messages than the store under the same numbers; nsqd serves the store's; what was here is "
            "kept in %s",
            ", ".join(names),
            kept,
        )


def move_aside(directory: Path, names: Iterable[str]) -> str:
    """Move files of a data path into a directory of it, and return the name of that."""
    aside = directory_aside(directory)
    for name in names:
        os.rename(directory / name, aside / name)
    return aside.name


def _overlaps(ranges: list[Range], start: int, end: int) -> Iterator[Range]:
    """Yield the parts of these ranges that are between `start` and `end`."""
    for low, high in ranges:
        if max(low, start) < min(high, end):
            yield max(low, start), min(high, end)


def _has_end_of(path: Path, source: LogSource) -> bool:
    """True if the local file has the last bytes that the store has."""
    if source.tail is None:
        assert source.stored is not None
        return has_bytes_of(path, source.stored)
    with open(path, "rb", opener=open_file) as file:
        file.seek(source.tail.start_offset)
        return all(file.read(len(data)) == data for data in source.tail.chunks)


def _is_of_another(path: Path, source: LogSource) -> bool:
    """True if the local file was not written by the nsqd whose file the store has. A compaction makes others, too."""
    header = header_of(path)
    if header is None:
        return False
    is_compacted = header.is_sparse or _is_sparse(source)
    return header.salt != source.salt and not is_compacted


def _is_sparse(source: LogSource) -> bool:
    """True if the store has a file that was compacted before it was put."""
    if source.tail is None or source.tail.start_offset:
        return False
    first = next(iter(source.tail.chunks), b"")
    return len(first) >= FILE_HEADER_BYTES and FileHeader.unchecked(first).is_sparse
