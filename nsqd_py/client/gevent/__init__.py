"""The client on gevent, for programs whose threads are greenlets: the tools of this project, and servers on gevent.

    from nsqd_py.client.gevent import Producer, Consumer

producer       the `Producer`, which greenlets of one thread share
consumer       the `Consumer`, with handlers in greenlets, or a loop
work_queue     the messages that wait for a handler
connection     a connection on gevent
links          keep a consumer or a producer connected to one nsqd
lookup_client  asks nsqlookupds
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nsqd_py.client.gevent.connection import Connection as Connection
    from nsqd_py.client.gevent.consumer import Consumer as Consumer
    from nsqd_py.client.gevent.producer import Producer as Producer
    from nsqd_py.client.gevent.producer import connect as connect

_HOMES = {"Connection": "connection", "Consumer": "consumer", "Producer": "producer", "connect": "producer"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
