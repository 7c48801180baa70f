"""nsqlookupd's HTTP API. The checks have the order of Go's nsqlookupd."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import gevent
import orjson

from nsqd_py.errors import HttpError
from nsqd_py.net.http import answers
from nsqd_py.net.http.answers import Reply, ResponseLimiter
from nsqd_py.net.http.browsers import KnownHosts
from nsqd_py.net.http.connection import HttpConnection
from nsqd_py.net.http.debug import debug_routes, index
from nsqd_py.net.http.guard import Guard
from nsqd_py.net.http.router import Access, Request, Route, Router
from nsqd_py.net.loop_iteration import LoopIteration
from nsqd_py.protocol.names import is_valid_name
from nsqd_py.runtime.logs import Log
from nsqd_py.runtime.pacing import Pace
from nsqd_py.version import NSQ_VERSION
from nsqlookupd_py.protocol import NodeView, Peer, TopicView
from nsqlookupd_py.registry import QUICK_NAMES, STEP, Registration, Registry, Rest, TooManyNames, json_list, no_rest

# Go's zero time in ns, which /debug shows for "never".
_NEVER_TOMBSTONED = -6795364578871345152


class LookupApi:
    """The application of the handlers. `clock` returns ns."""

    def __init__(
        self, registry: Registry, clock: Callable[[], int], log: Log, known_hosts: KnownHosts, *, requires_tls: bool
    ) -> None:
        self.registry = registry
        self.clock = clock
        self.log = log
        self.requires_tls = requires_tls
        self.admin_guard: Guard | None = None
        self.clients_authorize = False
        self.known_hosts = known_hosts
        self.response_limiter = ResponseLimiter()
        self.http_clients: dict[Any, None] = {}
        self._topics: list[str] = []
        self._topics_revision = -1

    def topics(self, rest: Rest) -> list[str]:
        """Return the sorted topics. They are sorted again only after the set of topics changed."""
        registry = self.registry
        revision = registry.revision
        if self._topics_revision != revision:
            self._topics = registry.topics(rest)
            self._topics_revision = revision
        return self._topics


class LookupHttpConnection(HttpConnection[LookupApi]):
    """A client of nsqlookupd's HTTP API."""

    __slots__ = ()

    def __init__(self, sock: socket.socket, peer: str, loop: Any, iteration: LoopIteration, log: Log, api: LookupApi) -> None:
        super().__init__(sock, peer, loop, iteration, log, api, ROUTER)

    def check_client(self) -> Reply | None:
        if self._app.requires_tls and not self.is_secure:
            return answers.failure(HttpError(403, "TLS_REQUIRED"))
        return None


# ---- queries


def ping(request: Request[LookupApi]) -> Reply:
    """Return OK."""
    return answers.plain(200, "OK")


def info(request: Request[LookupApi]) -> Reply:
    """Return the version."""
    return answers.json({"version": NSQ_VERSION})


def topics(request: Request[LookupApi]) -> Reply:
    """Return the names of all topics."""
    rest = _rest()
    return answers.json_in_pieces(_encode_list("topics", request.app.topics(rest), rest))


def channels(request: Request[LookupApi]) -> Reply:
    """Return the names of a topic's channels."""
    topic = _argument(request, "topic")
    rest = _rest()
    return answers.json_in_pieces(_encode_list("channels", request.app.registry.channels(topic, rest), rest))


def lookup(request: Request[LookupApi]) -> Reply:
    """Return a topic's channels, and the nsqds that have the topic."""
    topic = _argument(request, "topic")
    api = request.app
    rest = _rest()
    view = api.registry.lookup(topic, api.clock(), rest)
    if view is None:
        raise HttpError(404, "TOPIC_NOT_FOUND")
    if len(view.channels) > QUICK_NAMES:
        return answers.json_in_pieces(_topic_pieces(view, rest))
    if view.encoded is None:
        view.encoded = b"".join(_topic_pieces(view, rest))
    return answers.encoded_json(view.encoded)


