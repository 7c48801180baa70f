"""nsqd's HTTP API: which path does what."""

from __future__ import annotations

from functools import partial

from nsqd_py.broker import Broker
from nsqd_py.debug.handlers import debug_routes
from nsqd_py.http import answers, channel_handlers, handlers, log_handlers
from nsqd_py.http.router import BodyRule, Route, Router

MESSAGE: BodyRule[Broker] = BodyRule(
    lambda broker: broker.options.max_msg_size, "MSG_TOO_BIG", answers.INTERNAL_ERROR
)
OPTION: BodyRule[Broker] = BodyRule(
    lambda broker: broker.options.max_msg_size, "INVALID_VALUE", answers.INTERNAL_ERROR
)
MESSAGES: BodyRule[Broker] = BodyRule(
    lambda broker: broker.options.max_body_size, "BODY_TOO_BIG", answers.INTERNAL_ERROR
)

PUB: Route[Broker] = Route("POST", "/pub", handlers.pub, MESSAGE, is_hot=True, is_logged=False)
ROUTES: tuple[Route[Broker], ...] = (
    PUB,
    Route("GET", "/ping", handlers.ping, is_hot=True),
    Route("GET", "/info", handlers.info),
    Route("GET", "/stats", handlers.stats),
    Route("GET", "/metrics", handlers.metrics),
    Route("POST", "/mpub", handlers.mpub, MESSAGES, is_hot=True, is_logged=False, check_head=handlers.topic_name),
    Route("POST", "/topic/create", handlers.create_topic, is_admin=True),
    Route("POST", "/topic/delete", handlers.delete_topic, is_admin=True),
    Route("POST", "/topic/empty", handlers.empty_topic, is_admin=True),
    Route("POST", "/topic/pause", partial(handlers.pause_topic, paused=True), is_admin=True),
    Route("POST", "/topic/unpause", partial(handlers.pause_topic, paused=False), is_admin=True),
    Route("GET", "/topic/log", log_handlers.topic_log),
    Route("GET", "/topic/read", log_handlers.read_topic),
    Route("POST", "/channel/create", log_handlers.create_channel, is_admin=True),
    Route("POST", "/channel/delete", handlers.delete_channel, is_admin=True),
    Route("POST", "/channel/empty", handlers.empty_channel, is_admin=True),
    Route("POST", "/channel/seek", log_handlers.seek_channel, is_admin=True),
    Route("POST", "/channel/pause", partial(handlers.pause_channel, paused=True), is_admin=True),
    Route("POST", "/channel/unpause", partial(handlers.pause_channel, paused=False), is_admin=True),
    Route("GET", "/channel/peek", channel_handlers.peek, is_admin=True),
    Route("POST", "/drain", handlers.drain, is_admin=True),
    Route("GET", "/config/:opt", handlers.get_option),
    Route("PUT", "/config/:opt", handlers.put_option, OPTION, is_admin=True),
    *debug_routes(),
)
ROUTER = Router(ROUTES)
