"""The handlers of nsqd's HTTP paths. A handler takes a request and returns the reply, or raises HttpError.

The checks have the order of Go's nsqd: it decides which of several errors a client gets.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import gevent
import orjson

from nsqd_py.broker.broker import Broker
from nsqd_py.broker.services import Topic
from nsqd_py.errors import BadBody, BadMessage, ClientError, HttpError, missing_package
from nsqd_py.net.addresses import check_peer_addresses
from nsqd_py.net.http import answers
from nsqd_py.net.http.answers import Reply
from nsqd_py.net.http.router import Request, parse_int64, required
from nsqd_py.protocol.batch import SIZE_BYTES
from nsqd_py.protocol.commands import milliseconds_to_ns
from nsqd_py.protocol.multi_body import SLICE_MESSAGES, MessageWalk, Part, check_message_count
from nsqd_py.protocol.names import is_ephemeral, is_valid_name
from nsqd_py.queue.channel import Channel
from nsqd_py.runtime.pacing import ONE_ROUND_S, WorkSlices
from nsqd_py.runtime.threads import in_thread
from nsqd_py.settings.durations import parse_duration
from nsqd_py.settings.program import LOG_LEVEL
from nsqd_py.stats.collect import collect, render_json
from nsqd_py.stats.text import health_of, render_text
from nsqd_py.version import NSQ_VERSION, PROJECT_VERSION

# Bytes of lines in one slice: 16 KiB of empty lines take 0.3 ms, of lines of one byte 1 ms.
_SLICE_BYTES = 16 * 1024
# Lines are collected to batches of this size, or of SLICE_MESSAGES.
_FULL_BYTES = 256 * 1024
# The time for which /stats waits for the channels of new topics.
NEW_TOPICS_S = 0.25
# The most nsqlookupd addresses that PUT /config accepts: each one costs a greenlet and a socket.
MOST_LOOKUPDS = 100
# The words of a query for a yes or a no, as in Go's nsqd.
_BOOLS = {"true": True, "1": True, "false": False, "0": False}


# ---- the two body formats of /mpub


def from_lines(text: bytes, max_msg_size: int, rest: Callable[[], object]) -> list[Part]:
    """Convert lines to messages; empty lines are left out. The result may be empty. Raises HttpError 413."""
    parts = []
    lines: list[bytes] = []
    position = 0
    begin = 0
    while position < len(text):
        after = text.find(b"\n", min(position + _SLICE_BYTES, len(text))) + 1 or len(text)
        lines += filter(None, text[position:after].split(b"\n"))
        position = after
        if len(lines) >= SLICE_MESSAGES or position - begin > _FULL_BYTES or position == len(text):
            for low in range(0, len(lines), SLICE_MESSAGES):
                parts.append(_part_of(lines[low : low + SLICE_MESSAGES], max_msg_size))
            lines = []
            begin = position
        rest()
    return parts


def _part_of(lines: list[bytes], max_msg_size: int) -> Part:
    """Return the lines as one part. Raises HttpError 413."""
    sizes = set(map(len, lines))
    if max(sizes) > max_msg_size:
        raise HttpError(413, "MSG_TOO_BIG")
    if len(sizes) == 1:
        prefix = len(lines[0]).to_bytes(SIZE_BYTES, "big")
        return prefix + prefix.join(lines), len(lines), SIZE_BYTES + len(lines[0])
    return (
        b"".join([piece for line in lines for piece in (len(line).to_bytes(SIZE_BYTES, "big"), line)]),
        len(lines),
        0,
    )


def from_binary(data: bytes, max_msg_size: int, max_body_size: int, rest: Callable[[], object]) -> list[Part]:
    """Convert `[4-byte count]([4-byte size][message])...`; bytes after the last message are ignored.

    Raises BadBody and BadMessage, as MPUB does.
    """
    if len(data) < SIZE_BYTES:
        raise BadBody("MPUB failed to read message count")
    count = check_message_count(int.from_bytes(data[:SIZE_BYTES], "big", signed=True), max_body_size)
    walk = MessageWalk(count, SIZE_BYTES, max_msg_size, sys.maxsize)
    while not walk.is_over:
        if not walk.go_on(data, 0):
            if walk.offset + SIZE_BYTES > len(data):
                raise BadMessage(f"MPUB failed to read message({walk.index}) body size")
            raise BadMessage("MPUB failed to read message body")
        rest()
    return walk.parts(data, 0)


# ---- options


def get_option(request: Request[Broker]) -> Reply:
    """Return the value of an option, named by its key in the configuration file."""
    try:
        value = request.app.options.by_config_key(request.target.argument)
    except KeyError:
        raise HttpError(400, "INVALID_OPTION") from None
    if isinstance(value, tuple):
        value = [1 if part == 1 else part for part in value]  # percentiles, as Go writes them: 1, not 1.0
    if isinstance(value, str):
        return answers.text(_shown(value))
    return answers.json(value)


def get_options(request: Request[Broker]) -> Reply:
    """Return all options by their keys in the configuration file, each as that file would have it."""
    options = request.app.options
    known = (setting for setting in options.settings.values() if setting.key)
    return answers.json(
        {setting.key: _shown(setting.kind.show(getattr(options, setting.attribute))) for setting in known}
    )


def _shown(value: Any) -> Any:
    """Return a value as JSON can have it: a path may have bytes that are not UTF-8."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    return value


