"""Clients of nsqd: a `Producer` publishes, a `Consumer` subscribes. They run on gevent; `blocking` has both without it.

    from nsqd_py.client import Consumer, Producer

producer       the `Producer` on gevent
publishing     the logic of both producers, without I/O
consumer       the `Consumer` on gevent
consuming      the logic of both consumers, without I/O
message        messages, and their answers                                  pure
blocking       both without gevent

options        the options of a client, by the names of go-nsq, and its log
addresses      addresses of nsqd                                            pure
errors         the errors, with the address of the nsqd                     pure

session        the protocol of one connection and its handshake             pure
dialing        opens a connection on any kind of socket; forks
connection     a connection on gevent
tls            applies the TLS options
links          keep a consumer or a producer connected to one nsqd, on gevent
work_queue     the messages that wait for a handler, on gevent

discovery      the nsqds to connect to                                      pure
lookup         requests to nsqlookupd, and their answers                    pure
lookup_client  sends them on gevent
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
    from nsqd_py.client.publishing.publish import BadBody as BadBody
    from nsqd_py.client.publishing.publish import FlushFailed as FlushFailed

# Names are imported when they are first used, so that the blocking client works without gevent.
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
    "publishing.publish": ("BadBody", "FlushFailed"),
}  # fmt: skip
_HOMES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
