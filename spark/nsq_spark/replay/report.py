"""The result of the command as one JSON object, for programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from nsq_spark.archive.storage import as_text
from nsq_spark.replay.driver import Outcome
from nsq_spark.replay.figures import time_text
from nsq_spark.replay.job import Job
from nsq_spark.replay.summary import status_word
from nsq_tools.cli import BadUsage, ToolError

STANDARD_OUTPUT = "-"


def check_report(path: str) -> None:
    """Raise BadUsage if the report could not be written in the end."""
    if path in ("", STANDARD_OUTPUT):
        return
    target = Path(path).resolve()
    place = target if _is_device(target) else target.parent
    if target.is_dir() or not (place.exists() and os.access(place, os.W_OK)):
        raise BadUsage(f"--report {path}: cannot be written there")


def report_of(job: Job, outcome: Outcome, began_ns: int) -> dict[str, Any]:
    """Return the report; its keys are the words of the summary."""
    wanted, look = job.selection.wanted, outcome.look
    report: dict[str, Any] = {
        "status": "dry run" if look is not None and outcome.is_complete else status_word(outcome),
        "exit_status": outcome.exit_code,
        "began": time_text(began_ns),
        "seconds": round(outcome.seconds, 3),
        **{name: getattr(outcome.counts, name) for name in ("read", "matched", "sent", "failed")},
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
        "checkpoint": job.safety.checkpoint,
    }
    if look is not None:
        report["found"] = {
            "topics": {name: asdict(found) for name, found in look.topics.items()},
            "bucket_seconds": look.bucket_ns / 1e9,
            "histogram": [[time_text(at * look.bucket_ns), count] for at, count in sorted(look.buckets.items())],
        }
    return report


def write_report(path: str, report: Mapping[str, Any]) -> None:
    """Write the whole report, or none. A device or pipe, such as /dev/null, is not replaced. Raises ToolError."""
    text = orjson.dumps(report, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    if path == STANDARD_OUTPUT:
        sys.stdout.buffer.write(text)
        sys.stdout.flush()
        return
    try:
        target = Path(path).resolve()  # a symbolic link stays one
        if _is_device(target):
            target.write_bytes(text)
            return
        new = target.with_name(f"{target.name}.new")
        new.write_bytes(text)
        new.replace(target)
    except OSError as error:
        raise ToolError(f"the report {path} cannot be written: {error.strerror}") from error


def _is_device(path: Path) -> bool:
    return path.exists() and not (path.is_file() or path.is_dir())