def put_option(request: Request[Broker]) -> Reply:
    """Change one of the few options that can change while nsqd runs, and return its new value."""
    if not request.body:
        raise HttpError(413, "INVALID_VALUE")
    change = _CHANGES.get(request.target.argument)
    if change is None:
        raise HttpError(400, "INVALID_OPTION")
    try:
        change(request.app, request.body)
    except ValueError:
        raise HttpError(400, "INVALID_VALUE") from None
    return get_option(request)


def _change_log_level(broker: Broker, value: bytes) -> None:
    broker.log.level = broker.options.log_level = LOG_LEVEL.parse(value.decode("utf-8", "replace"))


def _change_lookupds(broker: Broker, value: bytes) -> None:
    addresses = orjson.loads(value)
    if addresses is None:  # how Go's JSON writes a list that is nil
        addresses = []
    if not isinstance(addresses, list) or not all(isinstance(address, str) for address in addresses):
        raise ValueError("not a list of addresses")
    if len(addresses) > MOST_LOOKUPDS:
        raise ValueError(f"more than {MOST_LOOKUPDS} addresses")
    check_peer_addresses(addresses)
    broker.options.lookupd_tcp_address = tuple(addresses)
    broker.set_lookupds(addresses)


_CHANGES: dict[str, Callable[[Broker, bytes], None]] = {
    "log_level": _change_log_level,
    "nsqlookupd_tcp_addresses": _change_lookupds,
}

# ---- publishing


def pub(request: Request[Broker]) -> Reply:
    """Publish the body as one message; `defer` delays it by that many milliseconds."""
    body = request.body
    if not body:
        raise HttpError(400, "MSG_EMPTY")
    topic = _topic_to_publish_to(request)
    defer_ns = _defer_ns(request)
    sized = len(body).to_bytes(SIZE_BYTES, "big") + body
    topic.buffer.publish(sized, 1, len(sized), request.connection, request.ticket, defer_ns)
    return answers.OK


def mpub(request: Request[Broker]) -> Reply:
    """Publish many messages. A long body is converted in slices, in the greenlet of its connection."""
    topic = _topic_to_publish_to(request)
    defer_ns = _defer_ns(request)
    options = request.app.options
    is_quick = request.size_bytes <= request.route.quick_bytes
    rest = (lambda: None) if is_quick else WorkSlices(ONE_ROUND_S).sleep_if_due
    if _is_binary(request):
        try:
            parts = from_binary(request.body, options.max_msg_size, options.max_body_size, rest)
        except ClientError as error:
            raise HttpError(413, error.code.removeprefix("E_")) from error
    else:
        parts = from_lines(request.body, options.max_msg_size, rest)
    if topic.is_closed:  # it was deleted during a slice
        topic = _topic_to_publish_to(request)
    if len(parts) == 1:
        topic.buffer.publish(*parts[0], request.connection, request.ticket, defer_ns)
    elif parts:
        topic.buffer.publish_parts(parts, request.connection, request.ticket, defer_ns)
    return answers.OK


