"""The handlers of commands: each function acts on topics and channels for a connection, and answers it.

The parser checks each command against the table in `protocol.commands`; handlers receive only valid commands.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nsqd_py.errors import (
    AuthDisabled,
    ClientError,
    DpubFailed,
    FinFailed,
    MpubFailed,
    PubFailed,
    Refusal,
    ReqFailed,
    SubFailed,
    TouchFailed,
)
from nsqd_py.protocol import frames
from nsqd_py.protocol.commands import DPUB, MPUB, PUB, Params, milliseconds_to_ns, parse_number, words
from nsqd_py.protocol.multi_body import Part
from nsqd_py.protocol.parser import Command
from nsqd_py.protocol.session import STATE_CLOSING, STATE_SUBSCRIBED, Upgrades
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


def act(client: ClientConnection, command: Command) -> None:
    """Execute a command. Raises ClientError."""
    HANDLERS[command[0]](client, *command[1:])


# ---- identification


def identify(client: ClientConnection, params: Params, body: bytes) -> None:
    session = client.session
    answer = session.identify(body)
    names = client.peer, session.client_id, session.hostname, session.user_agent
    client.log.of_clients.info("[%s] IDENTIFY: %s %s %s", *names)
    client.msg_timeout_ns = session.msg_timeout_ms * MS_NS
    client.sample_rate = session.sample_rate
    options = client.broker.options
    if TOPOLOGY_AWARE in options.enable_experiment:
        client.nearness = nearness(
            options.topology_zone, options.topology_region, session.topology_zone, session.topology_region
        )
    client.set_heartbeat()
    client.send(frames.response(answer))
    if session.upgrades != Upgrades():
        client.upgrade(session.upgrades)


def auth(client: ClientConnection, params: Params, body: bytes) -> None:
    if client.guard is None:
        raise AuthDisabled("AUTH disabled")
    client.guard.authenticate(body, lambda answer: client.send(frames.response(answer)))


def permit(
    client: ClientConnection, name: str, topic_name: bytes, channel_name: bytes, command: Command | None
) -> None:
    """Execute a command when the client is authorized for it. None: only check the authorization."""
    assert client.guard is not None
    client.guard.check(name, topic_name, channel_name, lambda: act(client, command) if command is not None else None)


# ---- consumers


def sub(client: ClientConnection, params: Params, body: bytes) -> None:
    name, broker = params[1].decode(), client.broker
    try:
        topic = broker.find_topic(name) or broker.get_topic(name)
    except OSError as error:
        raise SubFailed(f"SUB failed {error.strerror or error}") from error
    except Refusal as error:
        raise SubFailed(f"SUB failed {error.reason}") from error
    channel_name = params[2].decode()
    if broker.channels.wants_disk(topic, channel_name):
        broker.channels.make_for(client, topic, channel_name, lambda found: _subscribe(client, topic, found))
    else:
        try:
            channel = broker.get_channel(topic, channel_name)
        except Refusal as error:
            raise SubFailed(f"SUB failed {error.reason}") from error
        _subscribe(client, topic, channel)


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


def rdy(client: ClientConnection, params: Params, body: bytes) -> None:
    if client.session.state == STATE_CLOSING:
        client.log.of_clients.info("PROTOCOL(V2): [%s] ignoring RDY after CLS", client.peer)
        return
    client.rdy = parse_number(params[1]) if len(params) > 1 else 1
    client.maybe_ready()


def fin_run(client: ClientConnection, ids: list[bytes]) -> None:
    channel = client.channel
    assert channel is not None
    missing = channel.finish(client, ids)
    client.finish_count += len(ids) - len(missing)
    for message_id in missing:
        client.answer_error(FinFailed(f"FIN {words(message_id)} failed {_missing_reason(channel, message_id)}"))
    if not client.is_waiting and client.capacity() > 0:
        channel.client_ready(client)


def fin(client: ClientConnection, *arguments: Any) -> None:
    """Handle `("FIN", ids)`, for consecutive FINs, or `("FIN", params, body)`, for a line in an unusual form."""
    fin_run(client, arguments[0] if len(arguments) == 1 else [arguments[0][1]])


def req(client: ClientConnection, params: Params, body: bytes) -> None:
    channel = client.channel
    assert channel is not None
    delay_ns = milliseconds_to_ns(parse_number(params[2]))
    clamped_ns = max(0, min(delay_ns, client.broker.options.max_req_timeout_ns))
    if clamped_ns != delay_ns:
        client.log.of_clients.info("[%s] REQ timeout %d out of range. Setting to %d", client.peer, delay_ns, clamped_ns)
    if not channel.requeue(client, params[1], clamped_ns):
        raise ReqFailed(f"REQ {words(params[1])} failed {_missing_reason(channel, params[1])}")
    client.requeue_count += 1
    client.maybe_ready()


def touch(client: ClientConnection, params: Params, body: bytes) -> None:
    channel = client.channel
    assert channel is not None
    if not channel.touch(client, params[1]):
        raise TouchFailed(f"TOUCH {words(params[1])} failed {_missing_reason(channel, params[1])}")


def _missing_reason(channel: Channel, message_id: bytes) -> str:
    return "client does not own message" if channel.owns(message_id) else "ID not in flight"


def cls(client: ClientConnection, params: Params, body: bytes) -> None:
    client.rdy = 0
    client.session.state = STATE_CLOSING
    client.send(frames.CLOSE_WAIT)


def nop(client: ClientConnection, params: Params, body: bytes) -> None:
    pass


def go_on(client: ClientConnection) -> None:
    """Do nothing: the parser has read one slice of a long command."""


# ---- publishers


def pub(client: ClientConnection, topic_name: bytes, body: bytes, count: int, stride: int) -> None:
    _publish(client, PUB, topic_name.decode(), body, count, stride)
    client.send(frames.OK * count)


def mpub(client: ClientConnection, topic_name: bytes, body: bytes, count: int, stride: int) -> None:
    _publish(client, MPUB, topic_name.decode(), body, count, stride)
    client.send(frames.OK)


def mpub_parts(client: ClientConnection, topic_name: bytes, parts: Sequence[Part], count: int) -> None:
    """Handle an MPUB with more messages than fit into one batch."""
    topic, ticket = _topic_and_ticket(client, MPUB, topic_name.decode())
    topic.publish_parts(parts, client, ticket)
    client.pub_counts[topic.name] += count
    client.send(frames.OK)


def await_mpub(client: ClientConnection, topic_name: bytes) -> None:
    """Create the topic of an MPUB whose body is incomplete or refused, as Go's nsqd does before it reads the body."""
    with contextlib.suppress(Refusal):  # the MPUB command reports it
        client.broker.get_topic(topic_name.decode())


