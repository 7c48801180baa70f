"""The handlers of commands: each function acts on topics and channels for a connection, and answers it.

The parser checks each command against the table in `protocol.commands`; handlers receive only valid commands.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, assert_never

import gevent

from nsqd_py.errors import (
    AuthDisabled,
    ClientError,
    DpubFailed,
    FinFailed,
    MpubFailed,
    NsqdError,
    PubFailed,
    Refusal,
    ReqFailed,
    SubFailed,
    TouchFailed,
)
from nsqd_py.protocol import frames
from nsqd_py.protocol.commands import (
    DPUB,
    MPUB,
    NOP,
    PUB,
    Ack,
    Auth,
    Cls,
    Command,
    Dpub,
    Fin,
    Identify,
    LargeMpub,
    Member,
    Mpub,
    Nop,
    PermissionRequest,
    Pub,
    Rdy,
    Req,
    SliceRead,
    Standby,
    Sub,
    Touch,
    words,
)
from nsqd_py.protocol.session import STATE_CLOSING, STATE_STANDBY, STATE_SUBSCRIBED, Upgrades
from nsqd_py.queue.position import TOPOLOGY_AWARE, nearness

if TYPE_CHECKING:
    from nsqd_py.queue.channel import Channel
    from nsqd_py.queue.topic import Topic
    from nsqd_py.tcp.connection import ClientConnection

MS_NS = 1_000_000

_PUBLISH_ERRORS: dict[int, tuple[str, type[ClientError]]] = {
    PUB: ("PUB", PubFailed),
    MPUB: ("MPUB", MpubFailed),
    DPUB: ("DPUB", DpubFailed),
}


class Throttled(NsqdError):
    """The command must be executed again after `wait_s`: its client has created many topics or channels."""

    def __init__(self, wait_s: float, command: Command) -> None:
        super().__init__(wait_s)
        self.wait_s = wait_s
        self.command = command


def execute(client: ClientConnection, command: Command) -> None:
    """Execute a command. Raises ClientError, and Throttled."""
    match command:  # the commands that come most often first
        case Pub():
            pub(client, command)
        case Fin():
            fin(client, command.message_ids)
        case Mpub():
            mpub(client, command)
        case Rdy():
            rdy(client, command.count)
        case Req():
            req(client, command)
        case Touch():
            touch(client, command.message_id)
        case Dpub():
            dpub(client, command)
        case Nop() | SliceRead():
            pass
        case Ack():
            client.broker.replication.acknowledge(client, command.round_number)
        case LargeMpub():
            large_mpub(client, command)
        case PermissionRequest():
            permit(client, command)
        case Sub():
            sub(client, command)
        case Identify():
            identify(client, command.body)
        case Auth():
            auth(client, command.secret)
        case Cls():
            cls(client)
        case Member():
            client.session.state = STATE_STANDBY
            client.broker.replication.member(client, command.body)
        case Standby():
            client.broker.replication.attach(client, command.body)
        case _:
            assert_never(command)


# ---- identification


def identify(client: ClientConnection, body: bytes) -> None:
    session = client.session
    answer = session.identify(body)
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


def auth(client: ClientConnection, secret: bytes) -> None:
    if client.guard is None:
        raise AuthDisabled("AUTH disabled")
    client.guard.authenticate(secret, lambda answer: client.send(frames.response(answer)))


def permit(client: ClientConnection, request: PermissionRequest) -> None:
    """Execute the command of the request when the client is authorized for it."""
    if client.guard is None:  # the client was closed by a command before this one
        return
    command = request.command
    client.guard.check(
        request.name, request.topic_name, request.channel_name, lambda: execute(client, command) if command is not None else None
    )


# ---- consumers


def sub(client: ClientConnection, command: Sub) -> None:
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


def _make_channel(client: ClientConnection, topic: Topic, name: str) -> None:
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


def _subscribe(client: ClientConnection, topic: Topic, channel: Channel | OSError | Refusal) -> None:
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


def rdy(client: ClientConnection, count: int) -> None:
    if client.session.state == STATE_CLOSING:
        client.log.of_clients.info("PROTOCOL(V2): [%s] ignoring RDY after CLS", client.peer)
        return
    client.rdy = count
    client.maybe_ready()


def fin(client: ClientConnection, message_ids: list[bytes]) -> None:
    channel = client.channel
    assert channel is not None
    missing = channel.finish(client, message_ids)
    client.finish_count += len(message_ids) - len(missing)
    for message_id in missing:
        client.answer_error(FinFailed(f"FIN {words(message_id)} failed {_missing_reason(channel, message_id)}"))
    if not client.is_waiting and client.capacity() > 0:
        channel.client_ready(client)


def req(client: ClientConnection, command: Req) -> None:
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


def touch(client: ClientConnection, message_id: bytes) -> None:
    channel = client.channel
    assert channel is not None
    if not channel.touch(client, message_id):
        raise TouchFailed(f"TOUCH {words(message_id)} failed {_missing_reason(channel, message_id)}")


def _missing_reason(channel: Channel, message_id: bytes) -> str:
    return "client does not own message" if channel.owns(message_id) else "ID not in flight"


def cls(client: ClientConnection) -> None:
    client.rdy = 0
    client.session.state = STATE_CLOSING
    client.send(frames.CLOSE_WAIT)


# ---- publishers


def pub(client: ClientConnection, command: Pub) -> None:
    _publish(client, PUB, command)
    client.send(frames.OK * command.count)


def mpub(client: ClientConnection, command: Mpub) -> None:
    _publish(client, MPUB, command)
    client.send(frames.OK)


def large_mpub(client: ClientConnection, command: LargeMpub) -> None:
    topic, ticket = _topic_and_ticket(client, MPUB, command)
    topic.publish_parts(command.parts, client, ticket)
    client.pub_counts[topic.name] += command.count
    client.send(frames.OK)


def await_mpub(client: ClientConnection, topic_name: bytes) -> None:
    """Create the topic of an MPUB whose body is incomplete or refused, as Go's nsqd does before it reads the body."""
    with contextlib.suppress(Refusal, Throttled):  # the MPUB command reports it, or waits
        if topic_name.decode() not in client.broker.topics:
            _await_turn(client, NOP)
        client.broker.get_topic(topic_name.decode())


