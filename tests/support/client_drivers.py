"""Both kinds of `Connection` behind the same few methods, so that a test can be run on each."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Protocol

import gevent
from gevent.event import Event as Signal

from nsqd_py.client.errors import AtAddress, NsqdSaid
from nsqd_py.client.gevent.connection import Connection, Listener
from nsqd_py.client.options import ClientOptions
from nsqd_py.client.session import Negotiated
from nsqd_py.client.threads import Connection as PlainConnection
from nsqd_py.protocol.incoming import Messages, Responses
from nsqd_py.runtime.logs import Log
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

    def add_messages(self, messages: Messages) -> None:
        columns = (messages.timestamps_ns, messages.attempts, messages.ids, messages.bodies)
        self.messages += map(Message._make, zip(*columns, strict=True))

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]


class Driver(Protocol):
    heard: Heard

    def open(self) -> Negotiated: ...

    def send(self, data: bytes) -> None:
        """Returns when the socket has it, or the connection has ended."""

    def wait(self, condition: Callable[[Heard], bool], deadline_s: float = DEADLINE_S) -> None:
        """Read until it holds. Fails at the deadline."""

    def close(self) -> None: ...


class GeventDriver(Listener):
    def __init__(self, address: str, options: ClientOptions) -> None:
        self.heard = Heard()
        self.connection = Connection(address, options, self, Log())
        self._changed = Signal()

    def open(self) -> Negotiated:
        return self.connection.open()

    def send(self, data: bytes) -> None:
        self.connection.write(data)
        try:
            self.connection.drain(1)
        except AtAddress:
            self.wait(lambda heard: bool(heard.end))

    def wait(self, condition: Callable[[Heard], bool], deadline_s: float = DEADLINE_S) -> None:
        with gevent.Timeout(deadline_s, AssertionError("waited in vain")):
            while not condition(self.heard):
                self._changed.clear()
                self._changed.wait()

    def close(self) -> None:
        self.connection.close()
        self.connection.join(DEADLINE_S)

    def on_messages(self, connection: Connection, messages: Messages) -> None:
        self.heard.add_messages(messages)
        self._changed.set()

    def on_response(self, connection: Connection, data: bytes) -> None:
        self.heard.responses.append(data)
        self._changed.set()

    def on_error(self, connection: Connection, error: NsqdSaid) -> None:
        self.heard.errors.append(error)
        self._changed.set()

    def on_closed(self, connection: Connection, reason: str) -> None:
        self.heard.end = reason
        self.heard.ends += 1
        self._changed.set()


class PlainDriver:
    def __init__(self, address: str, options: ClientOptions) -> None:
        self.heard = Heard()
        self.connection = PlainConnection(address, options)

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
            assert monotonic() < ends_s, "waited in vain"
            self._receive(ends_s - monotonic())

    def _receive(self, timeout_s: float) -> None:
        try:
            events = self.connection.receive(timeout_s)
        except AtAddress as error:
            self.heard.end = error.reason
            self.heard.ends += 1
            return
        for event in events:
            if isinstance(event, Messages):
                self.heard.add_messages(event)
            elif isinstance(event, Responses):
                self.heard.responses += [event.data] * event.times
            else:
                assert isinstance(event, NsqdSaid)
                self.heard.errors.append(event)

    def close(self) -> None:
        self.connection.close()


DRIVERS: dict[str, Callable[[str, ClientOptions], GeventDriver | PlainDriver]] = {"gevent": GeventDriver, "threads": PlainDriver}
