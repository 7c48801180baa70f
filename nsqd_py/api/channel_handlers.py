"""A look into a channel."""

from __future__ import annotations

import gevent

from nsqd_py.api.handlers import named_channel
from nsqd_py.broker.broker import Broker
from nsqd_py.broker.peek import Peek
from nsqd_py.errors import HttpError
from nsqd_py.net.http import answers
from nsqd_py.net.http.answers import Reply
from nsqd_py.net.http.query import parse_int64
from nsqd_py.net.http.request import Request

_USUALLY = "10"
_MOST = 1000


def peek(request: Request[Broker]) -> Reply:
    """The next `n` messages that are queued, which stay so."""
    topic, channel = named_channel(request)
    found = Peek(topic, channel, _count(request))
    found.look(gevent.get_hub().threadpool)
    figures = {
        "topic": topic.name,
        "channel": channel.name,
        "depth": channel.depth,
        "in_flight_count": channel.in_flight_count,
        "deferred_count": channel.deferred_count,
        "messages": found.rows,
    }
    if found.unreadable_count:
        figures["unreadable_count"] = found.unreadable_count
    return answers.json(figures)


def _count(request: Request[Broker]) -> int:
    """`n` of the query. Raises HttpError."""
    try:
        count = parse_int64(request.params.get("n", _USUALLY))
    except ValueError as error:
        raise HttpError(400, "INVALID_ARG_N") from error
    if not 1 <= count <= _MOST:
        raise HttpError(400, "INVALID_ARG_N")
    return count
