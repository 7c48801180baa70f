"""The client for plain Python, which `nsqd_py.client` names: a thread does the input and output of each client.

producer      the `Producer`, which threads share
consumer      the `Consumer`, with handlers in threads, or a loop
work_queue    the messages that wait for a handler
waiters       waits that Ctrl-C cannot break
locked_batch  messages that any thread may answer
peer          one nsqd of a consumer
connection    a connection on a plain socket
lookup        asks nsqlookupds, with and without waiting
stepping      a producer without a thread, for Spark and for `producer`
aside         calls beside a thread that must not wait, and what wakes it
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nsqd_py.client.threads.connection import Connection as Connection
    from nsqd_py.client.threads.consumer import Consumer as Consumer
    from nsqd_py.client.threads.producer import Producer as Producer
    from nsqd_py.client.threads.producer import connect as connect
    from nsqd_py.client.threads.stepping import SteppingProducer as SteppingProducer

_HOMES = {
    "Connection": "connection",
    "Consumer": "consumer",
    "Producer": "producer",
    "SteppingProducer": "stepping",
    "connect": "producer",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
