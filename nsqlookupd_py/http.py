"""nsqlookupd's HTTP API. The order of the checks is that of Go's nsqlookupd."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import orjson

from nsqd_py.errors import HttpError
from nsqd_py.net.http import answers
from nsqd_py.net.http.access import Access
from nsqd_py.net.http.answer_room import AnswerRoom
from nsqd_py.net.http.answers import Reply
from nsqd_py.net.http.connection import HttpConnection
from nsqd_py.net.http.debug import debug_routes
from nsqd_py.net.http.guard import Guard
from nsqd_py.net.http.request import Request
from nsqd_py.net.http.router import Route, Router
from nsqd_py.net.loop_iteration import Turn
from nsqd_py.protocol.names import is_valid_name
from nsqd_py.runtime.logs import Log
from nsqd_py.runtime.pace import Pace
from nsqd_py.version import NSQ_VERSION
from nsqlookupd_py.peer import NodeView, Peer
from nsqlookupd_py.registry import Registration, Registry, TopicView

# What Go's zero time is in nanoseconds: how /debug says "never".
_NEVER_TOMBSTONED = -6795364578871345152


class LookupApi:
    """What the handlers work on. `clock` gives ns."""

    def __init__(self, registry: Registry, clock: Callable[[], int], log: Log, requires_tls: bool) -> None:
        self.registry = registry
        self.clock = clock
        self.log = log
        self.requires_tls = requires_tls
        self.admin_guard: Guard | None = None
        self.clients_authorize = False
        self.answer_room = AnswerRoom()
        self.http_clients: dict[Any, None] = {}
        self._topics_json = b""
        self._topics_revision = -1

    def topics_json(self) -> bytes:
        """The answer of /topics, made anew when topics came or went."""
        registry = self.registry
        if self._topics_revision != registry.revision:
            self._topics_revision = registry.revision
            self._topics_json = orjson.dumps({"topics": registry.topics()})
        return self._topics_json


class LookupHttpConnection(HttpConnection[LookupApi]):
    """A client of nsqlookupd's HTTP API."""

    __slots__ = ()

    def __init__(self, sock: socket.socket, peer: str, loop: Any, turn: Turn, log: Log, api: LookupApi) -> None:
        super().__init__(sock, peer, loop, turn, log, api, ROUTER)

    def check_client(self) -> Reply | None:
        if self._app.requires_tls and not self.is_secure:
            return answers.failure(HttpError(403, "TLS_REQUIRED"))
        return None


# ---- looking


def ping(request: Request[LookupApi]) -> Reply:
    return answers.plain(200, "OK")


def info(request: Request[LookupApi]) -> Reply:
    return answers.json({"version": NSQ_VERSION})


def topics(request: Request[LookupApi]) -> Reply:
    return answers.encoded_json(request.app.topics_json())


def channels(request: Request[LookupApi]) -> Reply:
    topic = _argument(request, "topic")
    return answers.json({"channels": request.app.registry.channels(topic)})


def lookup(request: Request[LookupApi]) -> Reply:
    topic = _argument(request, "topic")
    api = request.app
    view = api.registry.lookup(topic, api.clock())
    if view is None:
        raise HttpError(404, "TOPIC_NOT_FOUND")
    if view.encoded is None:
        view.encoded = _encode_topic(view)
    return answers.encoded_json(view.encoded)


def _encode_topic(view: TopicView) -> bytes:
    producers = b",".join([peer.info_json for peer in view.producers])
    return b'{"channels":' + orjson.dumps(view.channels) + b',"producers":[' + producers + b"]}"


def nodes(request: Request[LookupApi]) -> Reply:
    api = request.app
    parts = [_encode_node(peer, view) for peer, view in api.registry.nodes(api.clock())]
    return answers.encoded_json(b'{"producers":[' + b",".join(parts) + b"]}")


def _encode_node(peer: Peer, view: NodeView) -> bytes:
    if view.encoded is None:
        view.encoded = orjson.dumps({**peer.info, "tombstones": view.tombstones, "topics": view.topics})
    return view.encoded


def debug(request: Request[LookupApi]) -> Reply:
    """Everything, as `category:topic:channel` to its producers. It may be long: others are served in between."""
    parts = []
    pace = Pace()
    for registration in request.app.registry.registrations():
        if registration.producers:
            parts.append(_encode_registration(registration))
        pace.rest_if_due()
    return answers.encoded_json(b"{" + b",".join(parts) + b"}")


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
    topic = _valid_argument(request, "topic")
    request.app.log.of_clients.info("DB: adding topic(%s)", topic)
    request.app.registry.add_topic(topic)
    return answers.EMPTY


def delete_topic(request: Request[LookupApi]) -> Reply:
    topic = _argument(request, "topic")
    request.app.log.of_clients.info("DB: removing topic(%s)", topic)
    for channel in request.app.registry.remove_topic(topic):
        request.app.log.of_clients.info("DB: removing channel(%s) from topic(%s)", channel, topic)
    return answers.EMPTY


def tombstone(request: Request[LookupApi]) -> Reply:
    topic = _argument(request, "topic")
    node = _argument(request, "node")
    api = request.app
    api.log.of_clients.info("DB: setting tombstone for producer@%s of topic(%s)", node, topic)
    api.registry.tombstone(topic, node, api.clock())
    return answers.EMPTY


def create_channel(request: Request[LookupApi]) -> Reply:
    topic = _valid_argument(request, "topic")
    channel = _valid_argument(request, "channel")
    request.app.log.of_clients.info("DB: adding channel(%s) in topic(%s)", channel, topic)
    request.app.registry.add_channel(topic, channel)
    return answers.EMPTY


def delete_channel(request: Request[LookupApi]) -> Reply:
    topic = _valid_argument(request, "topic")
    channel = _valid_argument(request, "channel")
    registry = request.app.registry
    if not registry.has_channel(topic, channel):
        raise HttpError(404, "CHANNEL_NOT_FOUND")
    request.app.log.of_clients.info("DB: removing channel(%s) from topic(%s)", channel, topic)
    registry.remove_channel(topic, channel)
    return answers.EMPTY


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
    Route("GET", "/lookup", lookup, FIGURES, is_hot=True, is_long=True),
    Route("GET", "/topics", topics, FIGURES, is_hot=True, is_long=True),
    Route("GET", "/channels", channels, FIGURES, is_hot=True, is_long=True),
    Route("GET", "/nodes", nodes, FIGURES, is_hot=True, is_long=True),
    Route("GET", "/debug", debug, ADMINISTER, is_long=True),
    Route("POST", "/topic/create", create_topic, ADMINISTER, is_hot=True),
    Route("POST", "/topic/delete", delete_topic, ADMINISTER, is_hot=True),
    Route("POST", "/topic/tombstone", tombstone, ADMINISTER, is_hot=True),
    Route("POST", "/channel/create", create_channel, ADMINISTER, is_hot=True),
    Route("POST", "/channel/delete", delete_channel, ADMINISTER, is_hot=True),
    *debug_routes(),
)
ROUTER = Router(ROUTES)
