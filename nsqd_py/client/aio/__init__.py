"""The client for asyncio: the same names, options and errors, with methods to await.

    from nsqd_py.client.aio import Consumer, Producer

producer    the `Producer`
consumer    the `Consumer`, with coroutines as handlers, or `async for`

The event loop does the input and output of a producer. A consumer runs the threaded one in addition to the loop, which
gets all that came together at once: so a busy event loop loses no messages, and whatever the loop does, heartbeats are
answered.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nsqd_py.client.aio.consumer import Consumer as Consumer
    from nsqd_py.client.aio.producer import Producer as Producer
    from nsqd_py.client.aio.producer import connect as connect

_HOMES = {"Consumer": "consumer", "Producer": "producer", "connect": "producer"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
