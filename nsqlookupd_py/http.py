"""nsqlookupd's HTTP API. The checks have the order of Go's nsqlookupd."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import gevent
import orjson

from nsqd_py.errors import HttpError
from nsqd_py.net.http import answers
from nsqd_py.net.http.answers import Reply
from nsqd_py.net.http.browsers import KnownHosts
from nsqd_py.net.http.connection import HttpConnection
from nsqd_py.net.http.debug import debug_routes, index
from nsqd_py.net.http.guard import Guard
from nsqd_py.net.http.limiter import ResponseLimiter
from nsqd_py.net.http.router import Access, Request, Route, Router, required
from nsqd_py.net.loop_iteration import LoopIteration
from nsqd_py.protocol.names import is_valid_name
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.pacing import WorkSlices
from nsqd_py.version import NSQ_VERSION
from nsqlookupd_py.protocol import Peer
from nsqlookupd_py.registry import STEP, Registry, TooManyNames

LookupRequest = Request["LookupApi"]

ADMINISTER = Access.ADMINISTER
STATISTICS = Access.STATISTICS

# An answer with at most this many names takes 1 ms, and is made in the event loop.
QUICK_NAMES = 2 * STEP
_REMOVED_AT_ONCE = 50  # channels
# Go's zero time in ns, which /debug shows for "never".
_NEVER_TOMBSTONED = -6795364578871345152


@dataclass(eq=False)
class LookupApi:
    """The application of the handlers. `clock` returns ns."""

    registry: Registry
    clock: Callable[[], int]
    log: Log
    known_hosts: KnownHosts
    requires_tls: bool
    admin_guard: Guard | None = None
    clients_authorize: bool = False
    response_limiter: ResponseLimiter = field(default_factory=ResponseLimiter)
    http_clients: dict[Any, None] = field(default_factory=dict)


class LookupHttpConnection(HttpConnection[LookupApi]):
    """A client of nsqlookupd's HTTP API."""

    __slots__ = ()

    def __init__(
        self, sock: socket.socket, peer: str, loop: Any, iteration: LoopIteration, log: Log, api: LookupApi
    ) -> None:
        super().__init__(sock, peer, loop, iteration, log, api, ROUTER)

    def check_client(self) -> Reply | None:
        if self._app.requires_tls and not self.is_secure:
            return answers.failure(HttpError(403, "TLS_REQUIRED"))
        return None


# ---- queries


def ping(request: LookupRequest) -> Reply:
    """Return OK."""
    return answers.plain(200, "OK")


def info(request: LookupRequest) -> Reply:
    """Return the version."""
    return answers.json({"version": NSQ_VERSION})


def topics(request: LookupRequest) -> Reply:
    """Return the names of all topics."""
    return _in_pieces(_encode_list("topics", request.app.registry.topics()))


def channels(request: LookupRequest) -> Reply:
    """Return the names of a topic's channels."""
    topic = required(request, "topic")
    return _in_pieces(_encode_list("channels", request.app.registry.channels(topic)))


def lookup(request: LookupRequest) -> Reply:
    """Return a topic's channels, and the nsqds that have the topic."""
    topic = required(request, "topic")
    api = request.app
    producers = api.registry.lookup(topic, api.clock())
    if producers is None:
        raise HttpError(404, "TOPIC_NOT_FOUND")
    return _in_pieces(_encode_lookup(api.registry.channels(topic), producers))


def _encode_lookup(channels: list[str], producers: list[Peer]) -> Iterator[bytes]:
    yield b'{"channels":'
    yield from _json_list(channels)
    yield b',"producers":'
    steps = (producers[start : start + STEP] for start in range(0, len(producers), STEP))
    yield from _joined(b",".join([peer.info_json for peer in step]) for step in steps)
    yield b"}"


def nodes(request: LookupRequest) -> Reply:
    """Return all nsqds with their topics and tombstones; `departed` are those that have ended cleanly within
    a day.
    """
    return _in_pieces(_encode_nodes(request.app))


def _encode_nodes(api: LookupApi) -> Iterator[bytes]:
    yield b'{"producers":['
    before = b""
    for peer, topics, tombstones in api.registry.nodes(api.clock()):
        yield before + peer.info_json[:-1] + b',"tombstones":'
        yield from _json_list(tombstones)
        yield b',"topics":'
        yield from _json_list(topics)
        before = b"},"
    yield b"}]" if before else b"]"
    departed = api.registry.departed(api.clock())
    if departed:
        rows = [{"broadcast_address": host, "http_port": port} for host, port in departed]
        yield b',"departed":' + orjson.dumps(rows)
    yield b"}"


def debug(request: LookupRequest) -> Reply:
    """Return all registrations: `category:topic:channel` and its producers."""
    return _in_pieces(_encode_registrations(request.app.registry))


def _encode_registrations(registry: Registry) -> Iterator[bytes]:
    encoded = (
        _encode_registration(category, topic, channel, peers)
        for category, topic, channel, peers in registry.all_registrations()
    )
    return _joined(encoded, b"{", b"}")


def _encode_registration(category: str, topic: str, channel: str, peers: list[Peer]) -> bytes:
    """Return a member of the object; empty for a name without producers."""
    if not peers:
        return b""
    producers = []
    for peer in peers:
        tombstoned_ns = None
        if category == "topic":
            tombstoned_ns = peer.tombstones.get(topic)
        producers.append(
            {
                "id": peer.remote_address,
                **peer.fields,
                "last_update": peer.updated_ns,
                "tombstoned": tombstoned_ns is not None,
                "tombstoned_at": tombstoned_ns or _NEVER_TOMBSTONED,
            }
        )
    return orjson.dumps(f"{category}:{topic}:{channel}") + b":" + orjson.dumps(producers)