def topic_name(request: Request[Broker]) -> str:
    """Return the topic of a publish. Raises HttpError."""
    return _name_in(request, "topic", "INVALID_TOPIC")


def _topic_to_publish_to(request: Request[Broker]) -> Topic:
    name = topic_name(request)
    if name not in request.app.topics:
        request.app.creation_rate.take(request.connection.peer)
    return request.app.get_topic(name)


def _defer_ns(request: Request[Broker]) -> int:
    """Return the delay of the messages in ns; 0 if they are not deferred. Raises HttpError."""
    defer = request.params.get("defer")
    if defer is None:
        return 0
    try:
        delay_ns = milliseconds_to_ns(parse_int64(defer))
    except ValueError:
        delay_ns = -1
    if not 0 <= delay_ns <= request.app.options.max_defer_timeout_ns:
        raise HttpError(400, "INVALID_DEFER")
    return delay_ns


def _is_binary(request: Request[Broker]) -> bool:
    """True if the query asks for the binary format. As in Go, an unknown value means binary."""
    word = request.params.get("binary", "false")
    if word not in _BOOLS:
        request.app.log.of_clients.warning("deprecated value '%s' used for /mpub binary param", word)
    return _BOOLS.get(word, True)


# ---- statistics and health


def ping(request: Request[Broker]) -> Reply:
    """Liveness: OK, or 500 with the error of this node's disk. A drain or a full topic does not fail it."""
    problem = request.app.node_problem()
    if problem is not None:
        return answers.plain(500, f"NOK - {problem}")
    notice = request.app.additions.notice()
    if notice is None:
        return answers.plain(200, "OK")
    return answers.plain(200, f"OK - {notice}")


def health(request: Request[Broker]) -> Reply:
    """Readiness, and the topics with errors: 200 if clients should use this nsqd, else 503."""
    state = health_of(request.app)
    status = 200 if state.is_ready else 503
    is_json = request.params.get("format") == "json"
    if is_json:
        return answers.json(state.fields(), status)
    return answers.plain(status, state.text())


def info(request: Request[Broker]) -> Reply:
    """Return versions, addresses, start time and limits."""
    broker = request.app
    options = broker.options
    document = {
        "version": NSQ_VERSION,
        "project_version": PROJECT_VERSION,
        "broadcast_address": options.broadcast_address,
        "hostname": socket.gethostname(),
        "http_port": broker.ports.http,
        "tcp_port": broker.ports.tcp,
        "start_time": int(broker.start_time),
        "max_heartbeat_interval": options.max_heartbeat_interval_ns,
        "max_output_buffer_size": options.max_output_buffer_size,
        "max_output_buffer_timeout": options.max_output_buffer_timeout_ns,
        "max_deflate_level": options.max_deflate_level,
        "topology_zone": options.topology_zone,
        "topology_region": options.topology_region,
    }
    if broker.ports.https >= 0:
        document["https_port"] = broker.ports.https
    return answers.json(document)


def stats(request: Request[Broker]) -> Reply:
    """Return topics, channels and clients as text, or as JSON with `format=json`."""
    params = request.params
    broker = request.app
    # A client that published to a new topic needs its channels next, for which nsqlookupds are being asked.
    broker.lookups.wait_until_all_started(NEW_TOPICS_S)
    statistics = collect(
        broker,
        params.get("topic", ""),
        params.get("channel", ""),
        include_clients=_BOOLS.get(params.get("include_clients", ""), True),
    )
    include_memory = _BOOLS.get(params.get("include_mem", ""), True)
    if params.get("format") == "json":
        document = render_json(broker, statistics, include_memory=include_memory)
        if broker.scrub is not None:
            document["scrub"] = broker.scrub.statistics()
        return answers.json(document | broker.drain.statistics() | broker.additions.statistics())
    return answers.text(render_text(broker, statistics, include_memory=include_memory))


def metrics(request: Request[Broker]) -> Reply:
    """Statistics for Prometheus. Its library takes 50 ms to import; that happens at the first scrape, in a thread."""
    missing = missing_package("prometheus_client", "metrics")
    if missing:
        raise HttpError(501, missing)
    in_thread(gevent.get_hub().threadpool, import_module, "nsqd_py.stats.prometheus")
    from nsqd_py.stats.prometheus import CONTENT_TYPE, Exposition

    return answers.in_pieces(Exposition(request.app).pieces(), CONTENT_TYPE, "")


