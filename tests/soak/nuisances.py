"""Clients that a server in production meets: they hang, send rubbish, leave without a word, and litter.

They run in a process of their own: the inputs of tests/hostile are large, and would hide what the client library uses.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import multiprocessing
import random
import socket
import time
from collections.abc import Callable, Sequence
from multiprocessing.synchronize import Event
from typing import NamedTuple

from tests.soak.workers import Workers
from tests.support.hostile_table import LOOKUPD_COMMANDS, NSQD_COMMANDS
from tests.support.nsqd_process import ServerProcess
from tests.support.wire import Client, Closed

PAUSE_S = 0.5
HANGS_S = (1.0, 15.0)
SMALL_BUFFER_BYTES = 4096
RUBBISH_BYTES = 20_000
END_S = 60.0
_HOSTILE_TOPICS = ("hostile", "hostile2")
# The last one: a frame that was not expected.
_LEFT = (Closed, OSError, http.client.HTTPException, AssertionError)


class Target(NamedTuple):
    """The ports of a process on this machine."""

    tcp_port: int
    http_port: int


def target_of(process: ServerProcess) -> Target:
    return Target(process.tcp_port, process.http_port)


class NuisanceProcess:
    """The nuisances of one cluster, in a process of their own. `counts` are there when it has been left."""

    def __init__(
        self,
        nsqds: Sequence[ServerProcess],
        lookupds: Sequence[ServerProcess],
        channels: Sequence[tuple[str, str]],
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self.workers = Workers()
        self._over = context.Event()
        self._counted = context.Queue()
        arguments = (
            [target_of(nsqd) for nsqd in nsqds],
            [target_of(lookupd) for lookupd in lookupds],
            channels,
        )
        self._process = context.Process(
            target=_run, args=(*arguments, self._over, self._counted), daemon=True
        )

    def __enter__(self) -> NuisanceProcess:
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        counts, errors = self._counted.get(timeout=2 * END_S)
        self.workers.counts.update(counts)
        self.workers.errors += errors
        self._process.join(END_S)


def _run(
    nsqds: Sequence[Target],
    lookupds: Sequence[Target],
    channels: Sequence[tuple[str, str]],
    over: Event,
    counted: multiprocessing.Queue[object],
) -> None:
    workers = Workers()
    Nuisances(nsqds, lookupds, channels, workers).start()
    over.wait()
    workers.stop()
    counted.put((workers.counts, workers.errors))


class Nuisances:
    """Each of them runs in a thread of its own, against a random process."""

    def __init__(
        self,
        nsqds: Sequence[Target],
        lookupds: Sequence[Target],
        channels: Sequence[tuple[str, str]],
        workers: Workers,
    ) -> None:
        self._nsqds = nsqds
        self._lookupds = lookupds
        self._channels = channels
        self._workers = workers
        self._litter = itertools.count()

    def start(self) -> None:
        steps: list[Callable[[], None]] = [
            self._come_and_go,
            self._hang,
            self._send_rubbish,
            self._send_hostile,
            self._litter_topics,
        ]
        for step in steps:
            self._workers.repeat(lambda step=step: self._bear(step), PAUSE_S)

    def _bear(self, step: Callable[[], None]) -> None:
        """Do it, whatever the server answers, also nothing."""
        with contextlib.suppress(*_LEFT):
            step()
        self._workers.count(step.__name__.strip("_").replace("_", " "))

    def _subscribed(self, rdy: int, buffer_bytes: int = 0) -> Client:
        topic, channel = random.choice(self._channels)
        client = Client(random.choice(self._nsqds).tcp_port, receive_buffer_bytes=buffer_bytes)
        try:
            client.identify(heartbeat_interval=1000)
            client.sub(topic, channel, rdy)
        except BaseException:
            client.close()
            raise
        return client

    def _come_and_go(self) -> None:
        """Take messages, answer none, and leave: they come again to others."""
        with self._subscribed(rdy=random.randrange(1, 50)) as client:
            client.messages(random.randrange(1, 5), deadline_s=2.0)

    def _hang(self) -> None:
        """Subscribe, and read nothing; nsqd drops it after some heartbeats."""
        with self._subscribed(rdy=20, buffer_bytes=SMALL_BUFFER_BYTES):
            self._workers.over.wait(random.uniform(*HANGS_S))

    def _send_rubbish(self) -> None:
        """Send random bytes to any port, behind the magic of the protocol or not."""
        target = random.choice([*self._nsqds, *self._lookupds])
        first = random.choice((b"", b"  V2", b"  V1", b"GET / HTTP/1.1\r\n"))
        _send(random.choice(target), first + random.randbytes(random.randrange(RUBBISH_BYTES)))

    def _send_hostile(self) -> None:
        """Send one of the inputs of tests/hostile."""
        is_nsqd = random.random() < 0.7
        target = random.choice(self._nsqds if is_nsqd else self._lookupds)
        table = NSQD_COMMANDS if is_nsqd else LOOKUPD_COMMANDS
        _, make = random.choice(table[random.choice(list(table))])
        _send(target.tcp_port, (b"  V2" if is_nsqd else b"  V1") + make())
        if is_nsqd:
            for topic in _HOSTILE_TOPICS:  # nobody consumes them
                _delete_topic(target, topic)

    def _litter_topics(self) -> None:
        """Make a topic, ephemeral or not, publish and consume in it, and delete it."""
        target = random.choice(self._nsqds)
        name = f"litter{next(self._litter)}" + random.choice(("", "#ephemeral"))
        with Client(target.tcp_port) as client:
            client.sub(name, "c" + random.choice(("", "#ephemeral")), rdy_count=10)
            with Client(target.tcp_port) as publisher:
                publisher.mpub(name, [b"x"] * 20)
            client.consume(random.randrange(20), deadline_s=5.0)
        _delete_topic(target, name)


def _delete_topic(target: Target, topic: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", target.http_port, timeout=15.0)
    with contextlib.closing(connection):
        connection.request("POST", f"/topic/delete?topic={topic.replace('#', '%23')}")
        connection.getresponse().read()


def _send(port: int, data: bytes) -> None:
    """Send bytes, read what comes for a moment, and leave."""
    with socket.create_connection(("127.0.0.1", port), timeout=5.0) as sock:
        sock.settimeout(2.0)
        with contextlib.suppress(OSError):
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
        deadline_s = time.monotonic() + 2.0
        while time.monotonic() < deadline_s and sock.recv(1 << 16):
            pass
