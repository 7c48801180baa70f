"""The plan before the work of spark-replay, the summary after it, and a report in JSON for programs."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from nsq_spark.archive.splits import FileInfo
from nsq_spark.archive.storage import as_text
from nsq_spark.replay.checkpoint import Checkpoint, replace_file
from nsq_spark.replay.driver import ALL_SENT, FAILED, PARTLY_SENT, Outcome
from nsq_spark.replay.job import Job
from nsq_spark.replay.texts import count_text, rows_text, shown, size_text, time_text
from nsqd_py.runtime.hidden import hidden_url
from nsqd_py.settings.declaration import BadOptions
from nsqd_py.settings.program import ToolError

STANDARD_OUTPUT = "-"
_TOPICS_SHOWN = 6
_FILES_SHOWN = 10
_WORDS = {ALL_SENT: "sent", FAILED: "failed", PARTLY_SENT: "partly sent"}


# ---- the plan


def plan_text(checkpoint: Checkpoint, master: str, *, is_dry: bool = False) -> str:
    """Return a few lines about what the command is going to do."""
    job, files, before = checkpoint.job, checkpoint.files, checkpoint.earlier.counts.messages
    formats = Counter(info.format.value for info in files)
    rows = [
        ("archive", " ".join(job.paths)),
        ("files", f"{len(files)} ({', '.join(f'{count} {name}' for name, count in sorted(formats.items()))})"),
        ("bytes", f"{sum(info.size_bytes for info in files):,}"),
        *_selected(job, files),
        *(() if is_dry else _sent(job)),
        ("spark", master),
    ]
    if job.checkpoint:
        rows.append(("checkpoint", job.checkpoint + (f", where {count_text(before, 'message')} are done" if before else "")))
    return f"{'look at' if is_dry else 'replay'}\n{rows_text((name, shown(text)) for name, text in rows)}"


def _selected(job: Job, files: Sequence[FileInfo]) -> Iterator[tuple[str, str]]:
    wanted = job.selection.wanted
    asked = sorted(wanted.topics or ()) + ([f"/{wanted.topic_pattern}/"] if wanted.topic_pattern else [])
    topics = asked or sorted({info.topic for info in files if info.has_one_topic})
    more = len(topics) - _TOPICS_SHOWN
    yield "topics", (", ".join(topics[:_TOPICS_SHOWN]) or "all") + (f" and {more} more" if more > 0 else "")
    for name, time_ns in (("from", wanted.start_ns), ("until", wanted.end_ns)):
        if time_ns is not None:
            yield name, time_text(time_ns)


def _sent(job: Job) -> Iterator[tuple[str, str]]:
    destination = job.destination
    lookupds = [f"those that nsqlookupd {hidden_url(address)} knows" for address in destination.lookupd_http_addresses]
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
        f"sent {counts.sent:,}",
        f"failed {counts.failed:,}",
        f"skipped {outcome.skipped:,}",
        size_text(counts.sent_bytes),
        f"{outcome.seconds:.2f} s",
    ]
    rate = f" ({counts.sent / outcome.seconds:,.0f}/s)" if counts.sent > 1 and outcome.seconds > 0 else ""
    return "\n".join([f"{_WORDS[outcome.exit_code]}: {', '.join(words)}{rate}", *_notes(outcome)])


def _notes(outcome: Outcome) -> Iterator[str]:
    if outcome.before:
        yield f"  {count_text(outcome.before, 'message')} had been sent by earlier runs"
    if outcome.possible_duplicates:
        yield f"  {count_text(outcome.possible_duplicates, 'message')} may have been sent twice"
    for path, found in list(outcome.damage.items())[:_FILES_SHOWN]:
        records = count_text(found.records, "record")
        yield f"  damaged: {shown(path)}: {records}, {size_text(found.size_bytes)} passed over"
    if len(outcome.damage) > _FILES_SHOWN:
        yield f"  damaged: {len(outcome.damage) - _FILES_SHOWN:,} more files"
    for error in outcome.errors:
        yield f"  error: {shown(error)}"


def how_to_resume(outcome: Outcome, checkpoint: str | None, command_line: str) -> str:
    """Return how to send the rest; empty if nothing is left to send."""
    if outcome.is_complete:
        return ""
    if checkpoint:
        return f"to go on where it ended:\n  {command_line}"
    if not outcome.counts.sent:
        return ""
    return (
        f"without --checkpoint, the same command would send these {count_text(outcome.counts.sent, 'message')} again; "
        "with one, an ended replay goes on"
    )


# ---- the report


def check_report(path: str) -> None:
    """Raise BadOptions if the report could not be written in the end."""
    if path not in ("", STANDARD_OUTPUT) and (os.path.isdir(path) or not os.path.isdir(os.path.dirname(path) or ".")):
        raise BadOptions(f"--report {path}: cannot be written there")


def report_of(job: Job, outcome: Outcome, began_ns: int) -> dict[str, Any]:
    """Return the report; its keys are the words of the summary."""
    wanted, look = job.selection.wanted, outcome.look
    report: dict[str, Any] = {
        "status": "dry run" if look is not None and outcome.is_complete else _WORDS[outcome.exit_code],
        "exit_status": outcome.exit_code,
        "began": time_text(began_ns),
        "seconds": round(outcome.seconds, 3),
        "matched": outcome.matched,
        "sent": outcome.counts.sent,
        "failed": outcome.counts.failed,
        "skipped": outcome.skipped,
        "bytes": outcome.counts.sent_bytes,
        "sent_before": outcome.before,
        "possible_duplicates": outcome.possible_duplicates,
        "stopped": outcome.is_stopped,
        "topics": outcome.topics,
        "damage": {path: asdict(found) for path, found in outcome.damage.items()},
        "errors": outcome.errors,
        "archive": [as_text(path) for path in job.paths],
        "start": None if wanted.start_ns is None else time_text(wanted.start_ns),
        "end": None if wanted.end_ns is None else time_text(wanted.end_ns),
        "checkpoint": job.checkpoint,
    }
    if look is not None:
        report["found"] = {"topics": {name: asdict(found) for name, found in look.topics.items()}}
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
            replace_file(Path(path), text)
    except OSError as error:
        raise ToolError(f"the report {path} cannot be written: {error.strerror}") from error
