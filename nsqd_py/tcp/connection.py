"""The connection of a client: received bytes become commands, and each command has a handler, which acts on topics and channels.

Answers and messages are collected in `out`, and sent in one call at the end of the event-loop iteration. The parser checks
each command against the table in `protocol.commands`; handlers receive only valid commands.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import gevent

from nsqd_py.broker.broker import Broker
from nsqd_py.broker.services import Topic
from nsqd_py.errors import (
    AuthDisabled,
    BadBody,
    BadMessage,
    ClientError,
    FinFailed,
    LineTooLong,
    Refusal,
    ReqFailed,
    SubFailed,
    TouchFailed,
)
from nsqd_py.net.limits import HANDSHAKE, TimeLimits
from nsqd_py.net.loop_iteration import LoopIteration
from nsqd_py.net.transport import OPEN, PAUSED, UNREAD
from nsqd_py.protocol import MAGIC_V2, frames
from nsqd_py.protocol.commands import (
    MPUB,
    Ack,
    Auth,
    Cls,
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
from nsqd_py.protocol.names import TOPOLOGY_AWARE
from nsqd_py.protocol.parser import CommandParser, GuardedParser
from nsqd_py.protocol.session import STATE_CLOSING, STATE_STANDBY, STATE_SUBSCRIBED, Limits, Upgrades
from nsqd_py.queue.channel import Channel
from nsqd_py.queue.delivery import nearness
from nsqd_py.runtime.logs.bugs import report_bug
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.tcp.client import MS_NS, PUBLISH_ERRORS, Client

if TYPE_CHECKING:
    from nsqd_py.auth.guard import Step

# After whole commands that took less than this, the next are read without asking whether this iteration has time.
_QUICK_S = 50e-6


class ClientConnection(Client):
    """A client that sends commands."""

    __slots__ = ("_magic_so_far", "_parser")

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        loop: Any,
        iteration: LoopIteration,
        log: Log,
        broker: Broker,
        limits: Limits,
    ) -> None:
        super().__init__(sock, peer, loop, iteration, log, broker, limits)
        self._magic_so_far = b""
        self._parser: CommandParser | None = None

    def on_data(self, data: bytes) -> None:
        parser = self._parser
        if parser is None:
            self._on_magic(data)
            return
        parser.feed(data)
        if self._iteration.backlog.is_working:  # what is read in a turn of the backlog waits for another turn
            self._fall_behind()
        else:
            self._run_commands(parser)

    def _run_commands(self, parser: CommandParser) -> None:
        """Execute received commands for one time slice; the backlog continues in later iterations."""
        if self._errors is not None and self._must_wait():
            return
        pulse = self.pulse
        began_s = perf_counter()
        while self.state == OPEN:
            try:
                command = parser.next_command()
                if command is None:
                    if parser.awaited_mpub:
                        await_mpub(self, parser.awaited_mpub)
                    break
                pulse.heard_s = pulse.loop.now()  # only complete commands count as a sign of life
                HANDLERS[type(command)](self, command)
            except ClientError as error:
                if parser.awaited_mpub and isinstance(error, (BadBody, BadMessage)):
                    await_mpub(self, parser.awaited_mpub)
                self.answer_error(error)
            except LineTooLong as error:
                self.close(str(error))
                return
            if perf_counter() - began_s >= self._iteration.backlog.slice_s and parser.has_unread:
                self._fall_behind()
                return
        else:
            return
        self.is_quick = self._layer is None and parser.is_idle and perf_counter() - began_s < _QUICK_S
        if parser.next_read and self._layer is None:
            self._exact_read = parser.next_read
            self.is_light = False
        if self.waits_for >= UNREAD:
            self._catch_up()

    def act(self) -> None:
        """Execute more of the received commands."""
        assert self._parser is not None
        self._run_commands(self._parser)

    def _on_magic(self, data: bytes) -> None:
        """Handle the first four bytes, which name the client's protocol."""
        data = self._magic_so_far + data
        if len(data) < len(MAGIC_V2):
            self._magic_so_far = data
            return
        magic = data[: len(MAGIC_V2)]
        self.log.of_clients.info("CLIENT(%s): desired protocol magic '%s'", self.peer, words(magic))
        if magic != MAGIC_V2:
            self.log.of_clients.error("client(%s) bad protocol magic '%s'", self.peer, words(magic))
            self.send(frames.BAD_PROTOCOL)
            self.close_when_sent()
            return
        self._parser = CommandParser(self.session) if self.guard is None else GuardedParser(self.session)
        self.broker.clients[self] = None
        self._budget.set_window(len(self.broker.clients))
        self.pulse.hear()
        self.set_heartbeat()
        if len(data) > len(MAGIC_V2):
            self.on_data(data[len(MAGIC_V2) :])

    def on_end(self) -> None:
        error = self._parser.end_of_input() if self._parser is not None else None
        if error is not None:
            self.answer_error(error)
        else:
            self.close_when_sent()

    def take_unread(self) -> bytes:
        """Remove and return the received bytes after the last command."""
        assert self._parser is not None
        return self._parser.take_unread()

    def pause(self) -> None:
        """Neither read, execute commands nor send until `go_on`."""
        self._enter(PAUSED)
        self.forget_pub()
        self.hold()

    def go_on(self, step: Step) -> None:
        """End the pause: call `step`, which may raise ClientError, then execute the commands after it."""
        assert self._parser is not None
        self._end_pause()
        self.pulse.hear()  # the pause does not count as silence of the client
        self.release()
        try:
            step()
        except ClientError as error:
            self.answer_error(error)
        self._run_commands(self._parser)

    def forget_pub(self) -> None:
        """Parse the next PUB as a command, because the client's permissions may have changed."""
        assert self._parser is not None
        self._parser.forget_pub()

    @property
    def received_bytes(self) -> int:
        """The bytes of a command that is not complete; 0 while complete commands wait for their turn or for the disk."""
        if self._parser is None or self.is_behind or self._holds:
            return 0
        return self._parser.gathered_bytes

    def overdue(self, now_s: float, limits: TimeLimits) -> str:
        has_begun = self._parser is not None
        if not has_begun and limits.handshake_s and now_s - self.pulse.heard_s >= limits.handshake_s:
            return HANDSHAKE
        return super().overdue(now_s, limits)


