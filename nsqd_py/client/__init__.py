"""Clients of nsqd: a `Producer` publishes, a `Consumer` subscribes. They run on gevent; `blocking` has both without it.

    from nsqd_py.client import Consumer, Producer

producer       the `Producer` on gevent
publishing     what producers decide                                        pure
outlet_link    keeps a producer connected to one nsqd
consumer       the `Consumer` on gevent
consuming      what consumers decide                                        pure
message        messages, and how they are answered                          pure
blocking       both without gevent

options        the options of a client, by the names of go-nsq
addresses      addresses of nsqd                                            pure
errors         what can go wrong, with the address of the nsqd

session        the protocol on one connection                               pure
handshake      IDENTIFY, TLS, compression and AUTH                          pure
dialing        opens a connection, on any kind of socket
connection     a connection on gevent
tls            what the TLS options mean
forks          keeps a child process from using its parent's connections

discovery      which nsqds to be connected to                               pure
lookup         questions to nsqlookupd, and their answers                   pure
lookup_client  asks nsqlookupds, on gevent
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
