"""Clients of nsqd: a `Producer` publishes, a `Consumer` subscribes. On gevent; `nsqd_py.client.blocking` is without.

    from nsqd_py.client import Consumer, Producer

addresses, options, errors     what a user gives, and gets
session, handshake             one connection's protocol, without input and output
dialing, connection            the socket around it, on gevent; `blocking.connection` is the other one
tls                            what the options for TLS mean
producer, publishing           the `Producer`
consumer, consuming, message   the `Consumer`
lookup, lookup_client          questions to nsqlookupd
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nsqd_py.client.connection import Connection as Connection
    from nsqd_py.client.consumer import Consumer as Consumer
    from nsqd_py.client.consumer import ConsumerStats as ConsumerStats
    from nsqd_py.client.errors import AuthFailed as AuthFailed
    from nsqd_py.client.errors import BadAddress as BadAddress
    from nsqd_py.client.errors import BadClientOption as BadClientOption
    from nsqd_py.client.errors import BadName as BadName
    from nsqd_py.client.errors import ConnectionFailed as ConnectionFailed
    from nsqd_py.client.errors import ConnectionLost as ConnectionLost
    from nsqd_py.client.errors import HandshakeFailed as HandshakeFailed
    from nsqd_py.client.errors import NoNsqd as NoNsqd
    from nsqd_py.client.errors import NsqClientError as NsqClientError
    from nsqd_py.client.errors import NsqdSaid as NsqdSaid
    from nsqd_py.client.errors import PublishFailed as PublishFailed
    from nsqd_py.client.errors import TimedOut as TimedOut
    from nsqd_py.client.message import AlreadyAnswered as AlreadyAnswered
    from nsqd_py.client.message import Message as Message
    from nsqd_py.client.message import MessageBatch as MessageBatch
    from nsqd_py.client.message import Requeue as Requeue
    from nsqd_py.client.options import ClientOptions as ClientOptions
    from nsqd_py.client.producer import Producer as Producer
    from nsqd_py.client.publishing.failures import BadBody as BadBody
    from nsqd_py.client.publishing.failures import FlushFailed as FlushFailed

# Names are imported when they are used first: who blocks wants no gevent, and who publishes no Consumer.
_NAMES = {
    "connection": ("Connection",),
    "consumer": ("Consumer", "ConsumerStats"),
    "errors": (
        "AuthFailed", "BadAddress", "BadClientOption", "BadName", "ConnectionFailed", "ConnectionLost",
        "HandshakeFailed", "NoNsqd", "NsqClientError", "NsqdSaid", "PublishFailed", "TimedOut",
    ),
    "message": ("AlreadyAnswered", "Message", "MessageBatch", "Requeue"),
    "options": ("ClientOptions",),
    "producer": ("Producer",),
    "publishing.failures": ("BadBody", "FlushFailed"),
}  # fmt: skip
_HOMES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
