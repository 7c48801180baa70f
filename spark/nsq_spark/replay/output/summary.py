"""The output of spark-replay: the plan, the summary and the dry run, as text, and the report, as JSON."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from nsq_spark.archive.splits import FileInfo, Format
from nsq_spark.archive.storage import as_text
from nsq_spark.replay.checkpoint.directory import Checkpoint
from nsq_spark.replay.job import SHARED, Job
from nsq_spark.replay.outcome import WORDS, DryRun, Outcome, TopicCount
from nsqd_py.diskqueue.files.log_file import replace_file
from nsqd_py.runtime.logs.daemon_log import one_line
from nsqd_py.runtime.logs.hidden import hidden_url
from nsqd_py.settings.declaration import BadOptions
from nsqd_py.settings.program import ToolError
from nsqd_py.settings.values import size_text

STANDARD_OUTPUT = "-"
_TOPICS_SHOWN = 6
_FILES_SHOWN = 10
FIRST_SHOWN = 10
BODY_SHOWN_BYTES = 200


# ---- numbers, sizes and times as people read them


def count_text(count: int, noun: str) -> str:
    """Return `1 message` or `1,234 messages`."""
    return f"{count:,} {noun if count == 1 else noun + 's'}"


def time_text(time_ns: int | None) -> str:
    """Return RFC 3339 in UTC, with none, three or nine digits after the second, as it needs; - if it is not known."""
    if time_ns is None:
        return "-"
    text = str(np.datetime64(time_ns, "ns"))
    return f"{text.removesuffix('000000').removesuffix('.000')}Z"


def shown(text: str | bytes) -> str:
    """Return a text on one line, with no bytes that control the terminal."""
    if isinstance(text, bytes):
        data = text
    else:
        data = text.encode("utf-8", "surrogateescape")
    return one_line(data.decode("utf-8", "backslashreplace"))


def some_text(names: Sequence[str], most: int) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - most
    return ", ".join(map(shown, names[:most])) + (f" and {more:,} more" if more > 0 else "")


def rows_text(rows: Iterable[Sequence[str]], right: Sequence[int] = (), indent: str = "  ") -> str:
    """Return lines with aligned columns; those with the numbers in `right` are aligned to the right."""
    cells = list(rows)
    columns = []
    for number, column in enumerate(zip(*cells, strict=True)):
        side = ">" if number in right else "<"
        width = max(map(len, column))
        columns.append(f"{{:{side}{width}}}")
    line = indent + "  ".join(columns)
    return "\n".join(line.format(*row).rstrip() for row in cells)


# ---- the plan


def plan_text(checkpoint: Checkpoint, master: str, *, is_dry: bool = False) -> str:
    """Return a few lines about what the command is going to do."""
    job = checkpoint.job
    files = checkpoint.files
    before = checkpoint.earlier.counts.messages
    formats = Counter(info.format.value for info in files)
    rows = [
        ("archive", " ".join(job.paths)),
        (
            "files",
            f"{len(files)} ({', '.join(f'{count} {name}' for name, count in sorted(formats.items()))})",
        ),
        ("bytes", f"{checkpoint.size_bytes:,}"),
        *_selected(job, files),
    ]
    if not is_dry:
        rows += _sent(job)
    rows.append(("spark", master))
    if job.checkpoint:
        rows.append(
            (
                "checkpoint",
                job.checkpoint + (f", where {count_text(before, 'message')} are done" if before else ""),
            )
        )
    return f"{'look at' if is_dry else 'replay'}\n{rows_text((name, shown(text)) for name, text in rows)}"


def _selected(job: Job, files: Sequence[FileInfo]) -> Iterator[tuple[str, str]]:
    requested = job.selection.requested
    asked = sorted(requested.topics or ()) + (
        [f"/{requested.topic_pattern}/"] if requested.topic_pattern else []
    )
    topics = asked or sorted({info.topic for info in files if info.has_one_topic})
    text = some_text(topics, _TOPICS_SHOWN) or "all"
    others = sum(not info.has_one_topic for info in files)
    if topics and others and not asked:
        text += f"; and all topics in {count_text(others, 'file')} of other formats"
    yield "topics", text
    for name, time_ns in (("from", requested.start_ns), ("until", requested.end_ns)):
        if time_ns is not None:
            yield name, time_text(time_ns)


def dedupe_warning(job: Job, files: Sequence[FileInfo]) -> str:
    """Return what --dedupe=id does not do; "" if it compares all messages."""
    without_ids = sum(info.format is Format.LINES for info in files)
    if job.selection.dedupe != "id" or not without_ids:
        return ""
    return f"{count_text(without_ids, 'file')} of lines have no ids: all their messages are sent; --dedupe=body compares bodies"


def _sent(job: Job) -> Iterator[tuple[str, str]]:
    destination = job.destination
    lookupds = [
        f"those that nsqlookupd {hidden_url(address)} knows" for address in destination.lookupd_http_addresses
    ]
    yield "to nsqd", ", ".join([*destination.nsqd_tcp_addresses, *lookupds])
    names = [f"{old} as {new}" for old, new in destination.topic_map]
    if destination.to_topic:
        names.append(f"{'others' if names else 'all'} as {destination.to_topic}")
    if names:
        yield "to topics", ", ".join(names)


# ---- the summary


def summary(outcome: Outcome) -> str:
    """Return the counts, and below them what went wrong."""
    counts = outcome.counts
    words = [
        f"matched {outcome.matched:,}",
        f"sent {counts.messages:,}",
        f"failed {outcome.failed:,}",
        f"skipped {outcome.skipped:,}",
        size_text(counts.size_bytes),
        f"{outcome.seconds:.2f} s",
    ]
    rate = ""
    if counts.messages > 1 and outcome.seconds > 0:
        rate = f" ({counts.messages / outcome.seconds:,.0f}/s)"
    return "\n".join([f"{WORDS[outcome.exit_code]}: {', '.join(words)}{rate}", *_notes(outcome)])


def _notes(outcome: Outcome) -> Iterator[str]:
    if outcome.before:
        yield f"  {count_text(outcome.before, 'message')} had been sent by earlier runs"
    if outcome.refused:
        yield f"  {refused_text(outcome)}"
    if outcome.shared_ids:
        yield f"  {shared_ids_text(outcome.shared_ids)}"
    if outcome.counts.possible_duplicates:
        yield f"  {_duplicates_text(outcome)}"
    for path, found in list(outcome.damage.items())[:_FILES_SHOWN]:
        records = count_text(found.records, "record")
        yield f"  damaged: {shown(path)}: {records}, {size_text(found.size_bytes)} passed over"
    if len(outcome.damage) > _FILES_SHOWN:
        yield f"  damaged: {len(outcome.damage) - _FILES_SHOWN:,} more files"
    for error in outcome.errors:
        yield f"  error: {shown(error)}"


def _duplicates_text(outcome: Outcome) -> str:
    messages = count_text(outcome.counts.possible_duplicates, "message")
    if not outcome.unknown_duplicates:
        return f"{messages} may have been sent twice"
    why = shown(outcome.unknown_duplicates)
    return f"up to {messages} may have been sent twice, or none: how many is not known, since {why}"


def refused_text(outcome: Outcome) -> str:
    verb = "was" if outcome.refused == 1 else "were"
    messages = count_text(outcome.refused, "message")
    return f"{messages} {verb} refused by nsqd, and {verb} written to {shown(outcome.refused_file)}"


def shared_ids_text(count: int) -> str:
    has = "1 id is that" if count == 1 else f"{count:,} ids are those"
    return f"{has} of messages with different bodies, all of which were chosen: nsqds had the same --node-id"


# ---- the report


def check_file(flag: str, path: str) -> None:
    """Raise BadOptions if a file could not be written in the end."""
    if path and (os.path.isdir(path) or not os.path.isdir(os.path.dirname(path) or ".")):
        raise BadOptions(f"--{flag} {path}: cannot be written there")


def report_of(job: Job, outcome: Outcome, began_ns: int) -> dict[str, Any]:
    """Return the report; its keys are the words of the summary."""
    requested = job.selection.requested
    dry_run = outcome.dry_run
    if dry_run is not None and outcome.is_complete:
        status = "dry run"
    else:
        status = WORDS[outcome.exit_code]
    report: dict[str, Any] = {
        "status": status,
        "exit_status": outcome.exit_code,
        "began": time_text(began_ns),
        "seconds": round(outcome.seconds, 3),
        "matched": outcome.matched,
        "sent": outcome.counts.messages,
        "failed": outcome.failed,
        "refused": outcome.refused,
        "refused_file": outcome.refused_file or None,
        "ids_of_different_messages": outcome.shared_ids,
        "skipped": outcome.skipped,
        "bytes": outcome.counts.size_bytes,
        "sent_before": outcome.before,
        "possible_duplicates": outcome.counts.possible_duplicates,
        "unknown_duplicates": outcome.unknown_duplicates or None,
        "stopped": outcome.is_stopped,
        "topics": outcome.counts.topics,
        "damage": {path: asdict(found) for path, found in outcome.damage.items()},
        "errors": outcome.errors,
        "archive": [as_text(path) for path in job.paths],
        "start": None if requested.start_ns is None else time_text(requested.start_ns),
        "end": None if requested.end_ns is None else time_text(requested.end_ns),
        "checkpoint": job.checkpoint,
    }
    if dry_run:
        report["found"] = {"topics": {name: asdict(found) for name, found in dry_run.topics.items()}}
    return report


def write_report(path: str, report: Mapping[str, Any]) -> None:
    """Raises ToolError."""
    text = orjson.dumps(report, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    if path == STANDARD_OUTPUT:
        sys.stdout.buffer.write(text)
        sys.stdout.flush()
        return
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            Path(path).write_bytes(text)  # a pipe or a device
        else:
            replace_file(Path(path), text, mode=SHARED)
    except OSError as error:
        raise ToolError(f"the report {path} cannot be written: {error.strerror}") from error


# ---- the dry run


def dry_run_text(dry_run: DryRun) -> str:
    """Return the whole output. Bytes of messages cannot control the terminal."""
    if not dry_run.topics:
        return "nothing matches"
    rows = [("topic", "messages", "size", "first", "last")]
    rows += [_topic_row(shown(name), dry_run.topics[name]) for name in sorted(dry_run.topics)]
    lines = [rows_text(rows, right=(1, 2), indent="")]
    if dry_run.shared_ids:
        lines.append(shared_ids_text(dry_run.shared_ids))
    return "\n".join([*lines, "", f"{len(dry_run.first)} of {dry_run.count:,} messages:", *dry_run.first])


def _topic_row(name: str, found: TopicCount) -> tuple[str, str, str, str, str]:
    return (
        name,
        f"{found.count:,}",
        size_text(found.size_bytes),
        time_text(found.first_ns),
        time_text(found.last_ns),
    )


def row_text(topic: str, timestamp_ns: int | None, id: str | None, head: Any, size_bytes: int) -> str:
    """Return a message as a line; `head` is the beginning of its body."""
    more = f"... ({size_text(size_bytes)})" if size_bytes > len(head) else ""
    return f"{time_text(timestamp_ns)} {shown(topic)} {'-' if id is None else shown(id)} {shown(bytes(head))}{more}"
