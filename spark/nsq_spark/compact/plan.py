"""Which stored log files become which Parquet file. Pure.

A log is known by its store, topic and an epoch, so that a topic that was deleted and created again is another one. A log
begins an epoch with each failover, and remembers the last of them, so a table knows it by any of these. What a table has of
a log are ranges of sequence numbers: whole log files, so a file that it lacks is in none of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from nsq_spark.archive.splits import FileInfo, Span

_NAME = re.compile(
    r"(?P<store>[0-9a-f]+)-(?P<topic>.+)-(?P<epoch>\d+)-(?P<first>\d{20})-(?P<end>\d{20})\.parquet"
)


class Log(NamedTuple):
    """The log of a topic in a store, by one of its epochs."""

    store: str
    topic: str
    epoch: int

    def __str__(self) -> str:
        return f"{self.store}-{self.topic}-{self.epoch}"


class SealedLog(NamedTuple):
    """A log file that does not grow any more, and the numbers in it that count: from `first_seq` to `end_seq` (not included)."""

    log: Log
    first_seq: int
    end_seq: int
    info: FileInfo

    def behind(self, seq: int) -> SealedLog:
        """Return the file with the numbers from `seq` on."""
        info = replace(self.info, numbers=(seq, self.end_seq))
        return self._replace(first_seq=seq, info=info)


class Group(NamedTuple):
    """Neighbouring files of a log that become one Parquet file."""

    log: Log
    files: tuple[SealedLog, ...]

    @property
    def span(self) -> Span:
        return self.files[0].first_seq, self.files[-1].end_seq

    @property
    def size_bytes(self) -> int:
        return sum(file.info.size_bytes for file in self.files)


class Plan(NamedTuple):
    """The groups to write, those of a log in order; and for each log how many messages the store does not have any more
    that no table has either.
    """

    groups: list[Group]
    lost: dict[Log, int]


# What a table has of each log.
Done = Mapping[Log, Sequence[Span]]


def file_name(log: Log, span: Span, token: str = "") -> str:
    """Return the name of a Parquet file, with what tells it from those of other tasks. No topic makes it a hidden file."""
    first_seq, end_seq = span
    return f"{log}-{first_seq:020d}-{end_seq:020d}{token and '-'}{token}.parquet"


def parse_name(name: str) -> tuple[Log, Span] | None:
    """Return the log and the numbers of a file that has its name from `file_name`, without a token; None for another file."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    log = Log(match["store"], match["topic"], int(match["epoch"]))
    return log, (int(match["first"]), int(match["end"]))


def plan_groups(sealed: Iterable[SealedLog], done: Done, target_bytes: int) -> Plan:
    """Group the files that are in no range of `done`. A group has about `target_bytes`, and at least one file."""
    groups: list[Group] = []
    lost: dict[Log, int] = {}
    reached: dict[Log, int] = {}
    for file in sorted(sealed, key=lambda one: (one.log, one.first_seq)):
        spans = done.get(file.log, ())
        ends = [end for _, end in spans if end <= file.first_seq]
        begin = max([reached.get(file.log, 0), *ends])
        reached[file.log] = file.end_seq
        ends = [end for first, end in spans if first <= file.first_seq < end]
        if ends and max(ends) >= file.end_seq:
            continue
        if ends:  # a compaction of nsqd has made it of files that are done, and of others
            file = file.behind(max(ends))
        if 0 < begin < file.first_seq:
            lost[file.log] = lost.get(file.log, 0) + file.first_seq - begin
        if groups and _joins(groups[-1], file, target_bytes):
            groups[-1] = Group(file.log, (*groups[-1].files, file))
        else:
            groups.append(Group(file.log, (file,)))
    return Plan(groups, lost)


def _joins(group: Group, file: SealedLog, target_bytes: int) -> bool:
    is_next = group.log == file.log and group.span[1] == file.first_seq
    return is_next and group.size_bytes + file.info.size_bytes <= target_bytes
