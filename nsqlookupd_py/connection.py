"""The handlers of the TCP protocol's commands. Every error except E_REGISTER_FAILED ends the connection."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from nsqd_py.errors import BadChannel, BadTopic, ClientError, Invalid
from nsqd_py.net.limits import HANDSHAKE, TimeLimits
from nsqd_py.net.loop_iteration import LoopIteration
from nsqd_py.net.transport import Stream
from nsqd_py.protocol import MAGIC_V1
from nsqd_py.protocol.names import is_valid_name
from nsqd_py.runtime.logs.daemon_log import Log
from nsqlookupd_py.protocol import REQUIRED_FIELDS, LookupParser, Peer, identify
from nsqlookupd_py.registry import Name, Registry

OK = b"OK"
TOO_MANY_CONNECTIONS = b"E_TOO_MANY_CONNECTIONS"
COMMANDS_AT_ONCE = 4
STEPS_AT_ONCE = 200

# TCP keepalive detects a host that disappeared, with the values of Go's nsqlookupd: s, s, number of probes.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 15), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 9))


class Removal:
    """Removes registrations of a peer in steps: 10,000 channels take 20 ms."""

    is_light = False

    def __init__(self, steps: Iterator[Name | None], peer: str, log: Log) -> None:
        """`steps` yields what was removed, and None for a step that removed nothing."""
        self._steps = steps
        self._peer = peer
        self._log = log

    def work(self) -> bool:
        """Remove some registrations; return True if there are more."""
        for number, removed in enumerate(self._steps, start=1):
            if removed:
                log_change(self._log, self._peer, "UNREGISTER", removed)
            if removed is None or number == STEPS_AT_ONCE:  # a step that removes nothing has examined many
                return True
        return False


def log_change(log: Log, peer: str, verb: str, name: Name) -> None:
    """Log a change of a registration in the form of Go's log lines."""
    topic, channel = name
    category = "channel" if channel else "topic"
    # A text for each verb, because lines are limited by text: many of one hide no other.
    log.of_clients.info(f"DB: client(%s) {verb} category:%s key:%s subkey:%s", peer, category, topic, channel)


def _names(words: Sequence[str]) -> Name:
    """Return the topic and channel of a command; the channel may be empty. Raises ClientError."""
    command = words[0]
    if len(words) < 2:
        raise Invalid(f"{command} insufficient number of params")
    topic = words[1]
    channel = words[2] if len(words) > 2 else ""
    if not is_valid_name(topic.encode("utf-8", "surrogateescape")):
        raise BadTopic(f"{command} topic name '{topic}' is not valid")
    if channel and not is_valid_name(channel.encode("utf-8", "surrogateescape")):
        raise BadChannel(f"{command} channel name '{channel}' is not valid")
    return topic, channel


def frame(data: bytes) -> bytes:
    """Return the frame of a response: `[4-byte size][data]`."""
    return len(data).to_bytes(4, "big") + data


@dataclass
class Directory:
    """The objects that the connections of all nsqds share.

    requires_tls  True if commands need TLS
    introduction  the response to IDENTIFY
    connections   the open connections
    """

    registry: Registry
    clock: Callable[[], int]
    requires_tls: bool = False
    introduction: bytes = b"{}"
    connections: dict[PeerConnection, None] = field(default_factory=dict)