def dpub(
    client: ClientConnection, topic_name: bytes, body: bytes, count: int, stride: int, defer_ns: int
) -> None:
    _publish(client, DPUB, topic_name.decode(), body, count, stride, defer_ns)
    client.send(frames.OK * count)


def _publish(
    client: ClientConnection, kind: int, topic_name: str, body: bytes, count: int, stride: int, defer_ns: int = 0
) -> None:
    topic, ticket = _topic_and_ticket(client, kind, topic_name)
    topic.publish(body, count, stride, client, ticket, defer_ns)
    client.pub_counts[topic_name] += count


def _topic_and_ticket(client: ClientConnection, kind: int, topic_name: str) -> tuple[Topic, int]:
    """Return the topic and the ticket of the answer; the ticket contains the kind of the publish, for errors."""
    ticket = client.early.ticket(kind)
    try:
        return client.broker.get_topic(topic_name), ticket
    except Refusal as error:
        name, failure = _PUBLISH_ERRORS[kind]
        raise failure(f"{name} failed {error.reason}") from error


def publish_error(kind: int, error: OSError) -> ClientError:
    """Return the client error for a publish of this kind that could not be written."""
    name, failure = _PUBLISH_ERRORS[kind]
    return failure(f"{name} failed {error.strerror or error}")


HANDLERS: dict[str, Any] = {
    "FIN": fin,
    "PUB": pub,
    "MPUB": mpub,
    "MPUB_PARTS": mpub_parts,
    "DPUB": dpub,
    "RDY": rdy,
    "REQ": req,
    "TOUCH": touch,
    "NOP": nop,
    "SUB": sub,
    "CLS": cls,
    "IDENTIFY": identify,
    "AUTH": auth,
    "PERMIT": permit,
    "GO_ON": go_on,
}
