"""A report on a data directory: `DirectoryReport` has the findings, `as_text` and `as_json` show them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

_HEADINGS = ("TOPIC", "CHANNEL", "QUEUED", "DEFERRED", "FINISHED", "MISSING", "")
_SHOWN_NAMES = 10


# ---- the findings


class DataRefused(Exception):
    """A command on a data directory was refused, and did nothing; the text says why, and what to do."""


class DamageKind(StrEnum):
    """The kinds of damage."""

    METADATA = "cannot be understood"
    CHECKSUM = "checksum is wrong"
    UNREADABLE = "cannot be read as a log file"
    WRONG_NAME = "header is that of another file"
    RECORDS = "damaged records"
    JOURNAL = "damaged entries of a channel's position"
    POSITION = "a channel's position cannot be read"
    GONE = "is gone"
    TORN_RECORD = "torn record at the end"
    TORN_ENTRY = "torn entry at the end"


# A crash or a power cut may leave these, and the next start repairs them. They hold nothing that was acknowledged.
HARMLESS = (DamageKind.TORN_RECORD, DamageKind.TORN_ENTRY)


@dataclass(frozen=True, slots=True)
class Finding:
    """Damage in a file: the bytes start..end (not included).

    For a missing log file, `start` and `end` are numbers of messages, and `topic` is its topic.
    """

    file: str
    trouble: DamageKind  # the key in the JSON of --check-data
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
    """The messages of the log by their state in a channel. `missing` ones are neither finished nor in the log.

    stored  the messages that are not finished, and only in the store
    """

    name: str
    is_paused: bool
    queued: int
    deferred: int
    finished: int
    missing: int
    stored: int = 0


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

    set_aside  bytes that nsqd could not read at an earlier time
    go_files   files of Go's nsqd, which the next start imports
    others     files that are not nsqd's
    """

    path: str
    topics: list[TopicReport] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    set_aside: list[str] = field(default_factory=list)
    go_files: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    @property
    def damage(self) -> Iterator[Finding]:
        return (finding for finding in self.findings if finding.is_damage)

    @property
    def is_well(self) -> bool:
        return not any(self.damage)


# ---- as text and as JSON


def as_json(report: DirectoryReport, store: dict[str, Any] | None = None) -> str:
    """Return the whole report as one JSON object; `store` is the report on the store."""
    document = asdict(report) | {"is_well": report.is_well}
    for topic in document["topics"]:
        for channel in topic["channels"]:
            if not channel["stored"]:  # only a data path with a store has the field
                del channel["stored"]
    if store is not None:
        document["store"] = store
    text = json.dumps(document, indent=2, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode()  # names of files need not be UTF-8


def as_text(report: DirectoryReport) -> Iterator[str]:
    """Yield the lines of the report for people."""
    files = sum(len(topic.files) for topic in report.topics)
    messages = sum(topic.messages for topic in report.topics)
    size = sum(topic.size_bytes for topic in report.topics)
    yield (
        f"{report.path}: {count_text(len(report.topics), 'topic')}, {count_text(messages, 'message')} "
        f"in {count_text(files, 'file')}, {count_text(size, 'byte')}"
    )
    if report.topics:
        yield ""
        yield from table([_HEADINGS, *(row for topic in report.topics for row in _rows(topic))])
    yield from _section("damage", [finding_text(finding) for finding in report.damage])
    harmless = [finding_text(finding) for finding in report.findings if not finding.is_damage]
    yield from _section("as a crash leaves it; the next start repairs it", harmless)
    yield from _section("of a Go nsqd, taken over by the next start", some(report.go_files))
    yield from _section("set aside earlier", some(report.set_aside))
    yield from _section("not nsqd's", some(report.others))
    yield ""
    yield "all well" if report.is_well else f"{count_text(sum(1 for _ in report.damage), 'damaged place')}"


def _rows(topic: TopicReport) -> Iterator[Sequence[str]]:
    notes = [
        "paused" if topic.is_paused else "",
        f"{count_text(topic.messages, 'message')} in {count_text(len(topic.files), 'file')}",
        count_text(topic.size_bytes, "byte"),
        f"{topic.live:,} needed",
        f"{topic.held:,} held back" if topic.held else "",
    ]
    yield topic.name, "", "", "", "", "", ", ".join(filter(None, notes))
    for channel in topic.channels:
        missing = f"{channel.missing:,}" if channel.missing else ""
        stored = f"{channel.stored:,} only in the store" if channel.stored else ""
        note = ", ".join(filter(None, ["paused" if channel.is_paused else "", stored]))
        counts = f"{channel.queued:,}", f"{channel.deferred:,}", f"{channel.finished:,}"
        yield "", channel.name, *counts, missing, note


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the rows of a table: names left-aligned, numbers right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = enumerate(zip(row, widths, strict=True))
        yield "  ".join(
            f"{cell:{'>' if 2 <= column <= 5 else '<'}{width}}" for column, (cell, width) in cells
        ).rstrip()


def _section(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield ""
        yield f"{title}:"
        yield from (f"  {line}" for line in lines)


def finding_text(finding: Finding) -> str:
    if finding.trouble is DamageKind.GONE:
        return f"{finding.file}: {finding.trouble}; {finding.detail}"
    detail = f"; {finding.detail}" if finding.detail else ""
    return f"{finding.file}: {finding.trouble} ({finding.end - finding.start:,} bytes at {finding.start:,}{detail})"


def some(names: Sequence[str]) -> Sequence[str]:
    if len(names) <= _SHOWN_NAMES:
        return names
    return [*names[:_SHOWN_NAMES], f"and {len(names) - _SHOWN_NAMES:,} more"]


def count_text(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
