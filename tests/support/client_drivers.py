"""A `Connection` on threads and on greenlets behind the same few methods, so that a test can be run on each."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from nsqd_py.client.blocking.backend import THREADS, Backend
from nsqd_py.client.blocking.connection import Connection
from nsqd_py.client.errors import AtAddress, NsqdSaid
from nsqd_py.client.gevent import Greenlets
from nsqd_py.client.options import ClientOptions
from nsqd_py.client.session import Negotiated
from nsqd_py.protocol.incoming import IncomingMessages, Responses
from tests.support.wire import Message

DEADLINE_S = 40.0


class Heard:
    """What has come on a connection. `end` is the reason for which it has ended."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.responses: list[bytes] = []
        self.errors: list[NsqdSaid] = []
        self.end = ""
        self.ends = 0

    def add_messages(self, messages: IncomingMessages) -> None:
        columns = (messages.timestamps_ns, messages.attempts, messages.ids, messages.bodies)
        self.messages += map(Message._make, zip(*columns, strict=True))

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]


class Driver:
    """A connection, and what has come on it."""

    def __init__(self, address: str, options: ClientOptions, backend: Backend = THREADS) -> None:
        self.heard = Heard()
        self.connection = Connection(address, options, backend)

    def open(self) -> Negotiated:
        return self.connection.open()

    def send(self, data: bytes) -> None:
        try:
            self.connection.send(data)
        except AtAddress:
            self.wait(lambda heard: bool(heard.end))

    def wait(self, condition: Callable[[Heard], bool], deadline_s: float = DEADLINE_S) -> None:
        ends_s = monotonic() + deadline_s
        while not condition(self.heard):
            assert monotonic() < ends_s, "waited without success"
            self._receive(0.1)  # heartbeats end no wait

    def _receive(self, timeout_s: float) -> None:
        try:
            events = self.connection.receive(timeout_s)
        except AtAddress as error:
            self.heard.end = error.reason
            self.heard.ends += 1
            return
        for event in events:
            if isinstance(event, IncomingMessages):
                self.heard.add_messages(event)
            elif isinstance(event, Responses):
                self.heard.responses += [event.data] * event.times
            else:
                self.heard.errors.append(event)

    def close(self) -> None:
        self.connection.close()


DRIVERS: dict[str, Callable[[str, ClientOptions], Driver]] = {
    "gevent": lambda address, options: Driver(address, options, Greenlets()),
    "threads": Driver,
}
