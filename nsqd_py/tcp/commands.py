"""The handlers of commands: each function acts on topics and channels for a connection, and answers it.

The parser checks each command against the table in `protocol.commands`; handlers receive only valid commands.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import gevent

from nsqd_py.errors import AuthDisabled, FinFailed, NsqdError, Refusal, ReqFailed, SubFailed, TouchFailed
from nsqd_py.protocol import frames
from nsqd_py.protocol.commands import (
    MPUB,
    NOP,
    Ack,
    Auth,
    Cls,
    Command,
    Fin,
    Identify,
    LargeMpub,
    Member,
    Nop,
    PermissionRequest,
    Publish,
    Rdy,
    Req,
    SliceRead,
    Standby,
    Sub,
    Touch,
    words,
)
from nsqd_py.protocol.session import STATE_CLOSING, STATE_STANDBY, STATE_SUBSCRIBED, Upgrades
from nsqd_py.queue.channel import Channel
from nsqd_py.queue.position import TOPOLOGY_AWARE, nearness
from nsqd_py.queue.topic import Topic
from nsqd_py.tcp.client import PUBLISH_ERRORS, Client
from nsqd_py.tcp.client_stream import MS_NS


class Throttled(NsqdError):
    """The command must be executed again after `wait_s`: its client has created many topics or channels."""

    def __init__(self, wait_s: float, command: Command) -> None:
        super().__init__(wait_s)
        self.wait_s = wait_s
        self.command = command


# ---- identification


def identify(client: Client, command: Identify) -> None:
    session = client.session
    answer = session.identify(command.body)
    names = client.peer, session.client_id, session.hostname, session.user_agent
    client.log.of_clients.info("[%s] IDENTIFY: %s %s %s", *names)
    client.msg_timeout_ns = session.msg_timeout_ms * MS_NS
    client.sample_rate = session.sample_rate
    options = client.broker.options
    if TOPOLOGY_AWARE in options.enable_experiment:
        client.nearness = nearness(options.topology_zone, options.topology_region, session.topology_zone, session.topology_region)
    client.set_heartbeat()
    client.send(frames.response(answer))
    if session.upgrades != Upgrades():
        client.upgrade(session.upgrades)


def auth(client: Client, command: Auth) -> None:
    if client.guard is None:
        raise AuthDisabled("AUTH disabled")
    client.guard.authenticate(command.secret, lambda answer: client.send(frames.response(answer)))


def permit(client: Client, request: PermissionRequest) -> None:
    """Execute the command of the request when the client is authorized for it."""
    if client.guard is None:  # the client was closed by a command before this one
        return
    command = request.command
    execute = partial(HANDLERS[type(command)], client, command) if command is not None else _nothing
    client.guard.check(request.name, request.topic_name, request.channel_name, execute)


# ---- consumers


def sub(client: Client, command: Sub) -> None:
    name, broker = command.topic_name.decode(), client.broker
    channel_name = command.channel_name.decode()
    try:
        found = broker.find_topic(name)
        if found is None or channel_name not in found.channels:
            _await_turn(client, command)
        topic = found or broker.get_topic(name)
    except OSError as error:
        raise SubFailed(f"SUB failed {error.strerror or error}") from error
    except Refusal as error:
        raise SubFailed(f"SUB failed {error.reason}") from error
    if broker.writes_journal(topic, channel_name):
        client.pause()
        gevent.spawn(_make_channel, client, topic, channel_name)
    else:
        try:
            channel = broker.get_channel(topic, channel_name)
        except Refusal as error:
            raise SubFailed(f"SUB failed {error.reason}") from error
        _subscribe(client, topic, channel)


def _make_channel(client: Client, topic: Topic, name: str) -> None:
    """Create a channel and subscribe the client, which is paused until then. Runs in a greenlet."""
    found: Channel | OSError | Refusal
    try:
        try:
            found = client.broker.make_channel(topic, name)
        except (OSError, Refusal) as error:
            found = error
        if not client.closed:
            client.go_on(lambda: _subscribe(client, topic, found))
    except Exception as error:  # noqa: BLE001 - a bug here must not leave the client waiting
        client.log.of_clients.exception("client(%s) - %r", client.peer, error)
        client.close("internal error")


def _subscribe(client: Client, topic: Topic, channel: Channel | OSError | Refusal) -> None:
    """Make the client a consumer of the channel. Raises SubFailed if `channel` is an error."""
    if isinstance(channel, Refusal):
        raise SubFailed(f"SUB failed {channel.reason}") from channel
    if isinstance(channel, OSError):
        raise SubFailed(f"SUB failed {channel.strerror or channel}") from channel
    broker = client.broker
    if not channel.add_client(client):
        most = broker.options.max_channel_consumers
        raise SubFailed(f"SUB failed consumers for {topic.name}:{channel.name} exceeds limit of {most}")
    client.topic = topic
    client.channel = channel
    client.session.state = STATE_SUBSCRIBED
    client.send(frames.OK)


def rdy(client: Client, command: Rdy) -> None:
    if client.session.state == STATE_CLOSING:
        client.log.of_clients.info("PROTOCOL(V2): [%s] ignoring RDY after CLS", client.peer)
        return
    client.rdy = command.count
    client.maybe_ready()


def fin(client: Client, command: Fin) -> None:
    message_ids = command.message_ids
    channel = client.channel
    assert channel is not None
    missing = channel.finish(client, message_ids)
    client.finish_count += len(message_ids) - len(missing)
    for message_id in missing:
        client.answer_error(FinFailed(f"FIN {words(message_id)} failed {_missing_reason(channel, message_id)}"))
    if not client.is_waiting and client.capacity() > 0:
        channel.client_ready(client)


def req(client: Client, command: Req) -> None:
    channel = client.channel
    assert channel is not None
    message_id, delay_ns = command.message_id, command.delay_ns
    clamped_ns = max(0, min(delay_ns, client.broker.options.max_req_timeout_ns))
    if clamped_ns != delay_ns:
        client.log.of_clients.info("[%s] REQ timeout %d out of range. Setting to %d", client.peer, delay_ns, clamped_ns)
    if not channel.requeue(client, message_id, clamped_ns):
        raise ReqFailed(f"REQ {words(message_id)} failed {_missing_reason(channel, message_id)}")
    client.requeue_count += 1
    client.maybe_ready()


def touch(client: Client, command: Touch) -> None:
    message_id = command.message_id
    channel = client.channel
    assert channel is not None
    if not channel.touch(client, message_id):
        raise TouchFailed(f"TOUCH {words(message_id)} failed {_missing_reason(channel, message_id)}")


def _missing_reason(channel: Channel, message_id: bytes) -> str:
    return "client does not own message" if channel.owns(message_id) else "ID not in flight"


def cls(client: Client, command: Cls) -> None:
    client.rdy = 0
    client.session.state = STATE_CLOSING
    client.send(frames.CLOSE_WAIT)


# ---- publishers


def publish(client: Client, command: Publish) -> None:
    """Execute one or more equal PUBs or DPUBs, or an MPUB. The answer leaves when the messages are in the log."""
    kind, count = command.kind, command.count
    topic = client.broker.open_topics.get(command.topic_name.decode()) or _make_topic(client, kind, command)
    topic.publish(command.body, count, command.stride, client, client.early.ticket(kind), command.defer_ns)
    client.pub_counts[topic.name] += count
    client.send(frames.OK if kind == MPUB or count == 1 else frames.OK * count)


def large_mpub(client: Client, command: LargeMpub) -> None:
    topic = _make_topic(client, MPUB, command)
    topic.publish_parts(command.parts, client, client.early.ticket(MPUB))
    client.pub_counts[topic.name] += command.count
    client.send(frames.OK)


def await_mpub(client: Client, topic_name: bytes) -> None:
    """Create the topic of an MPUB whose body is incomplete or refused, as Go's nsqd does before it reads the body."""
    with contextlib.suppress(Refusal, Throttled):  # the MPUB command reports it, or waits
        if topic_name.decode() not in client.broker.topics:
            _await_turn(client, NOP)
        client.broker.get_topic(topic_name.decode())


