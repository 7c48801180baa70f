"""A report as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import orjson

from nsqd_py.fsck.reports import DirectoryReport, Finding, Problem, TopicReport

_HEADINGS = ("TOPIC", "CHANNEL", "QUEUED", "DEFERRED", "FINISHED", "MISSING", "")
_UNITS = ("B", "KB", "MB", "GB", "TB")
_SHOWN_NAMES = 10


def as_json(report: DirectoryReport) -> str:
    """Return the whole report as one JSON object."""
    figures: dict[str, Any] = asdict(report) | {"is_well": report.is_well}
    return orjson.dumps(figures, option=orjson.OPT_INDENT_2).decode()


def as_text(report: DirectoryReport) -> str:
    return "\n".join(_lines(report))


def _lines(report: DirectoryReport) -> Iterator[str]:
    files = sum(len(topic.files) for topic in report.topics)
    messages = sum(topic.messages for topic in report.topics)
    size = sum(topic.size_bytes for topic in report.topics)
    yield (
        f"{report.path}: {count_text(len(report.topics), 'topic')}, {count_text(messages, 'message')} "
        f"in {count_text(files, 'file')}, {bytes_text(size)}"
    )
    if report.topics:
        yield ""
        yield from table([_HEADINGS, *(row for topic in report.topics for row in _rows(topic))])
    yield from _section("damage", [finding_text(finding) for finding in report.damage])
    harmless = [finding_text(finding) for finding in report.findings if not finding.is_damage]
    yield from _section("as a crash leaves it; the next start mends it", harmless)
    yield from _section("removed by the next start", _some(report.leftovers))
    yield from _section("of a Go nsqd, taken over by the next start", _some(report.go_files))
    yield from _section("set aside earlier", _some(report.set_aside))
    yield from _section("not nsqd's", _some(report.others))
    yield from _section("done", report.repairs)
    yield ""
    yield "all well" if report.is_well else f"{count_text(sum(1 for _ in report.damage), 'damaged place')}"


def _rows(topic: TopicReport) -> Iterator[Sequence[str]]:
    sparse = sum(file.is_sparse for file in topic.files)
    notes = [
        "paused" if topic.is_paused else "",
        f"{count_text(topic.messages, 'message')} in {count_text(len(topic.files), 'file')}",
        bytes_text(topic.size_bytes),
        f"{topic.live:,} needed",
        f"{topic.held:,} held back" if topic.held else "",
        f"{sparse} compacted" if sparse else "",
    ]
    yield topic.name, "", "", "", "", "", ", ".join(filter(None, notes))
    for channel in topic.channels:
        yield (
            "",
            channel.name,
            f"{channel.queued:,}",
            f"{channel.deferred:,}",
            f"{channel.finished:,}",
            f"{channel.missing:,}" if channel.missing else "",
            "paused" if channel.is_paused else "",
        )


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the rows of a table: names left-aligned, numbers right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if 2 <= place <= 5 else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def _section(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield ""
        yield f"{title}:"
        yield from (f"  {line}" for line in lines)


def finding_text(finding: Finding) -> str:
    if finding.trouble is Problem.GONE:
        return f"{finding.file}: {finding.trouble}; {finding.detail}"
    detail = f"; {finding.detail}" if finding.detail else ""
    return f"{finding.file}: {finding.trouble} ({finding.end - finding.start:,} bytes at {finding.start:,}{detail})"


def _some(names: Sequence[str]) -> Sequence[str]:
    if len(names) <= _SHOWN_NAMES:
        return names
    return [*names[:_SHOWN_NAMES], f"and {len(names) - _SHOWN_NAMES:,} more"]


def count_text(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def bytes_text(size_bytes: float) -> str:
    """Return a size in the unit that leaves at most three digits before the point."""
    for unit in _UNITS:
        if size_bytes < 1000 or unit == _UNITS[-1]:
            break
        size_bytes /= 1000
    return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
