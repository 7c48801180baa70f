"""Clients that publish and consume until they are asked to stop, whatever happens to the nsqds, and note it in a history.

They go from one nsqd to the next, and give up a connection on which nothing has come for SILENCE_S.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from nsqd_py.client import Consumer, Message, NsqClientError, Producer
from tests.support.ledger import History
from tests.support.network import Host
from tests.support.wire import (
    HEARTBEAT,
    MESSAGE,
    NOP,
    OK,
    Client,
    Closed,
    dpub,
    fin,
    identify,
    mpub,
    parse_message,
    pub,
    req,
)
from tests.support.wire import Message as WireMessage

SILENCE_S = 3.0
_PAUSE_S = 0.1
_PACE_S = 0.03
_MOST_DEFER_MS = 5000  # an old primary always has something that becomes due
_MOST_BATCH = 20
_FINISHED, _REQUEUED = 0.96, 0.03
_TROUBLE = (OSError, Closed, AssertionError, ValueError, http.client.HTTPException)

# The library's clients, too, give up a connection after SILENCE_S.
_QUICK: Any = {"heartbeat_interval": "1s", "read_timeout": f"{SILENCE_S:.0f}s"}

Address = tuple[str, int, int]  # an nsqd's host, TCP port and HTTP port
_CONNECTIONS = itertools.count()


class Source(NamedTuple):
    """A primary: an nsqd by its address, and the epoch in which it serves."""

    nsqd: str
    epoch: int


class LedgerClient(threading.Thread):
    """One client on a host, from which all of its connections go."""

    def __init__(self, host: Host, history: History, name: str) -> None:
        super().__init__(daemon=True, name=name)
        self.is_over = threading.Event()
        self._host = host
        self._history = history
        self._chance = random.Random(name)

    def run(self) -> None:
        self._host.enter()
        self._work()

    def _work(self) -> None:
        while not self.is_over.is_set():
            for address in self._addresses():
                if self.is_over.is_set():
                    return
                try:
                    self._use(address)
                except _TROUBLE as error:
                    self._on_trouble(error)
            self.is_over.wait(_PAUSE_S)

    def _addresses(self) -> Sequence[Address]:
        raise NotImplementedError

    def _use(self, address: Address) -> None:
        raise NotImplementedError

    def _on_trouble(self, error: BaseException) -> None:
        pass

    @contextlib.contextmanager
    def _connected(self, address: Address) -> Iterator[tuple[Client, Source]]:
        host, tcp_port, http_port = address
        with Client(tcp_port, address=host, connect_deadline_s=SILENCE_S) as client:
            client.send(identify(heartbeat_interval=1000))
            client.next_frame(SILENCE_S)
            asking = http.client.HTTPConnection(host, http_port, timeout=SILENCE_S)
            try:
                yield client, _source(asking, address)
            finally:
                asking.close()


class LedgerPublisher(LedgerClient):
    """Publishes to the nsqd that takes it: PUB, MPUB, DPUB, and /pub on a connection that is kept."""

    def __init__(self, host: Host, history: History, name: str, topic: str, nsqds: Sequence[Address]) -> None:
        super().__init__(host, history, name)
        self._topic = topic
        self._nsqds = nsqds
        self._number = 0
        self._connection = ""
        self._pending: int | None = None  # the publish that waits for its answer

    def _addresses(self) -> Sequence[Address]:
        return self._nsqds

    def _on_trouble(self, error: BaseException) -> None:
        if self._pending is not None:
            self._history.unknown(self._pending, error)
            self._pending = None

    def _bodies(self, count: int) -> list[bytes]:
        self._number += count
        return [f"{self.name}-{number}".encode() for number in range(self._number - count, self._number)]

    def _use(self, address: Address) -> None:
        with self._connected(address) as (client, source):
            self._connection = f"{self.name}-{next(_CONNECTIONS)}"
            while not self.is_over.is_set():
                publish, command = self._command()
                self._pending = publish
                answer = client.ask(command, deadline_s=SILENCE_S)
                if answer != OK:
                    self._refused(publish, answer.data.decode())
                self._ok(publish, source)
                self.is_over.wait(_PACE_S)

    def _ok(self, publish: int, source: Source) -> None:
        self._history.ok(publish, source.nsqd, source.epoch)
        self._pending = None

    def _refused(self, publish: int, reason: str) -> None:
        """Note it, and give up the connection by raising ValueError."""
        self._history.refused(publish, reason)
        self._pending = None
        raise ValueError(reason)

    def _sending(self, bodies: list[bytes], defer_ms: int = 0) -> int:
        return self._history.sending(self._topic, bodies, self._connection, defer_ns=defer_ms * 1_000_000)

    def _command(self) -> tuple[int, bytes]:
        """Note a publish; return its number and its command."""
        kind = self._chance.choice(("PUB", "PUB", "MPUB", "DPUB"))
        bodies = self._bodies(self._chance.randint(2, _MOST_BATCH) if kind == "MPUB" else 1)
        if kind == "MPUB":
            return self._sending(bodies), mpub(self._topic, bodies)
        if kind == "DPUB":
            defer_ms = self._chance.randint(1, _MOST_DEFER_MS)
            return self._sending(bodies, defer_ms), dpub(self._topic, defer_ms, bodies[0])
        return self._sending(bodies), pub(self._topic, bodies[0])


class LedgerHttpPublisher(LedgerPublisher):
    """Publishes with /pub. The epoch was read on the same connection."""

    def _use(self, address: Address) -> None:
        host, _, port = address
        connection = http.client.HTTPConnection(host, port, timeout=SILENCE_S)
        try:
            source = _source(connection, address)
            connection.auto_open = 0
            self._connection = f"{self.name}-{next(_CONNECTIONS)}"
            while not self.is_over.is_set():
                (body,) = self._bodies(1)
                publish = self._pending = self._sending([body])
                connection.request("POST", f"/pub?topic={self._topic}", body)
                response = connection.getresponse()
                text = response.read()
                if response.status != 200:
                    self._refused(publish, text.decode())
                self._ok(publish, source)
                self.is_over.wait(_PACE_S)
        finally:
            connection.close()


class StayingConsumer(LedgerClient):
    """Consumes from one nsqd. It finishes most messages, requeues some, and leaves some to time out."""

    def __init__(
        self, host: Host, history: History, name: str, topic: str, channel: str, nsqd: Address | None
    ) -> None:
        super().__init__(host, history, name)
        self._topic = topic
        self._channel = channel
        self._nsqd = nsqd

    def _addresses(self) -> Sequence[Address]:
        return [self._nsqd] if self._nsqd is not None else []

    def _use(self, address: Address) -> None:
        with self._connected(address) as (client, source):
            connection = f"{self.name}-{next(_CONNECTIONS)}"
            client.sub(self._topic, self._channel, 50)
            while not self.is_over.is_set():
                frame = client.frame(SILENCE_S)
                if frame == HEARTBEAT:
                    client.send(NOP)
                elif frame.kind == MESSAGE:
                    self._handle(client, connection, parse_message(frame.data), source)

    def _handle(self, client: Client, connection: str, message: WireMessage, source: Source) -> None:
        nsqd, epoch = source
        delivery = self._history.received(
            self._topic, self._channel, message, connection, nsqd=nsqd, epoch=epoch
        )
        fate = self._chance.random()
        if fate < _FINISHED:
            self._history.fin(delivery)
            client.send(fin(message.id))
        elif fate < _FINISHED + _REQUEUED:
            delay_ms = self._chance.choice((0, 100, 3000))
            self._history.req(delivery, delay_ms)
            client.send(req(message.id, delay_ms))


class LedgerConsumer(StayingConsumer):
    """Consumes from the nsqds that nsqlookupd names, one after the other."""

    def __init__(
        self, host: Host, history: History, name: str, topic: str, channel: str, lookupd: Callable[[], str]
    ) -> None:
        super().__init__(host, history, name, topic, channel, None)
        self._lookupd = lookupd

    def _addresses(self) -> Sequence[Address]:
        try:
            connection = http.client.HTTPConnection(self._lookupd(), timeout=SILENCE_S)
            connection.request("GET", f"/lookup?topic={self._topic}")
            producers = json.loads(connection.getresponse().read()).get("producers", ())
        except _TROUBLE:
            return ()
        return [(each["broadcast_address"], each["tcp_port"], each["http_port"]) for each in producers]


class LibraryPublisher(LedgerClient):
    """The library's `Producer`: it knows both nsqds, and chooses by itself."""

    def __init__(self, host: Host, history: History, name: str, topic: str, nsqds: Sequence[Address]) -> None:
        super().__init__(host, history, name)
        self._topic = topic
        self._nsqds = [f"{address}:{port}" for address, port, _ in nsqds]

    def _work(self) -> None:
        number = 0
        with Producer(*self._nsqds, **_QUICK) as producer:
            while not self.is_over.is_set():
                body = f"{self.name}-{number}".encode()
                number += 1
                publish = self._history.sending(self._topic, [body], resends=True)
                try:
                    producer.publish(self._topic, body)
                except NsqClientError as error:
                    self._history.unknown(publish, error)
                    self.is_over.wait(_PAUSE_S)
                else:
                    self._history.ok(publish)
                    self.is_over.wait(_PACE_S)


class LibraryConsumer(LedgerClient):
    """The library's `Consumer`, in a channel that no other consumer has."""

    def __init__(
        self, host: Host, history: History, name: str, topic: str, channel: str, lookupd: Callable[[], str]
    ) -> None:
        super().__init__(host, history, name)
        self._topic = topic
        self._channel = channel
        self._lookupd = lookupd

    def _work(self) -> None:
        consumer = Consumer(
            self._topic,
            self._channel,
            self._handle,
            max_in_flight=200,
            lookupd_http_addresses=[self._lookupd()],
            lookupd_poll_interval="1s",
            max_attempts=0,
            **_QUICK,
        )
        consumer.start()
        self.is_over.wait()
        consumer.stop()

    def _handle(self, message: Message) -> None:
        self._history.delivered(self._topic, self._channel, bytes(message.body))


def _source(connection: http.client.HTTPConnection, address: Address) -> Source:
    """Return the primary that this nsqd is. Raises ValueError if it is a standby."""
    connection.request("GET", "/stats?format=json&topic=none")
    stats = json.loads(connection.getresponse().read())
    if "standbys" not in stats:
        raise ValueError("it is no primary")
    return Source(address[0], stats["standbys"]["epoch"])
