"""What each command of the TCP protocol does. Every error ends the connection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from nsqd_py.errors import BadChannel, BadTopic, Invalid
from nsqd_py.protocol.names import is_valid_name
from nsqd_py.runtime.logs import INFO, Log
from nsqlookupd_py.peer import Peer
from nsqlookupd_py.registry import Registry

OK = b"OK"


class Client(Protocol):
    """The connection of an nsqd; `identified` once it said who it is."""

    @property
    def identified(self) -> Peer | None: ...

    @property
    def peer(self) -> str: ...

    @property
    def log(self) -> Log: ...

    @property
    def registry(self) -> Registry: ...

    def now_ns(self) -> int: ...


def ping(client: Client, words: Sequence[str]) -> bytes:
    """Alive; also before IDENTIFY."""
    peer = client.identified
    if peer is not None:
        now_ns = client.now_ns()
        client.log.debug("CLIENT(%s): pinged (last ping %.3fs ago)", client.peer, (now_ns - peer.updated_ns) / 1e9)
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


def unregister(client: Client, words: Sequence[str]) -> bytes:
    peer = _identified(client)
    topic, channel = _names(words)
    if channel:
        if client.registry.unregister_channel(peer, topic, channel):
            client.log.of_clients.info("DB: client(%s) UNREGISTER %s", client.peer, in_words(topic, channel))
        return OK
    for registration in client.registry.unregister_topic(peer, topic):
        if registration[1]:  # nsqd unregisters channels first
            client.log.of_clients.warning("client(%s) unexpected UNREGISTER %s", client.peer, in_words(*registration))
        else:
            client.log.of_clients.info("DB: client(%s) UNREGISTER %s", client.peer, in_words(*registration))
    return OK


# IDENTIFY is not among them: it has a body.
COMMANDS: dict[str, Callable[[Client, Sequence[str]], bytes]] = {
    "PING": ping,
    "REGISTER": register,
    "UNREGISTER": unregister,
}


def in_words(topic: str, channel: str) -> str:
    """A registration as the log has it."""
    return f"category:{'channel' if channel else 'topic'} key:{topic} subkey:{channel}"


def _identified(client: Client) -> Peer:
    if client.identified is None:
        raise Invalid("client must IDENTIFY")
    return client.identified


def _names(words: Sequence[str]) -> tuple[str, str]:
    """The topic and channel of a command; the channel is empty where there is none. Raises ClientError."""
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
