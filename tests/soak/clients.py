"""Well-behaved clients: producers of the client library and of HTTP, a consumer for each channel, and a slow one."""

from __future__ import annotations

import contextlib
import http.client
import logging
import random
import time
from collections.abc import Iterator, Sequence

from nsqd_py.client import Consumer, Message, Producer, Requeue
from nsqd_py.client.errors import NsqClientError
from tests.soak.cluster import Cluster, SoakNsqd
from tests.soak.topics import Publish, SoakTopic
from tests.soak.workers import Workers
from tests.support.wire import MESSAGE, Client, Closed, parse_message

BATCH = 20
SOON = 20
LONGEST_DEFER_S = 20.0
REQUEUE_SHARE = 0.03
REQUEUE_S = (0.0, 0.2, 3.0)
HTTP_TIMEOUT_S = 20.0
PUBLISH_TIMEOUT_S = 20.0
RENEW_S = 15.0
SLOW_READS = 40
SLOW_READ_S = 0.05
SMALL_BUFFER_BYTES = 4096
# Messages of one round of all ways to publish.
ROUND = 1 + BATCH + SOON + 1 + BATCH
_QUIET = logging.getLogger("soak")
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False


class Producers:
    """Publish in every way, to all topics in turn, `rate` messages a second together."""

    def __init__(self, cluster: Cluster, topics: Sequence[SoakTopic], workers: Workers, rate: float) -> None:
        self._cluster = cluster
        self._topics = topics
        self._workers = workers
        self._pause_s = ROUND / rate
        self._producer = Producer(*cluster.nsqd_addresses, publish_timeout_s=PUBLISH_TIMEOUT_S, log=_QUIET)

    def start(self) -> None:
        for step in (
            self._publish,
            self._publish_several,
            self._publish_soon,
            self._publish_deferred,
            self._post,
        ):
            self._workers.repeat(step, self._pause_s)

    def stop(self) -> None:
        """Wait until everything is stored or refused; call it when the threads have ended."""
        self._producer.close()

    def _sending(self, count: int) -> Publish:
        return random.choice(self._topics).sending(count)

    @contextlib.contextmanager
    def _noted(self, publish: Publish) -> Iterator[None]:
        """Note what is acknowledged inside, or count the refusal."""
        try:
            yield
        except NsqClientError as error:
            self._refused(publish, error, type(error).__name__)
        else:
            publish.ok()

    def _refused(self, publish: Publish, error: object, kind: str) -> None:
        publish.failed(error)
        self._workers.count(f"refused: {kind}", len(publish.bodies))

    def _publish(self) -> None:
        publish = self._sending(1)
        with self._noted(publish):
            self._producer.publish(publish.topic.name, publish.bodies[0])

    def _publish_several(self) -> None:
        publish = self._sending(BATCH)
        with self._noted(publish):
            self._producer.multi_publish(publish.topic.name, publish.bodies)

    def _publish_soon(self) -> None:
        publishes = [self._sending(1) for _ in range(SOON)]
        futures = [self._producer.publish_soon(one.topic.name, one.bodies[0]) for one in publishes]
        for publish, future in zip(publishes, futures, strict=True):
            with self._noted(publish):
                future.result()

    def _publish_deferred(self) -> None:
        publish = self._sending(1)
        defer_s = round(random.uniform(0.1, LONGEST_DEFER_S), 3)
        with self._noted(publish):
            self._producer.publish(publish.topic.name, publish.bodies[0], defer_s=defer_s)

    def _post(self) -> None:
        """POST /mpub to any nsqd; one that is away, or whose disk is full, refuses it."""
        publish = self._sending(BATCH)
        nsqd = random.choice(self._cluster.nsqds)
        try:
            status = _post(nsqd, f"/mpub?topic={publish.topic.name}", b"\n".join(publish.bodies))
        except (OSError, http.client.HTTPException) as error:
            self._refused(publish, error, type(error).__name__)
            return
        if status == 200:
            publish.ok()
        else:
            self._refused(publish, status, f"HTTP {status}")


def _post(nsqd: SoakNsqd, path: str, body: bytes) -> int:
    connection = http.client.HTTPConnection(nsqd.host.address, nsqd.http_port, timeout=HTTP_TIMEOUT_S)
    with contextlib.closing(connection):
        connection.request("POST", path, body)
        response = connection.getresponse()
        response.read()
        return response.status


class Consumers:
    """One consumer for each channel, found through nsqlookupd; one of them is replaced from time to time."""

    def __init__(self, cluster: Cluster, topics: Sequence[SoakTopic], workers: Workers) -> None:
        self._cluster = cluster
        self._workers = workers
        self._running = {(topic, name): self._new(topic, name) for topic in topics for name in topic.channels}

    def start(self) -> None:
        for consumer in self._running.values():
            consumer.start()
        self._workers.repeat(self._renew)

    def _renew(self) -> None:
        """After a while, stop a consumer with messages in flight, and start another in its place."""
        if self._workers.over.wait(RENEW_S):
            return
        topic, name = random.choice(list(self._running))
        self._running[topic, name].stop()
        consumer = self._running[topic, name] = self._new(topic, name)
        consumer.start()
        self._workers.count("consumers renewed")

    def stop(self) -> None:
        for consumer in self._running.values():
            consumer.stop()

    def _new(self, topic: SoakTopic, name: str) -> Consumer:
        def handle(message: Message) -> None:
            if random.random() < REQUEUE_SHARE:
                raise Requeue(random.choice(REQUEUE_S), backoff=False)
            topic.receive(name, message.body)

        return Consumer(
            topic.name,
            name,
            handle,
            lookupd_http_addresses=self._cluster.lookupd_addresses,
            max_in_flight=200,
            max_attempts=0,
            lookupd_poll_interval=2.0,
            log=_QUIET,
        )


class SlowReader:
    """Consumes properly, one message in a while, from a small buffer: nsqd has to keep the others for it."""

    def __init__(self, cluster: Cluster, topics: Sequence[SoakTopic], workers: Workers) -> None:
        self._cluster = cluster
        self._topics = topics
        self._workers = workers

    def start(self) -> None:
        self._workers.repeat(self._read, SLOW_READ_S)

    def _read(self) -> None:
        nsqd, topic = random.choice(self._cluster.nsqds), random.choice(self._topics)
        channel = random.choice(topic.channels)
        with (
            contextlib.suppress(Closed, OSError),
            Client(nsqd.tcp_port, receive_buffer_bytes=SMALL_BUFFER_BYTES) as client,
        ):
            client.sub(topic.name, channel, rdy_count=10)
            for _ in range(SLOW_READS):
                frame = client.next_frame(2.0)
                # nsqd hung for longer than its messages may be in flight.
                if frame.data.startswith(b"E_FIN_FAILED"):
                    continue
                assert frame.kind == MESSAGE, frame
                message = parse_message(frame.data)
                topic.receive(channel, message.body)
                client.fin(message)
                time.sleep(SLOW_READ_S)
        self._workers.count("slow readers")
