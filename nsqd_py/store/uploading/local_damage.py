"""Damage on the disk in what only rounds of the store have: a base would take it for the right bytes.

A base, and a log file as an object, are read from the disk; what comes before them in the store is then not needed any more. A
bit that has flipped on the disk since the round was put must not replace it. So bases wait, and rounds go on, until the damage is
repaired from the rounds: at once, or by a restart.
"""

from __future__ import annotations

from typing import NamedTuple

from nsqd_py.broker.broker import Broker
from nsqd_py.broker.services import Topic
from nsqd_py.diskqueue.checking import damage_in
from nsqd_py.diskqueue.files.log_file import LogFile
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES
from nsqd_py.runtime.threads import in_thread
from nsqd_py.store.files import StoredFiles


class DamagedBytes(NamedTuple):
    """The bytes of a log file in which there is no valid record."""

    name: str
    salt: int
    start: int
    end: int


class LocalDamage:
    """Looks at what the next base would take from the disk.

    found  damage that was not there at the first base: a start has compared the disk with the store
    """

    def __init__(self, broker: Broker, files: StoredFiles) -> None:
        self._broker = broker
        self._files = files
        self._known: set[DamagedBytes] | None = None
        self.found: list[DamagedBytes] = []

    @property
    def is_known(self) -> bool:
        """False until the first look."""
        return self._known is not None

    @property
    def text(self) -> str:
        """A sentence about the damage; "" if there is none."""
        if not self.found:
            return ""
        first = self.found[0]
        return (
            f"{first.name} is damaged on the disk in the bytes {first.start} to {first.end}, of which the store has "
            "the right ones: no base is put until they are repaired; a restart repairs them, too"
        )

    def look(self) -> None:
        """Find the damage, and have it repaired. Raises OSError. Blocks this greenlet."""
        found: list[DamagedBytes] = []
        is_first = self._known is None
        if self._known is not None:
            known = self._known
        else:
            known = set()
        for topic in list(self._broker.topics.values()):
            damaged = self._in_topic(topic)
            if is_first:
                known.update(damaged)
                continue
            new = [each for each in damaged if each not in known]
            found += new
            self._repair(topic, new)
        self._known = known
        before = self.text
        self.found = found
        if self.text not in ("", before):
            self._broker.log.error("STORE: %s", self.text)

    def _repair(self, topic: Topic, damaged: list[DamagedBytes]) -> None:
        """Have new damage of a topic repaired, in a greenlet: the rounds are a copy of the log. A later look finds the rest."""
        log_files = self._broker.log_files
        if log_files is None or topic.log is None:
            return
        for file in list(topic.log.files):
            ranges = [(each.start, each.end) for each in damaged if each.name == file.path.name]
            if ranges:
                log_files.damaged((topic, file), ranges)

    def is_in(self, topic: Topic, file: LogFile) -> bool:
        """True if this file has new damage in what no stored file has. Raises OSError. Blocks this greenlet."""
        stored_bytes = dict(self._files.stored_ends(topic)).get(file, 0)
        damaged = self._in_file(file, max(stored_bytes, FILE_HEADER_BYTES))
        return any(each not in (self._known or ()) for each in damaged)

    def _in_topic(self, topic: Topic) -> list[DamagedBytes]:
        found: list[DamagedBytes] = []
        for file, stored_bytes in self._files.stored_ends(topic):
            start = max(stored_bytes, FILE_HEADER_BYTES)
            if start < file.end_offset:
                found += self._in_file(file, start)
        return found

    def _in_file(self, file: LogFile, start: int) -> list[DamagedBytes]:
        threadpool = self._broker.services.threadpool
        try:
            ranges = in_thread(threadpool, damage_in, file.path, file.salt, file.end_offset, start)
        except FileNotFoundError:  # it was dropped in the meantime
            return []
        return [DamagedBytes(file.path.name, file.salt, low, high) for low, high in ranges]