def _topic_pieces(view: TopicView, rest: Rest) -> Iterator[bytes]:
    yield b'{"channels":'
    yield from _with_rests(json_list(view.channels), rest)
    yield b',"producers":['
    for start in range(0, len(view.producers), STEP):
        yield b"," * bool(start) + b",".join([peer.info_json for peer in view.producers[start : start + STEP]])
        rest()
    yield b"]}"


def nodes(request: Request[LookupApi]) -> Reply:
    """Return all nsqds with their topics and tombstones."""
    return answers.json_in_pieces(_node_list(request.app, _rest()))


def _node_list(api: LookupApi, rest: Rest) -> Iterator[bytes]:
    before = b'{"producers":['
    for peer, view in api.registry.nodes(api.clock(), rest):
        yield before
        yield from _node_pieces(peer, view, rest)
        before = b","
    yield b"]}" if before == b"," else before + b"]}"


def _node_pieces(peer: Peer, view: NodeView, rest: Rest) -> Iterator[bytes]:
    if view.encoded is not None:
        yield view.encoded
    elif len(view.topics) <= QUICK_NAMES:
        view.encoded = orjson.dumps({**peer.info, "tombstones": view.tombstones, "topics": view.topics})
        yield view.encoded
        rest()
    else:
        yield peer.info_json[:-1] + b',"tombstones":'
        yield from _with_rests(json_list(view.tombstones), rest)
        yield b',"topics":'
        yield from _with_rests(json_list(view.topics), rest)
        yield b"}"


def debug(request: Request[LookupApi]) -> Reply:
    """Return all registrations: `category:topic:channel` and its producers. The answer is made in pieces."""
    return answers.json_in_pieces(_registration_pieces(request.app.registry, _rest()))


def _registration_pieces(registry: Registry, rest: Rest) -> Iterator[bytes]:
    before = b"{"
    for registration in registry.registrations(rest):
        if registration.producers:
            yield before
            yield _encode_registration(registration)
            before = b","
        rest()
    yield b"}" if before == b"," else b"{}"


def _encode_registration(registration: Registration) -> bytes:
    key = f"{registration.category}:{registration.topic}:{registration.channel}"
    producers = [
        {
            "id": peer.remote_address,
            **{name: value for name, value in peer.info.items() if name != "remote_address"},
            "last_update": peer.updated_ns,
            "tombstoned": bool(tombstoned_ns),
            "tombstoned_at": tombstoned_ns or _NEVER_TOMBSTONED,
        }
        for peer, tombstoned_ns in registration.producers
    ]
    return orjson.dumps(key) + b":" + orjson.dumps(producers)


# ---- administration


def create_topic(request: Request[LookupApi]) -> Reply:
    """Register a topic, which no nsqd needs to have."""
    topic = _valid_argument(request, "topic")
    request.app.log.of_clients.info("DB: adding topic(%s)", topic)
    _add(request.app.registry, topic, "")
    return answers.EMPTY


def delete_topic(request: Request[LookupApi]) -> Reply:
    """Forget a topic and its channels."""
    topic = _argument(request, "topic")
    request.app.log.of_clients.info("DB: removing topic(%s)", topic)
    rest = _rest()
    for number, channel in enumerate(request.app.registry.begin_to_remove_topic(topic), start=1):
        if number % 50 == 0:
            rest()
        request.app.log.of_clients.info("DB: removing channel(%s) from topic(%s)", channel, topic)
    return answers.EMPTY


def tombstone(request: Request[LookupApi]) -> Reply:
    """Hide one nsqd (`node`) from lookups of a topic for a while."""
    topic = _argument(request, "topic")
    node = _argument(request, "node")
    api = request.app
    api.log.of_clients.info("DB: setting tombstone for producer@%s of topic(%s)", node, topic)
    api.registry.tombstone(topic, node, api.clock())
    return answers.EMPTY