# ---- drain


def drain(request: Request[Broker]) -> Reply:
    """Begin a drain: refuse publishes, deliver the backlog, exit. `timeout` limits it; a later call replaces that."""
    timeout = request.params.get("timeout")
    try:
        timeout_ns = None if timeout is None else parse_duration(timeout)
        if timeout_ns is not None and timeout_ns < 0:
            raise ValueError("a time-out must not be negative")
    except ValueError as error:
        raise HttpError(400, "INVALID_TIMEOUT") from error
    request.app.begin_drain(timeout_ns)
    return answers.json(request.app.drain.statistics())


# ---- standby


def promote(request: Request[Broker]) -> Reply:
    """Make a primary of this standby. It restarts, with the messages that it has."""
    replication = request.app.replication
    statistics = replication.statistics()
    replication.promote()
    return answers.json(statistics)


# ---- topics


def create_topic(request: Request[Broker]) -> Reply:
    """Create a topic; answer when it has the channels that nsqlookupds know of it."""
    name = topic_name(request)
    if name not in request.app.topics and not is_ephemeral(name):
        request.app.check_writable()  # as its first publish would fail
    request.app.wait_until_started(_topic_to_publish_to(request))
    return answers.EMPTY


def delete_topic(request: Request[Broker]) -> Reply:
    """Delete a topic with its channels and messages."""
    request.app.delete_topic(named_topic(request).name)
    request.app.metadata.persist()
    return answers.EMPTY


def empty_topic(request: Request[Broker]) -> Reply:
    """Drop the messages of a topic that no channel has received."""
    request.app.empty_topic(_existing_topic(request, topic_name(request)))
    return answers.EMPTY


def pause_topic(request: Request[Broker], *, paused: bool) -> Reply:
    """Pause or unpause a topic. A paused one passes no messages to its channels; publishes are still accepted."""
    request.app.pause_topic(named_topic(request), paused)
    return answers.EMPTY


def named_topic(request: Request[Broker]) -> Topic:
    """Return the topic of the query, which must exist. Raises HttpError."""
    return _existing_topic(request, required(request, "topic"))


def _existing_topic(request: Request[Broker], name: str) -> Topic:
    topic = request.app.topics.get(name)
    if topic is None:
        raise HttpError(404, "TOPIC_NOT_FOUND")
    return topic


# ---- channels


def delete_channel(request: Request[Broker]) -> Reply:
    """Delete a channel with its messages, and close the connections of its consumers."""
    topic, channel = named_channel(request)
    request.app.delete_channel(topic, channel.name)
    request.app.metadata.persist()
    return answers.EMPTY


def empty_channel(request: Request[Broker]) -> Reply:
    """Drop all messages of a channel, in flight and deferred ones too."""
    request.app.empty_channel(*named_channel(request))
    return answers.EMPTY


def pause_channel(request: Request[Broker], *, paused: bool) -> Reply:
    """Pause or unpause a channel. A paused one delivers nothing."""
    request.app.pause_channel(*named_channel(request), paused)
    return answers.EMPTY


def named_channel(request: Request[Broker]) -> tuple[Topic, Channel]:
    """Return the topic and channel of the query, which must exist. Raises HttpError."""
    topic, name = topic_and_channel_name(request)
    channel = topic.channels.get(name)
    if channel is None:
        raise HttpError(404, "CHANNEL_NOT_FOUND")
    return topic, channel


def topic_and_channel_name(request: Request[Broker]) -> tuple[Topic, str]:
    """Return the topic of the query, which must exist, and a channel's name. Raises HttpError."""
    topic = _name_in(request, "topic", "INVALID_ARG_TOPIC")
    channel = _name_in(request, "channel", "INVALID_ARG_CHANNEL")
    return _existing_topic(request, topic), channel


def _name_in(request: Request[Broker], key: str, invalid: str) -> str:
    name = required(request, key)
    if not is_valid(name):
        raise HttpError(400, invalid)
    return name


def is_valid(name: str) -> bool:
    """True if a text of the query is a valid name of a topic or channel."""
    return is_valid_name(name.encode("utf-8", "surrogateescape"))
