"""nsqd's HTTP API: the table of paths, with method, handler and access rule."""

from __future__ import annotations

from functools import partial

from nsqd_py.api import handlers, log_handlers
from nsqd_py.broker.broker import Broker
from nsqd_py.net.http.debug import debug_routes, index
from nsqd_py.net.http.failures import INTERNAL_ERROR
from nsqd_py.net.http.router import Access, BodyRule, Route, Router
from nsqd_py.server.options import NsqdOptions

MESSAGE: BodyRule[Broker] = BodyRule(
    lambda broker: broker.options.max_msg_size, "MSG_TOO_BIG", INTERNAL_ERROR
)
OPTION: BodyRule[Broker] = BodyRule(
    lambda broker: broker.options.max_msg_size, "INVALID_VALUE", INTERNAL_ERROR
)
MESSAGES: BodyRule[Broker] = BodyRule(
    lambda broker: broker.options.max_body_size, "BODY_TOO_BIG", INTERNAL_ERROR
)

# A longer body of /mpub is converted in a greenlet. Lines of one byte take 0.06 ms a KiB, larger messages much less.
QUICK_BYTES = 64 * 1024

ADMINISTER = Access.ADMINISTER
BODIES = Access.BODIES
STATISTICS = Access.STATISTICS
PUBLISH = Access.PUBLISH

PUB: Route[Broker] = Route("POST", "/pub", handlers.pub, PUBLISH, MESSAGE, is_hot=True, is_logged=False)
ROUTES: tuple[Route[Broker], ...] = (
    PUB,
    Route("GET", "/ping", handlers.ping, STATISTICS, is_hot=True),
    Route("GET", "/health", handlers.health, STATISTICS, is_hot=True),
    Route("GET", "/info", handlers.info, STATISTICS),
    Route("GET", "/stats", handlers.stats, STATISTICS, is_long=True),
    Route("GET", "/metrics", handlers.metrics, STATISTICS, is_long=True),
    Route(
        "POST",
        "/mpub",
        handlers.mpub,
        PUBLISH,
        MESSAGES,
        is_hot=True,
        is_logged=False,
        quick_bytes=QUICK_BYTES,
        check_head=handlers.topic_name,
    ),
    Route("POST", "/topic/create", handlers.create_topic, ADMINISTER),
    Route("POST", "/topic/delete", handlers.delete_topic, ADMINISTER),
    Route("POST", "/topic/empty", handlers.empty_topic, ADMINISTER),
    Route("POST", "/topic/pause", partial(handlers.pause_topic, paused=True), ADMINISTER),
    Route("POST", "/topic/unpause", partial(handlers.pause_topic, paused=False), ADMINISTER),
    Route("GET", "/topic/log", log_handlers.topic_log, STATISTICS, is_long=True),
    Route("GET", "/topic/read", log_handlers.read_topic, BODIES, is_long=True),
    Route("POST", "/channel/create", log_handlers.create_channel, ADMINISTER),
    Route("POST", "/channel/delete", handlers.delete_channel, ADMINISTER),
    Route("POST", "/channel/empty", handlers.empty_channel, ADMINISTER),
    Route("POST", "/channel/seek", log_handlers.seek_channel, ADMINISTER),
    Route("POST", "/channel/pause", partial(handlers.pause_channel, paused=True), ADMINISTER),
    Route("POST", "/channel/unpause", partial(handlers.pause_channel, paused=False), ADMINISTER),
    Route("GET", "/channel/peek", log_handlers.peek, BODIES, is_long=True),
    Route("POST", "/channel/finish", log_handlers.finish_message, ADMINISTER),
    Route("POST", "/drain", handlers.drain, Access.SHUT_DOWN),
    Route("GET", "/config", handlers.get_options, STATISTICS),
    Route("POST", "/promote", handlers.promote, Access.SHUT_DOWN),
    Route("GET", "/config/:opt", handlers.get_option, STATISTICS),
    Route("PUT", "/config/:opt", handlers.put_option, ADMINISTER, OPTION),
    Route("GET", "/debug/pprof/", index, ADMINISTER),
    *debug_routes(NsqdOptions.secrets),
)
ROUTER = Router(ROUTES)