def _await_turn(client: ClientConnection, command: Command) -> None:
    """Take the client's turn to create a topic or channel. Raises Throttled if it is not yet, and Refusal."""
    if not client.has_turn:
        wait_s = client.broker.creation_rate.wait_s(client.peer)
        if wait_s:
            raise Throttled(wait_s, command)


def dpub(client: ClientConnection, command: Dpub) -> None:
    _publish(client, DPUB, command, command.defer_ns)
    client.send(frames.OK * command.count)


def _publish(client: ClientConnection, kind: int, command: Pub | Mpub | Dpub, defer_ns: int = 0) -> None:
    topic, ticket = _topic_and_ticket(client, kind, command)
    topic.publish(command.body, command.count, command.stride, client, ticket, defer_ns)
    client.pub_counts[topic.name] += command.count


def _topic_and_ticket(client: ClientConnection, kind: int, command: Pub | Mpub | Dpub | LargeMpub) -> tuple[Topic, int]:
    """Return the topic and the ticket of the answer; the ticket contains the kind of the publish, for errors."""
    ticket = client.early.ticket(kind)
    broker, topic_name = client.broker, command.topic_name.decode()
    try:
        if topic_name not in broker.topics:
            _await_turn(client, command)
        return broker.get_topic(topic_name), ticket
    except Refusal as error:
        name, failure = _PUBLISH_ERRORS[kind]
        raise failure(f"{name} failed {error.reason}") from error


def publish_error(kind: int, error: OSError) -> ClientError:
    """Return the client error for a publish of this kind that could not be written."""
    name, failure = _PUBLISH_ERRORS[kind]
    return failure(f"{name} failed {error.strerror or error}")
