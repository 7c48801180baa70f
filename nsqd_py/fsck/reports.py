"""The findings of a check, as data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum


class Refused(Exception):
    """A command on a data directory does nothing; the text says why, and what to do."""


class Problem(StrEnum):
    """The kinds of damage; each has its own repair."""

    METADATA = "cannot be understood"
    HEADER = "header is damaged, its records say what it was"
    UNREADABLE = "cannot be read as a log file"
    WRONG_NAME = "header is that of another file"
    RECORDS = "damaged records"
    JOURNAL = "damaged entries of a channel's position"
    POSITION = "a channel's position cannot be read"
    GONE = "is gone"
    TORN_RECORD = "torn record at the end"
    TORN_ENTRY = "torn entry at the end"


# A crash or a power cut may leave these, and the next start repairs them. They hold nothing that was acknowledged.
HARMLESS = (Problem.TORN_RECORD, Problem.TORN_ENTRY)


@dataclass(frozen=True, slots=True)
class Finding:
    """Damage in a file: the bytes start..end (not included).

    For a missing log file, `start` and `end` are numbers of messages, and `topic` is its topic.
    """

    file: str
    trouble: Problem  # the key in the JSON of --check-data
    start: int
    end: int
    detail: str = ""
    topic: str = ""

    @property
    def is_damage(self) -> bool:
        return self.trouble not in HARMLESS


@dataclass(slots=True)
class FileReport:
    """A log file; `size_bytes` is its space on the disk."""

    name: str
    first_seq: int
    end_seq: int
    messages: int
    size_bytes: int
    is_sparse: bool
    is_imported: bool


@dataclass(slots=True)
class ChannelReport:
    """The messages of the log by their state in a channel. `missing` ones are neither finished nor in the log."""

    name: str
    is_paused: bool
    queued: int
    deferred: int
    finished: int
    missing: int


@dataclass(slots=True)
class TopicReport:
    """A topic. Its `held` messages are in no channel yet, because there is none or the topic is paused."""

    name: str
    is_paused: bool
    held: int = 0
    live: int = 0
    files: list[FileReport] = field(default_factory=list)
    channels: list[ChannelReport] = field(default_factory=list)

    @property
    def messages(self) -> int:
        return sum(file.messages for file in self.files)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


@dataclass(slots=True)
class DirectoryReport:
    """A data directory.

    leftovers  files that the next start removes
    set_aside  bytes that nsqd could not read at an earlier time
    go_files   files of Go's nsqd, which the next start imports
    others     files that are not nsqd's
    """

    path: str
    topics: list[TopicReport] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    set_aside: list[str] = field(default_factory=list)
    go_files: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    @property
    def damage(self) -> Iterator[Finding]:
        return (finding for finding in self.findings if finding.is_damage)

    @property
    def is_well(self) -> bool:
        return not any(self.damage)