class PeerConnection(Stream):
    """The connection of an nsqd that registers its topics and channels. They are removed when it closes.

    identified  the nsqd; None before IDENTIFY
    """

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        loop: Any,
        iteration: LoopIteration,
        log: Log,
        directory: Directory,
    ) -> None:
        super().__init__(sock, peer, loop, iteration, log)
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _KEEPALIVE:
                sock.setsockopt(socket.IPPROTO_TCP, option, value)
        self.identified: Peer | None = None
        self._directory = directory
        self._registry = directory.registry
        self._parser = LookupParser()
        self._has_magic = False
        self._awaits_body = False
        self._has_spoken = False
        self._removal: Removal | None = (
            None  # of the last command, which is answered at the end of the removal
        )
        self._begun_s = loop.now()
        directory.connections[self] = None

    def on_data(self, data: bytes) -> None:
        self._parser.feed(data)
        if self._has_magic or self._read_magic():
            self.act()

    def act(self) -> None:
        """Handle a few of the received commands, or a part of one that takes long."""
        if self._removal is not None:
            if self._removal.work():
                self._fall_behind()
                return
            self._removal = None
            self.send(frame(OK))
        try:
            for _ in range(COMMANDS_AT_ONCE):
                response = self._next_response()
                if response is None:
                    self._catch_up()
                    return
                self._has_spoken = True
                if isinstance(response, Removal):
                    self._removal = response
                    break
                self.send(frame(response))
        except ClientError as error:
            self._fail(error)
            if error.fatal:
                return
        self._fall_behind()

    def on_end(self) -> None:
        if self._awaits_body:
            self._fail(self._parser.cut_short())
        else:
            self.close_when_sent()

    def _fail(self, error: ClientError) -> None:
        self.log.of_clients.error("[%s] - %s", self.peer, error.wire.decode("utf-8", "backslashreplace"))
        if error.fatal:
            self._end_with(error.wire)
        else:
            self._has_spoken = True
            self.send(frame(error.wire))

    def _read_magic(self) -> bool:
        """Return True if the magic has arrived and is right."""
        magic = self._parser.next_bytes(len(MAGIC_V1))
        self._has_magic = magic == MAGIC_V1
        if magic and not self._has_magic:
            self.log.of_clients.error(
                "client(%s) bad protocol magic '%s'", self.peer, magic.decode("latin-1")
            )
            self._end_with(b"E_BAD_PROTOCOL")
        return self._has_magic

    def _next_response(self) -> bytes | Removal | None:
        """Return the response to the next command; None while that is not complete. Raises ClientError."""
        if self._awaits_body:
            return self._identify()
        words = self._parser.next_line()
        if words is None:
            return None
        verb = words[0]
        if self._directory.requires_tls and not self.is_secure:
            raise Invalid(f"cannot {verb} in current state (TLS required)")
        if verb == "IDENTIFY":
            if self.identified is not None:
                raise Invalid("cannot IDENTIFY again")
            self._awaits_body = True
            return self._identify()
        command = COMMANDS.get(verb)
        if command is None:
            raise Invalid(f"invalid command {verb}")
        return command(self, words)

    def _ping(self, words: Sequence[str]) -> bytes:
        """Note that the peer is alive, or that it ends. Allowed before IDENTIFY."""
        peer = self.identified
        if peer is not None:
            peer.is_leaving = words[1:] == ["leaving"]
            now_ns = self._directory.clock()
            ago_s = (now_ns - peer.updated_ns) / 1e9
            self.log.of_clients.debug("CLIENT(%s): pinged (last ping %.3fs ago)", self.peer, ago_s)
            peer.updated_ns = now_ns
        return OK

    def _register(self, words: Sequence[str]) -> bytes:
        for name in self._registry.register(self._registered_peer(), *_names(words)):
            log_change(self.log, self.peer, "REGISTER", name)
        return OK

    def _unregister(self, words: Sequence[str]) -> bytes | Removal:
        """Unregister a channel or a topic. OK is sent at the end of a removal that takes long."""
        peer = self._registered_peer()
        topic, channel = _names(words)
        if channel:
            if self._registry.unregister_channel(peer, topic, channel):
                log_change(self.log, self.peer, "UNREGISTER", (topic, channel))
            return OK
        removal = Removal(self._registry.unregistering_topic(peer, topic), self.peer, self.log)
        return removal if removal.work() else OK

    def _registered_peer(self) -> Peer:
        if self.identified is None:
            raise Invalid("client must IDENTIFY")
        return self.identified

    def _identify(self) -> bytes | None:
        body = self._parser.next_body()
        if body is None:
            return None
        self._awaits_body = False
        peer = identify(self.peer, body, self._directory.clock())
        self.identified = peer
        self._registry.add_peer(peer)
        shown = (peer.fields[name] for name in REQUIRED_FIELDS)
        self.log.of_clients.info(
            "CLIENT(%s): IDENTIFY Address:%s TCP:%d HTTP:%d Version:%s", self.peer, *shown
        )
        return self._directory.introduction

    def overdue(self, now_s: float, limits: TimeLimits) -> str:
        """Return HANDSHAKE if magic and first command took too long. nsqlookupd sends no heartbeats."""
        waits = not self._has_spoken and not self.is_behind
        if waits and limits.handshake_s and now_s - self._begun_s >= limits.handshake_s:
            return HANDSHAKE
        return super().overdue(now_s, limits)

    def _end_with(self, data: bytes) -> None:
        self.send(frame(data))
        self.close_when_sent()

    def on_close(self, reason: str) -> None:
        self.log.of_clients.info("PROTOCOL(V1): [%s] exiting ioloop (%s)", self.peer, reason)
        self._directory.connections.pop(self, None)
        if self._removal is not None:  # it may be removing a topic that no longer has a producer
            self._iteration.backlog.add(self._removal)
        if self.identified is not None:
            removal = Removal(self._registry.removing_peer(self.identified), self.peer, self.log)
            self.identified = None
            if removal.work():
                self._iteration.backlog.add(removal)


# Without IDENTIFY, which has a body.
COMMANDS: dict[str, Callable[[PeerConnection, Sequence[str]], bytes | Removal]] = {
    "PING": PeerConnection._ping,
    "REGISTER": PeerConnection._register,
    "UNREGISTER": PeerConnection._unregister,
}
