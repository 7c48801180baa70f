"""Repairs nsqd's log files with what the store has of them: the objects of log files, and the rounds after the last base."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nsqd_py.diskqueue.files.log_file import LogFile, parse_log_file_name
from nsqd_py.diskqueue.journals.ranges import Range
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.objects.calls import Missing, Objects
from nsqd_py.runtime.threads import in_thread
from nsqd_py.standby.repairs.repair import RepairedFile, repair_range
from nsqd_py.store.files import StoredFiles
from nsqd_py.store.image import LogSource, StoreReader
from nsqd_py.store.log_bytes import read_range
from nsqd_py.store.spill import Spill


@dataclass(eq=False, repr=False)
class StoreCopy:
    """The store as another copy of the logs: a `Copy` of `broker.mending`.

    _directory  takes a file without a name, with what is too much for the memory
    """

    _objects: Objects
    _threadpool: Any
    _files: StoredFiles
    _directory: Path
    name = "the store"

    def fill(self, log: TopicLog, path: Path, file: LogFile, ranges: list[Range]) -> list[Range]:
        topic, _ = parse_log_file_name(file.path.name) or ("", 0)
        source = self._source_of(topic, file, max(end for _, end in ranges))
        if source is None:
            return ranges
        copy = _StoredCopy(self._objects, self._threadpool, source)
        target = RepairedFile(self._threadpool, path, file.path.name, file.salt)
        left: list[Range] = []
        with target.opened() as write:
            for start, end in ranges:
                stored_end = min(end, source.size_bytes)
                if start < stored_end:
                    try:
                        left += repair_range(copy, start, stored_end, write)
                    except Missing:  # the object was lost: asking again does not help
                        left.append((start, stored_end))
                if stored_end < end:
                    left.append((max(start, stored_end), end))
        return left

    def _source_of(self, topic: str, file: LogFile, end: int) -> LogSource | None:
        """Return where the store has this log file; its rounds are read only for what is in none of the files."""
        stored = self._files.of_file(topic, file)
        if stored is not None and stored.size_bytes >= end:
            return LogSource(file.path.name, file.first_seq, file.salt, stored, None)

        def read() -> LogSource | None:
            reader = StoreReader(self._objects, spill=Spill(self._directory))
            reader.refresh()
            for source in reader.image.log_files(topic):
                if source.name == file.path.name and source.salt == file.salt:
                    return source
            return None

        return in_thread(self._threadpool, read)


class _StoredCopy:
    """The bytes of one log file in the store. Methods block the greenlet, and raise the errors of `Objects`."""

    def __init__(self, objects: Objects, threadpool: Any, source: LogSource) -> None:
        self.salt = source.salt
        self._objects = objects
        self._threadpool = threadpool
        self._source = source

    def fetch_bytes(self, offset: int, size_bytes: int) -> bytes:
        end = offset + size_bytes
        return in_thread(self._threadpool, read_range, self._objects, self._source, offset, end)

    def pieces(self, start: int, end: int) -> Iterator[bytes]:
        yield self.fetch_bytes(start, end - start)