# ---- handlers


# ---- identification


def identify(client: ClientConnection, command: Identify) -> None:
    session = client.session
    answer = session.identify(command.body, client.broker.ports.http)
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
        client.upgrade(session.upgrades, client.take_unread)


def auth(client: ClientConnection, command: Auth) -> None:
    if client.guard is None:
        raise AuthDisabled("AUTH disabled")
    client.guard.authenticate(command.secret, lambda answer: client.send(frames.response(answer)))


def permit(client: ClientConnection, request: PermissionRequest) -> None:
    """Execute the command of the request when the client is authorized for it."""
    if client.guard is None:  # the client was closed by a command before this one
        return
    command = request.command
    execute = partial(HANDLERS[type(command)], client, command) if command is not None else _nothing
    client.guard.check(request.name, request.topic_name, request.channel_name, execute)


# ---- consumers


def sub(client: ClientConnection, command: Sub) -> None:
    name = command.topic_name.decode()
    channel_name = command.channel_name.decode()
    broker = client.broker
    try:
        found = broker.topics.get(name)
        if found is None or channel_name not in found.channels:
            broker.creation_rate.take(client.peer)
        topic = found or broker.get_topic(name)
        if broker.writes_journal(topic, channel_name):
            client.pause()
            gevent.spawn(_make_channel, client, topic, channel_name)
            return
        channel = broker.get_channel(topic, channel_name)
    except (OSError, Refusal) as error:
        raise _sub_failed(error) from error
    _subscribe(client, topic, channel)


def _sub_failed(error: OSError | Refusal) -> SubFailed:
    reason = error.reason if isinstance(error, Refusal) else error.strerror or error
    return SubFailed(f"SUB failed {reason}")


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
        report_bug(client.log, f"client({client.peer})", error)
        client.close("internal error")


def _subscribe(client: ClientConnection, topic: Topic, channel: Channel | OSError | Refusal) -> None:
    """Make the client a consumer of the channel. Raises SubFailed if `channel` is an error."""
    if not isinstance(channel, Channel):
        raise _sub_failed(channel) from channel
    if not channel.add_client(client):
        most = client.broker.options.max_channel_consumers
        raise SubFailed(f"SUB failed consumers for {topic.name}:{channel.name} exceeds limit of {most}")
    client.subscription.topic = topic
    client.subscription.channel = channel
    client.session.state = STATE_SUBSCRIBED
    client.send(frames.OK)


