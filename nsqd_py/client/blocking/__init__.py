"""The client without gevent, for scripts and for Spark: `Producer` and `Consumer` block their thread.

    from nsqd_py.client.blocking import Producer, Consumer

producer    the `Producer`, which threads may share
consumer    the `Consumer`; it does everything in the thread that iterates
connection  a connection on a plain socket
peer        one nsqd of a consumer
lookup      asks nsqlookupds, with and without waiting
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nsqd_py.client.blocking.connection import Connection as Connection
    from nsqd_py.client.blocking.consumer import Consumer as Consumer
    from nsqd_py.client.blocking.producer import Producer as Producer

_HOMES = {"Connection": "connection", "Consumer": "consumer", "Producer": "producer"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
