"""The handlers that read a topic's log, move channels in it, or show or finish messages of a channel."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from typing import Any

from nsqd_py.api import handlers
from nsqd_py.api.handlers import named_channel, named_topic
from nsqd_py.broker import seek
from nsqd_py.broker.broker import Broker
from nsqd_py.broker.peek import STATES, Peek, StateRun
from nsqd_py.broker.services import Topic
from nsqd_py.broker.upkeep.needed import living_of
from nsqd_py.diskqueue.files.log_file import LogFile
from nsqd_py.diskqueue.history import LogHistory
from nsqd_py.diskqueue.journals.ranges import Range, count_of, union
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.reading import first_record
from nsqd_py.errors import Draining, HttpError
from nsqd_py.net.http import answers
from nsqd_py.net.http.answers import Reply
from nsqd_py.net.http.router import Request, parse_int64, required
from nsqd_py.queue.channel import Channel
from nsqd_py.runtime.pacing import ONE_ROUND_S, WorkSlices
from nsqd_py.runtime.threads import in_thread

_DEFAULT_READ_BYTES = 1024 * 1024
# The bound on `max_bytes`. The reader asks again, from X-Nsq-Next-Seq on.
_MOST_READ_BYTES = 4 * 1024 * 1024
# How long the epoch of a log may take to the disk before a reader gets it all the same.
_SETTLE_S = 1.0
_DEFAULT_PEEK = 10
_MOST_PEEK = 1000
_MOST_NUMBER = (1 << 63) - 1
_MESSAGE_ID = re.compile("[0-9a-f]{16}")
_MOST_LIVE = 1000  # ranges of live messages in one answer


def read_topic(request: Request[Broker]) -> Reply:
    """Return retained records from a sequence number or a time on, or behind a message id, in the format of a log file.

    This is for readers that keep their own checkpoint of a topic; the epoch says whether it is of this log. The answer has all
    messages from X-Nsq-First-Seq up to X-Nsq-Next-Seq; those from X-Nsq-Asked-Seq up to X-Nsq-First-Seq are missing, and
    X-Nsq-Damaged-Bytes says how many bytes of these cannot be read. If the topic was deleted, the answer says how many messages
    its logs had.
    """
    ended = _ended_logs(request)
    try:
        topic = named_topic(request)
    except HttpError as error:
        return answers.failure(error, ended)
    log = _log_of(topic)
    ids_rise = not topic.policy.takes_dead_letters  # which keep their ids
    if not ids_rise and "id" in request.params:
        raise HttpError(400, "IDS_DO_NOT_RISE")
    if not request.app.logs.keeps_epochs:  # a restart must keep the epochs that readers get
        request.app.logs.keep_epochs()
        request.app.metadata.want()
    request.app.metadata.settle(_SETTLE_S)
    seq = _first_seq(request, log)
    most_bytes = min(_number(request, "max_bytes", _DEFAULT_READ_BYTES, lowest=1), _MOST_READ_BYTES)
    retained = log.read_retained(seq, most_bytes, partial(in_thread, request.app.services.threadpool))
    asked_seq = min(seq, retained.first_seq)
    headers = (
        f"X-Nsq-Asked-Seq: {asked_seq}\r\n"
        f"X-Nsq-First-Seq: {retained.first_seq}\r\n"
        f"X-Nsq-Next-Seq: {retained.next_seq}\r\n"
        f"X-Nsq-End-Seq: {log.next_seq}\r\n"
        f"X-Nsq-Earliest-Seq: {log.earliest_seq}\r\n"
        f"X-Nsq-Epoch: {log.epochs[0].number}\r\n"
        f"X-Nsq-Damaged-Bytes: {retained.damaged_bytes}\r\n"
    )
    headers += ended
    if ids_rise:
        headers += (
            f"X-Nsq-Before-Id: {retained.before_id:016x}\r\n"
            f"X-Nsq-End-Id: {log.used_id:016x}\r\n"
            f"X-Nsq-Earliest-Id: {log.earliest_id:016x}\r\n"
        )
    return Reply(200, headers, retained.encode(), "application/octet-stream")


def _ended_logs(request: Request[Broker]) -> str:
    """Return the header that has the deleted logs of the topic of the query; "" if there are none."""
    ended = request.app.logs.ended.get(request.params.get("topic", ""))
    if not ended:
        return ""
    return f"X-Nsq-Ended: {','.join(f'{epoch}:{count}' for epoch, count in ended)}\r\n"


def topic_log(request: Request[Broker]) -> Reply:
    """Return the contents of the log, file by file, and its limits; 0 is no limit. With `live=1`, also the newest
    ranges of messages that some channel has not finished, or none has received. With `--store`, `stored` has the number
    of its files there, and why the store did not answer, if a channel waits for it.
    """
    topic = named_topic(request)
    log = _log_of(topic)
    options = request.app.options
    policy = topic.policy
    slices = WorkSlices(ONE_ROUND_S)
    files = [(file, living_of(topic, file, slices)) for file in list(log.files) if file in log.files]
    document: dict[str, Any] = {}
    if request.params.get("live"):
        live = union(run for _, alive in files for run in alive)
        document["live"] = live[-_MOST_LIVE:]
    document |= {
        "topic": topic.name,
        "earliest_seq": log.earliest_seq,
        "first_seq": log.first_seq,
        "next_seq": log.next_seq,
        "released_seq": topic.released,
        "bytes": log.size_bytes,
        "retention_ns": policy.retention_ns,
        "retention_bytes": policy.retention_bytes,
        "max_topic_bytes": policy.max_bytes,
        "max_disk_bytes": options.max_disk_bytes,
        "free_disk_bytes": request.app.space.free_bytes,
        "sync_every": options.sync_every,
        "sync_timeout_ns": options.sync_timeout_ns,
        "files": [_file_statistics(file, alive) for file, alive in files if file in log.files],
    }
    if log.history is not None:
        document["stored"] = _stored_statistics(log.history)
    return answers.json(document)


def _stored_statistics(history: LogHistory) -> dict[str, Any]:
    first = next(iter(history.segments), None)
    return {
        "files": len(history.segments),
        "bytes": history.size_bytes,
        "first_seq": first.first_seq if first is not None else None,
        "first_timestamp": first.first_ns if first is not None else None,
        "problem": history.problem,
    }


def _file_statistics(file: LogFile, alive: list[Range]) -> dict[str, Any]:
    first = first_record(file)
    return {
        "name": file.name,
        "first_seq": file.first_seq,
        "end_seq": file.end_seq,
        "first_timestamp": first.timestamp_ns if first is not None else None,
        "last_timestamp": file.newest_ns or None,
        "bytes": file.end_offset,
        "message_count": file.message_count,
        "live_count": count_of(alive),
        "sparse": file.header.is_sparse,
    }


def seek_channel(request: Request[Broker]) -> Reply:
    """Move a channel, which must exist, to the position `to` in the log."""
    topic, channel = named_channel(request)
    _log_of(topic)
    target = _target(request, "to")
    if target is None:
        raise HttpError(400, "MISSING_ARG_TO")
    result = seek.seek_channel(request.app, topic, channel.name, target)
    return answers.json({"seq": result.seq, "timestamp": result.timestamp_ns, "skipped": result.skipped})


def create_channel(request: Request[Broker]) -> Reply:
    """Create a channel; if `from` is given, a new channel begins there."""
    target = _target(request, "from")
    topic, name = handlers.topic_and_channel_name(request)
    if target is not None:
        _log_of(topic)
    if request.app.drain.is_active:
        raise Draining
    if name not in topic.channels:
        request.app.creation_rate.take(request.connection.peer)
        if target is None:
            request.app.make_channel(topic, name)
        else:
            seek.seek_channel(request.app, topic, name, target)
    return answers.EMPTY


def _target(request: Request[Broker], key: str) -> str | int | None:
    """Return a position in a log: `earliest`, `latest`, or a time; None if the query has none. Raises HttpError."""
    text = request.params.get(key)
    if text is None:
        return None
    try:
        return seek.parse_target(text, request.app.services.wall_clock())
    except ValueError:
        raise HttpError(400, f"INVALID_ARG_{key.upper()}") from None


def _log_of(topic: Topic) -> TopicLog:
    """Return the log of a topic. Raises HttpError if it is ephemeral."""
    if topic.log is None:
        raise HttpError(400, "TOPIC_IS_EPHEMERAL")
    return topic.log


def _first_seq(request: Request[Broker], log: TopicLog) -> int:
    """Return the number at which reading begins, by `seq`, `time` or `id` (behind it). Raises HttpError, OSError."""
    if "id" in request.params:
        found_seq = log.seq_after_id(_message_id(request))
        return max(log.earliest_seq, log.hole_before(found_seq))
    target = _target(request, "time")
    if target is None:
        return _seq(request)
    if isinstance(target, int):
        return log.seq_at(target, log.earliest_seq)
    if target == seek.LATEST:
        return log.next_seq
    return 0


def _seq(request: Request[Broker]) -> int:
    """Return the sequence number of the query; 0 for `earliest`. Raises HttpError."""
    if required(request, "seq") == "earliest":
        return 0
    return _number(request, "seq", 0, lowest=0)


def _message_id(request: Request[Broker]) -> int:
    """Return the message id of the query as a number. Raises HttpError."""
    text = request.params["id"]
    if not _MESSAGE_ID.fullmatch(text):
        raise HttpError(400, "INVALID_ARG_ID")
    return int(text, 16)


def _number(
    request: Request[Broker], key: str, otherwise: int, *, lowest: int, highest: int = _MOST_NUMBER
) -> int:
    """Return a number of the query, or `otherwise` if it is missing. Raises HttpError."""
    text = request.params.get(key)
    try:
        number = otherwise if text is None else parse_int64(text)
    except ValueError:
        number = lowest - 1
    if not lowest <= number <= highest:
        raise HttpError(400, f"INVALID_ARG_{key.upper()}")
    return number


# ---- single messages of a channel


def peek(request: Request[Broker]) -> Reply:
    """Return `n` messages of a channel in the `state` queued, in_flight or deferred, or the one numbered `seq`."""
    topic, channel = named_channel(request)
    found = Peek(topic, _runs_to_peek(request, channel))
    found.fill(request.app.services.threadpool)
    statistics = {
        "topic": topic.name,
        "channel": channel.name,
        "depth": channel.depth,
        "in_flight_count": channel.in_flight_count,
        "deferred_count": channel.deferred_count,
        "messages": found.rows,
    }
    if found.unreadable_count:
        statistics["unreadable_count"] = found.unreadable_count
    return answers.json(statistics)


def _runs_to_peek(request: Request[Broker], channel: Channel) -> Iterable[StateRun]:
    """Raises HttpError."""
    count = _number(request, "n", _DEFAULT_PEEK, lowest=1, highest=_MOST_PEEK)
    if "seq" in request.params:
        return [_one(_seq(request))]
    runs_of = STATES.get(request.params.get("state", "queued"))
    if runs_of is None:
        raise HttpError(400, "INVALID_ARG_STATE")
    ahead_ns = request.app.services.wall_clock() - request.app.clock()
    return runs_of(channel, count, ahead_ns.__add__)


def _one(seq: int) -> StateRun:
    return (seq, seq + 1, 0, None), {}


def finish_message(request: Request[Broker]) -> Reply:
    """Finish one queued message of a channel, with this `seq` and `id`, without delivering it."""
    topic, channel = named_channel(request)
    seq = _seq(request)
    message_id = required(request, "id")
    found = Peek(topic, [_one(seq)])
    found.fill(request.app.services.threadpool)
    if found.ids != [message_id.encode("utf-8", "surrogateescape")] or not channel.discard(seq):
        raise HttpError(404, "MESSAGE_NOT_QUEUED")
    request.app.log.of_clients.info(
        "TOPIC(%s): channel(%s) finished message %d", topic.name, channel.name, seq
    )
    return answers.EMPTY