def rdy(client: ClientConnection, command: Rdy) -> None:
    if client.session.state == STATE_CLOSING:
        client.log.of_clients.info("PROTOCOL(V2): [%s] ignoring RDY after CLS", client.peer)
        return
    client.rdy = command.count
    client.maybe_ready()


def fin(client: ClientConnection, command: Fin) -> None:
    message_ids = command.message_ids
    subscription = client.subscription
    channel = subscription.channel
    assert channel is not None
    missing = channel.finish(client, message_ids)
    subscription.finish_count += len(message_ids) - len(missing)
    for message_id in missing:
        client.answer_error(
            FinFailed(f"FIN {words(message_id)} failed {_missing_reason(channel, message_id)}")
        )
    if not client.is_waiting and client.capacity() > 0:
        channel.client_ready(client)
    if len(client.in_flight):
        # A client without TCP_NODELAY sends its other FINs when the system has acknowledged this one. 0.6 us of 20 a read; 20
        # FINs are there after 1 ms, not 45.
        client.acknowledge_input()


def req(client: ClientConnection, command: Req) -> None:
    channel = client.subscription.channel
    assert channel is not None
    message_id = command.message_id
    delay_ns = command.delay_ns
    clamped_ns = max(0, min(delay_ns, client.broker.options.max_req_timeout_ns))
    if clamped_ns != delay_ns:
        client.log.of_clients.info(
            "[%s] REQ timeout %d out of range. Setting to %d", client.peer, delay_ns, clamped_ns
        )
    if not channel.requeue(client, message_id, clamped_ns):
        raise ReqFailed(f"REQ {words(message_id)} failed {_missing_reason(channel, message_id)}")
    client.subscription.requeue_count += 1
    client.maybe_ready()


def touch(client: ClientConnection, command: Touch) -> None:
    message_id = command.message_id
    channel = client.subscription.channel
    assert channel is not None
    if not channel.touch(client, message_id):
        raise TouchFailed(f"TOUCH {words(message_id)} failed {_missing_reason(channel, message_id)}")


def _missing_reason(channel: Channel, message_id: bytes) -> str:
    if channel.owns(message_id):
        return "client does not own message"
    return "ID not in flight"


def cls(client: ClientConnection, command: Cls) -> None:
    client.rdy = 0
    client.session.state = STATE_CLOSING
    client.send(frames.CLOSE_WAIT)


# ---- publishers


def publish(client: ClientConnection, command: Publish) -> None:
    """Execute one or more equal PUBs or DPUBs, or an MPUB. The answer leaves when the messages are in the log."""
    kind = command.kind
    count = command.count
    topic = client.broker.open_topics.get(command.topic_name.decode()) or _make_topic(client, kind, command)
    topic.buffer.publish(
        command.body, count, command.stride, client, client.early.ticket(kind), command.defer_ns
    )
    client.pub_counts[topic.name] += count
    client.send(frames.OK if kind == MPUB or count == 1 else frames.OK * count)


def large_mpub(client: ClientConnection, command: LargeMpub) -> None:
    topic = _make_topic(client, MPUB, command)
    topic.buffer.publish_parts(command.parts, client, client.early.ticket(MPUB))
    client.pub_counts[topic.name] += command.count
    client.send(frames.OK)


def await_mpub(client: ClientConnection, topic_name: bytes) -> None:
    """Create the topic of an MPUB whose body is incomplete or refused, as Go's nsqd does before it reads the body."""
    with contextlib.suppress(Refusal):  # the MPUB command reports it
        _get_topic(client, topic_name.decode())


def _get_topic(client: ClientConnection, name: str) -> Topic:
    """Return the topic of this name; create it if needed. Raises Refusal."""
    if name not in client.broker.topics:
        client.broker.creation_rate.take(client.peer)
    return client.broker.get_topic(name)


def _make_topic(client: ClientConnection, kind: int, command: Publish | LargeMpub) -> Topic:
    """Return the topic of a publish; create it if needed. Raises ClientError."""
    try:
        return _get_topic(client, command.topic_name.decode())
    except Refusal as error:
        name, failure = PUBLISH_ERRORS[kind]
        raise failure(f"{name} failed {error.reason}") from error


# ---- the table


def _stand_by(client: ClientConnection, command: Member) -> None:
    client.session.state = STATE_STANDBY
    client.broker.replication.member(client, command.body)


def _nothing(*_: object) -> None:
    """Do what NOP does."""


HANDLERS: dict[type, Callable[[ClientConnection, Any], None]] = {
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
