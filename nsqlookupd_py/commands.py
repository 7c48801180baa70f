"""The handlers of the TCP protocol's commands. Every error except E_REGISTER_FAILED ends the connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from nsqd_py.errors import BadChannel, BadTopic, Invalid
from nsqd_py.protocol.names import is_valid_name
from nsqd_py.runtime.logs import INFO, Log
from nsqlookupd_py.peer import Peer
from nsqlookupd_py.registry import Registry

OK = b"OK"
STEPS_AT_ONCE = 200


class Client(Protocol):
    """The connection of an nsqd. `identified` is None before IDENTIFY."""

    @property
    def identified(self) -> Peer | None: ...

    @property
    def peer(self) -> str: ...

    @property
    def log(self) -> Log: ...

    @property
    def registry(self) -> Registry: ...

    def now_ns(self) -> int: ...


class Removal:
    """Removes registrations of a peer in steps: 10,000 channels take 20 ms."""

    is_light = False

    def __init__(self, steps: Iterator[tuple[str, str] | None], peer: str, log: Log) -> None:
        """`steps` yields (topic, channel or "") for what was removed, None for a step that removed nothing."""
        self._steps = steps
        self._peer = peer
        self._log = log

    def work(self) -> bool:
        """Remove some registrations; return True if there are more."""
        for number, removed in enumerate(self._steps, start=1):
            if removed:
                self._tell(*removed)
            if removed is None or number == STEPS_AT_ONCE:  # a step that removes nothing has looked at many
                return True
        return False

    def _tell(self, topic: str, channel: str) -> None:
        self._log.of_clients.info("DB: client(%s) UNREGISTER %s", self._peer, in_words(topic, channel))


class TopicRemoval(Removal):
    """Removes a topic of a peer, and warns of channels that the peer did not unregister before."""

    def _tell(self, topic: str, channel: str) -> None:
        if channel:  # nsqd unregisters channels first
            self._log.of_clients.warning("client(%s) unexpected UNREGISTER %s", self._peer, in_words(topic, channel))
        else:
            super()._tell(topic, channel)


def ping(client: Client, words: Sequence[str]) -> bytes:
    """Note that the peer is alive. Allowed before IDENTIFY."""
    peer = client.identified
    if peer is not None:
        now_ns = client.now_ns()
        ago_s = (now_ns - peer.updated_ns) / 1e9
        client.log.of_clients.debug("CLIENT(%s): pinged (last ping %.3fs ago)", client.peer, ago_s)
        client.registry.ping(peer, now_ns)
    return OK


def register(client: Client, words: Sequence[str]) -> bytes:
    peer = _identified(client)
    topic, channel = _names(words)
    added = client.registry.register(peer, topic, channel)
    if added and client.log.level <= INFO:
        for registration in added:
            client.log.of_clients.info("DB: client(%s) REGISTER %s", client.peer, in_words(*registration))
    return OK


def unregister(client: Client, words: Sequence[str]) -> bytes | Removal:
    """Unregister a channel or a topic. OK is sent at the end of a removal that takes long."""
    peer = _identified(client)
    topic, channel = _names(words)
    if channel:
        if client.registry.unregister_channel(peer, topic, channel):
            client.log.of_clients.info("DB: client(%s) UNREGISTER %s", client.peer, in_words(topic, channel))
        return OK
    removal = TopicRemoval(client.registry.begin_to_unregister(peer, topic), client.peer, client.log)
    return removal if removal.work() else OK


# Without IDENTIFY, which has a body.
COMMANDS: dict[str, Callable[[Client, Sequence[str]], bytes | Removal]] = {
    "PING": ping,
    "REGISTER": register,
    "UNREGISTER": unregister,
}


def in_words(topic: str, channel: str) -> str:
    """Return a registration in the form of Go's log lines."""
    return f"category:{'channel' if channel else 'topic'} key:{topic} subkey:{channel}"


def _identified(client: Client) -> Peer:
    if client.identified is None:
        raise Invalid("client must IDENTIFY")
    return client.identified


def _names(words: Sequence[str]) -> tuple[str, str]:
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
