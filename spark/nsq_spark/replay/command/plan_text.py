"""What is going to be done, for the one who is asked whether it may."""

from __future__ import annotations

from collections.abc import Iterator

from nsq_spark.replay.checkpoint import Checkpoint
from nsq_spark.replay.command.figures import count_text, duration_text, rows_text, shown, size_text, time_text
from nsq_spark.replay.command.spark_wanted import SparkWanted
from nsq_spark.replay.job import Job
from nsq_spark.replay.planning import Plan

_TOPICS_SHOWN = 6


def plan_text(plan: Plan, spark: SparkWanted, checkpoint: Checkpoint | None = None, *, is_dry: bool = False) -> str:
    """A few lines, each what is asked for or what follows from it."""
    rows = [
        ("archive", " ".join(plan.job.paths)),
        *plan.describe(),
        *_selected(plan),
        *(() if is_dry else _sent(plan.job)),
        ("spark", spark.master),
        *_safety(plan.job, checkpoint),
    ]
    title = "look at" if is_dry else "replay"
    return f"{title}\n{rows_text((name, shown(text)) for name, text in rows)}"


def _selected(plan: Plan) -> Iterator[tuple[str, str]]:
    selection = plan.job.selection
    wanted = selection.wanted
    asked = sorted(wanted.topics or ()) + ([f"/{wanted.topic_pattern}/"] if wanted.topic_pattern else [])
    yield "topics", _few(asked or plan.topics) or "all"
    for name, time_ns in (("from", wanted.start_ns), ("until", wanted.end_ns)):
        if time_ns is not None:
            yield name, time_text(time_ns)
    if wanted.has_range and any(not info.format.has_timestamps for info in plan.files):
        yield "times", "of files of lines: by the hours in their names, the files as a whole"
    for name, value in (("where", selection.where), ("grep", selection.grep)):
        if value is not None:
            yield name, value
    if selection.sample is not None:
        yield "sample", f"{selection.sample:.4%}".rstrip("0%").rstrip(".") + " %"
    if selection.dedupe:
        yield "dedupe", f"one of each {selection.dedupe}"
    if selection.limit is not None:
        yield "limit", f"the first {count_text(selection.limit, 'message')}"


def _few(names: list[str]) -> str:
    more = len(names) - _TOPICS_SHOWN
    return ", ".join(names[:_TOPICS_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _sent(job: Job) -> Iterator[tuple[str, str]]:
    destination, pacing = job.destination, job.pacing
    lookupds = [f"those that nsqlookupd {address} knows" for address in destination.lookupd_http_addresses]
    yield "to nsqd", ", ".join([*destination.nsqd_tcp_addresses, *lookupds])
    names = [f"{old} as {new}" for old, new in destination.topic_map]
    if destination.to_topic:
        names.append(f"{'others' if names else 'all'} as {destination.to_topic}")
    if names:
        yield "to topics", ", ".join(names)
    if destination.defer_s:
        yield "deferred", duration_text(destination.defer_s)
    pace = ["as fast as it goes"] if pacing.rate is None and pacing.speed is None else []
    if pacing.speed is not None:
        pace.append("with the gaps of the archive" + (f", {pacing.speed:g} x as fast" if pacing.speed != 1 else ""))
    if pacing.rate is not None:
        pace.append(f"at most {pacing.rate:,.0f} messages a second")
    yield "pace", ", ".join(pace) + (", in order of time" if pacing.by_time else "")


def _safety(job: Job, checkpoint: Checkpoint | None) -> Iterator[tuple[str, str]]:
    if checkpoint is not None:
        done = f", where {count_text(checkpoint.acknowledged, 'message')} are done" if checkpoint.acknowledged else ""
        yield "checkpoint", f"{job.safety.checkpoint}{done}"
    if job.safety.skip_damaged:
        yield "damage", "is passed over and counted"


def left_text(plan: Plan) -> str:
    """What there is to do, in a few words, for the question."""
    return f"{count_text(len(plan.files), 'file')}, {size_text(plan.size_bytes)}"