# ---- administration


def create_topic(request: LookupRequest) -> Reply:
    """Register a topic, which no nsqd needs to have."""
    topic = _valid_argument(request, "topic")
    request.app.log.of_clients.info("DB: adding topic(%s)", topic)
    return _create(request.app.registry, topic)


def delete_topic(request: LookupRequest) -> Reply:
    """Forget a topic and its channels."""
    topic = required(request, "topic")
    request.app.log.of_clients.info("DB: removing topic(%s)", topic)
    pause = _pause()
    for number, channel in enumerate(request.app.registry.removing_topic(topic), start=1):
        if number % _REMOVED_AT_ONCE == 0:
            pause()
        request.app.log.of_clients.info("DB: removing channel(%s) from topic(%s)", channel, topic)
    return answers.EMPTY


def tombstone(request: LookupRequest) -> Reply:
    """Hide one nsqd (`node`) from lookups of a topic for a while."""
    topic = required(request, "topic")
    node = required(request, "node")
    api = request.app
    api.log.of_clients.info("DB: setting tombstone for producer@%s of topic(%s)", node, topic)
    api.registry.tombstone(topic, node, api.clock())
    return answers.EMPTY


def create_channel(request: LookupRequest) -> Reply:
    """Register a channel and its topic."""
    topic = _valid_argument(request, "topic")
    channel = _valid_argument(request, "channel")
    request.app.log.of_clients.info("DB: adding channel(%s) in topic(%s)", channel, topic)
    return _create(request.app.registry, topic, channel)


def delete_channel(request: LookupRequest) -> Reply:
    """Forget a channel."""
    topic = _valid_argument(request, "topic")
    channel = _valid_argument(request, "channel")
    registry = request.app.registry
    if not registry.has_channel(topic, channel):
        raise HttpError(404, "CHANNEL_NOT_FOUND")
    request.app.log.of_clients.info("DB: removing channel(%s) from topic(%s)", channel, topic)
    registry.remove_channel(topic, channel)
    return answers.EMPTY


def _create(registry: Registry, topic: str, channel: str = "") -> Reply:
    try:
        registry.create(topic, channel)
    except TooManyNames as error:
        raise HttpError(403, "TOO_MANY_TOPICS_AND_CHANNELS") from error
    return answers.EMPTY


# ---- long answers


def _pause() -> Callable[[], object]:
    """Return a function that lets other greenlets run now and then. In the event loop, it does nothing."""
    if gevent.getcurrent() is gevent.get_hub():
        return lambda: None
    return WorkSlices().sleep_if_due


def _in_pieces(pieces: Iterator[bytes]) -> Reply:
    """Return an answer that is made in steps of less than a millisecond: it may have 200,000 names."""
    pause = _pause()

    def with_pauses() -> Iterator[bytes]:
        for piece in pieces:
            yield piece
            pause()

    return answers.in_pieces(with_pauses())


def _encode_list(key: str, names: list[str]) -> Iterator[bytes]:
    yield b'{"%b":' % key.encode()
    yield from _json_list(names)
    yield b"}"


def _json_list(values: Sequence[object]) -> Iterator[bytes]:
    """Yield the JSON list of the values in pieces."""
    starts = range(0, len(values), STEP)
    return _joined(orjson.dumps(values[start : start + STEP])[1:-1] for start in starts)


def _joined(parts: Iterable[bytes], begin: bytes = b"[", end: bytes = b"]") -> Iterator[bytes]:
    """Yield a JSON list or object of encoded parts; an empty one only takes time."""
    before = begin
    for part in parts:
        if part:
            yield before + part
            before = b","
        else:
            yield b""
    yield end if before == b"," else begin + end


def _is_quick(request: LookupRequest) -> bool:
    """True if the answer has so few names that the event loop may make it."""
    registry = request.app.registry
    topic = (request.target.params or {}).get("topic")
    if topic is None:
        names = registry.registrations + registry.names
    else:
        names = len(registry.channels(topic))
    return names <= QUICK_NAMES


# ---- arguments


def _valid_argument(request: LookupRequest, key: str) -> str:
    name = required(request, key)
    if not is_valid_name(name.encode("utf-8", "surrogateescape")):
        raise HttpError(400, f"INVALID_ARG_{key.upper()}")
    return name


ROUTES: tuple[Route[LookupApi], ...] = (
    Route("GET", "/ping", ping, STATISTICS, is_hot=True),
    Route("GET", "/info", info, STATISTICS, is_hot=True),
    Route("GET", "/lookup", lookup, STATISTICS, is_hot=True, is_quick=_is_quick, is_long=True),
    Route("GET", "/topics", topics, STATISTICS, is_hot=True, is_quick=_is_quick, is_long=True),
    Route("GET", "/channels", channels, STATISTICS, is_hot=True, is_quick=_is_quick, is_long=True),
    Route("GET", "/nodes", nodes, STATISTICS, is_hot=True, is_quick=_is_quick, is_long=True),
    Route("GET", "/debug", debug, ADMINISTER, is_long=True),
    Route("POST", "/topic/create", create_topic, ADMINISTER, is_hot=True),
    Route("POST", "/topic/delete", delete_topic, ADMINISTER, is_hot=True, is_quick=_is_quick),
    Route("POST", "/topic/tombstone", tombstone, ADMINISTER, is_hot=True),
    Route("POST", "/channel/create", create_channel, ADMINISTER, is_hot=True),
    Route("POST", "/channel/delete", delete_channel, ADMINISTER, is_hot=True),
    Route("GET", "/debug/pprof", index, ADMINISTER),  # as in Go, whose nsqd has it with a slash
    *debug_routes(),
)
ROUTER = Router(ROUTES)