def _await_turn(client: Client, command: Command) -> None:
    """Take the client's turn to create a topic or channel. Raises Throttled if it is not yet, and Refusal."""
    if not client.has_turn:
        wait_s = client.broker.creation_rate.wait_s(client.peer)
        if wait_s:
            raise Throttled(wait_s, command)


def _make_topic(client: Client, kind: int, command: Publish | LargeMpub) -> Topic:
    """Return the topic of a publish; create it if needed. Raises ClientError and Throttled."""
    broker, topic_name = client.broker, command.topic_name.decode()
    try:
        if topic_name not in broker.topics:
            _await_turn(client, command)
        return broker.get_topic(topic_name)
    except Refusal as error:
        name, failure = PUBLISH_ERRORS[kind]
        raise failure(f"{name} failed {error.reason}") from error


# ---- the table


def _stand_by(client: Client, command: Member) -> None:
    client.session.state = STATE_STANDBY
    client.broker.replication.member(client, command.body)


def _nothing(*_: object) -> None:
    """Do what NOP does."""


HANDLERS: dict[type, Callable[[Client, Any], None]] = {
    Publish: publish,
    LargeMpub: large_mpub,
    Fin: fin,
    Rdy: rdy,
    Req: req,
    Touch: touch,
    Nop: _nothing,
    SliceRead: _nothing,
    Sub: sub,
    Cls: cls,
    Identify: identify,
    Auth: auth,
    PermissionRequest: permit,
    Member: _stand_by,
    Standby: lambda client, command: client.broker.replication.attach(client, command.body),
    Ack: lambda client, command: client.broker.replication.acknowledge(client, command.round_number),
}
