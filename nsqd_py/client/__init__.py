"""Clients of nsqd: a `Producer` publishes, a `Consumer` subscribes.

    from nsqd_py.client import Consumer, Producer

There are three kinds, with the same names, options, errors and behaviour; these are the first:

blocking    for plain Python: threads, or greenlets where gevent has patched them
gevent      for programs on gevent: the blocking clients on greenlets
aio         for asyncio

publishing  the logic of all producers, without I/O
consuming   the logic of all consumers, without I/O
message     messages, and their answers                                 pure
options     the options of a client, by the names of go-nsq             pure
keywords    their types, for type checkers                              pure
callables   handlers that would not run, such as generator functions    pure
addresses   addresses of nsqd, and which of them are in use             pure
errors      the errors, with the address of the nsqd                    pure
session     the protocol of one connection and its handshake            pure
process     forks, the end of the interpreter, event loops, and the log
lookup      addresses and answers of nsqlookupds                        pure
tool_checks  checks of the settings that several tools share, and the options of their clients

A message meets five of them until its handler runs: the `Connection` reads and decodes it (its `ClientSession` is the
protocol without the socket), the `NsqdSubscription` puts it in flight in the `InFlightWindow` of that nsqd, as part of a
`MessageBatch`, and the `Consumer` calls the handler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
from nsqd_py.client.errors import WrongPlace as WrongPlace
from nsqd_py.client.message import AlreadyAnswered as AlreadyAnswered
from nsqd_py.client.message import Message as Message
from nsqd_py.client.message import MessageBatch as MessageBatch
from nsqd_py.client.message import Requeue as Requeue
from nsqd_py.client.options import ClientOptions as ClientOptions
from nsqd_py.client.publishing.publish import BadBody as BadBody
from nsqd_py.client.publishing.publish import FlushFailed as FlushFailed

if TYPE_CHECKING:
    from nsqd_py.client.blocking.connection import Connection as Connection
    from nsqd_py.client.blocking.consumer import Consumer as Consumer
    from nsqd_py.client.blocking.consumer import ConsumerStats as ConsumerStats
    from nsqd_py.client.blocking.producer import Producer as Producer
    from nsqd_py.client.blocking.producer import PublishFuture as PublishFuture
    from nsqd_py.client.blocking.producer import connect as connect

# A producer is imported without the code of consumers, and the other way round.
_HOMES = {
    **dict.fromkeys(("Producer", "PublishFuture", "connect"), "producer"),
    **dict.fromkeys(("Consumer", "ConsumerStats"), "consumer"),
    "Connection": "connection",
}
__all__ = [
    *(name for name in globals() if name[0].isupper() and name not in ("Any", "TYPE_CHECKING")),
    *_HOMES,
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.blocking.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