def create_channel(request: Request[LookupApi]) -> Reply:
    """Register a channel and its topic."""
    topic = _valid_argument(request, "topic")
    channel = _valid_argument(request, "channel")
    request.app.log.of_clients.info("DB: adding channel(%s) in topic(%s)", channel, topic)
    _add(request.app.registry, topic, channel)
    return answers.EMPTY


def delete_channel(request: Request[LookupApi]) -> Reply:
    """Forget a channel."""
    topic = _valid_argument(request, "topic")
    channel = _valid_argument(request, "channel")
    registry = request.app.registry
    if not registry.has_channel(topic, channel):
        raise HttpError(404, "CHANNEL_NOT_FOUND")
    request.app.log.of_clients.info("DB: removing channel(%s) from topic(%s)", channel, topic)
    registry.remove_channel(topic, channel)
    return answers.EMPTY


def _add(registry: Registry, topic: str, channel: str) -> None:
    try:
        registry.add_channel(topic, channel)
    except TooManyNames as error:
        raise HttpError(403, "TOO_MANY_TOPICS_AND_CHANNELS") from error


# ---- long answers


def _rest() -> Rest:
    """Return a function that lets other greenlets run now and then.

    In the event loop, which makes short answers, it does nothing.
    """
    return no_rest if gevent.getcurrent() is gevent.get_hub() else Pace().rest_if_due


def _encode_list(key: str, names: list[str], rest: Rest) -> Iterator[bytes]:
    yield b'{"%b":' % key.encode()
    yield from _with_rests(json_list(names), rest)
    yield b"}"


def _with_rests(pieces: Iterator[bytes], rest: Rest) -> Iterator[bytes]:
    for piece in pieces:
        yield piece
        rest()


def _has_few_topics(request: Request[LookupApi]) -> bool:
    return request.app.registry.has_few_topics()


def _has_few_channels(request: Request[LookupApi]) -> bool:
    params = request.target.params or {}
    return request.app.registry.has_few_channels(params.get("topic", ""))


def _has_few_registrations(request: Request[LookupApi]) -> bool:
    return request.app.registry.usage.registrations <= QUICK_NAMES


# ---- arguments


def _argument(request: Request[LookupApi], key: str) -> str:
    value = request.params.get(key)
    if value is None:
        raise HttpError(400, f"MISSING_ARG_{key.upper()}")
    return value


def _valid_argument(request: Request[LookupApi], key: str) -> str:
    name = _argument(request, key)
    if not is_valid_name(name.encode("utf-8", "surrogateescape")):
        raise HttpError(400, f"INVALID_ARG_{key.upper()}")
    return name


ADMINISTER, FIGURES = Access.ADMINISTER, Access.FIGURES
ROUTES: tuple[Route[LookupApi], ...] = (
    Route("GET", "/ping", ping, FIGURES, is_hot=True),
    Route("GET", "/info", info, FIGURES, is_hot=True),
    Route("GET", "/lookup", lookup, FIGURES, is_hot=True, is_quick=_has_few_channels, is_long=True),
    Route("GET", "/topics", topics, FIGURES, is_hot=True, is_quick=_has_few_topics, is_long=True),
    Route("GET", "/channels", channels, FIGURES, is_hot=True, is_quick=_has_few_channels, is_long=True),
    Route("GET", "/nodes", nodes, FIGURES, is_hot=True, is_quick=_has_few_registrations, is_long=True),
    Route("GET", "/debug", debug, ADMINISTER, is_long=True),
    Route("POST", "/topic/create", create_topic, ADMINISTER, is_hot=True),
    Route("POST", "/topic/delete", delete_topic, ADMINISTER, is_hot=True, is_quick=_has_few_channels),
    Route("POST", "/topic/tombstone", tombstone, ADMINISTER, is_hot=True),
    Route("POST", "/channel/create", create_channel, ADMINISTER, is_hot=True),
    Route("POST", "/channel/delete", delete_channel, ADMINISTER, is_hot=True),
    Route("GET", "/debug/pprof", index, ADMINISTER),  # as in Go, whose nsqd has it with a slash
    *debug_routes(),
)
ROUTER = Router(ROUTES)
