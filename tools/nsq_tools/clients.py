"""The consumers of the tools. Imports gevent, so `options` does not."""

from __future__ import annotations

from typing import Any, Protocol

from nsqd_py.client.gevent import Consumer
from nsqd_py.client.tool_checks import client_options, user_agent
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.settings.types import Strings

# How long a tool waits for servers and nsqds after the signal to stop: less than the 10 s of `docker stop`.
STOP_TIMEOUT_S = 5.0


class ConsumingOptions(Protocol):
    """The settings of a tool that consumes."""

    nsqd_tcp_address: Strings
    lookupd_http_address: Strings
    channel: str
    max_in_flight: int
    consumer_opt: Strings


def make_consumer(
    options: ConsumingOptions,
    tool: str,
    topic: str,
    log: Log,
    settings: dict[str, object] | None = None,
    **arguments: Any,
) -> Consumer:
    """Return a consumer of one topic, not started yet.

    settings   changes of the client's options, which --consumer-opt overrides
    arguments  those of `Consumer`: its handler, its concurrency
    """
    # A consumer drops a message after max_attempts, so there is no limit unless --consumer-opt sets one.
    defaults = {"max_attempts": 0, "max_in_flight": options.max_in_flight, "user_agent": user_agent(tool)}
    return Consumer(
        topic,
        arguments.pop("channel", options.channel),
        nsqd_tcp_addresses=options.nsqd_tcp_address,
        lookupd_http_addresses=options.lookupd_http_address,
        options=client_options(options.consumer_opt, "consumer-opt", **defaults | (settings or {})),
        log=log,
        **arguments,
    )
