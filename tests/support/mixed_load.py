"""Clients that do to an nsqd, all at once and until it dies, what clients do; they note it in ledgers.

Publishers (PUB, MPUB, DPUB, /pub, /mpub), a consumer for each channel (FIN, REQ at once and with a delay, TOUCH, and
some messages that are held and never answered), and somebody who pauses, empties, deletes, makes and seeks.
"""

from __future__ import annotations

import contextlib
import http.client
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from tests.support import wire
from tests.support.background import Background
from tests.support.ledger import MILLISECOND_NS, ChannelLedger, Finish, Published, Requeue, TopicLedger
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.operations import OPERATIONS, PlannedTopic, unpause
from tests.support.wire import Client, Closed, Message

RDY = 100
ASK_AFTER = 40
PUBLISH_PAUSE_S = 0.002
OPERATION_PAUSE_S = (0.005, 0.06)
DEFER_MS = (20, 400)
REQUEUE_MS = (0, 0, 50, 400)
DRAIN_DEADLINE_S = 60.0
_DEATH = (Closed, OSError, http.client.HTTPException)


class Load(Background):
    """The clients of one nsqd. While it is entered they run; they end when nsqd is dead."""

    def __init__(self, nsqd: NsqdProcess, topics: list[PlannedTopic], chance: random.Random, longest_defer_ms: int):
        consumers = [Consumer(nsqd, channel, chance) for topic in topics for channel in topic.ledger]
        publishers = [self._publish_by_tcp, self._publish_by_tcp, self._publish_by_http]
        clients: list[Callable[[], None]] = [*publishers, self._operate, *(consumer.run for consumer in consumers)]
        super().__init__(*(partial(self._until_death, client) for client in clients))
        self._nsqd = nsqd
        self._topics = topics
        self._chance = chance
        self._longest_defer_ms = longest_defer_ms

    def _until_death(self, client: Callable[[], None]) -> None:
        """Again whenever nsqd ends the connection, as it does with those of a topic that is deleted."""
        while not self.is_over.is_set():
            with contextlib.suppress(*_DEATH):
                client()
            if not self._nsqd.is_running:
                return

    # ---- publishing

    def _pick_topic(self) -> TopicLedger:
        return self._chance.choices(self._topics, [topic.share for topic in self._topics])[0].ledger

    def _defer_ms(self) -> int:
        if self._chance.random() < 0.05:
            return self._chance.randrange(*DEFER_MS[1:], self._longest_defer_ms)
        return self._chance.randrange(*DEFER_MS)

    def _publish_by_tcp(self) -> None:
        with self._nsqd.connect() as client:
            while not self.is_over.wait(PUBLISH_PAUSE_S):
                topic = self._pick_topic()
                for published in self._send(client, topic, self._chance.random()):
                    frame = client.next_frame()
                    if frame.kind == wire.ERROR:  # it is stopping, or deletes the topic at this moment
                        raise Closed
                    assert frame == wire.OK, frame
                    _answered(published)

    def _send(self, client: Client, topic: TopicLedger, choice: float) -> list[dict[bytes, Published]]:
        """One send; the messages by answer that is to come."""
        now_ns = time.time_ns()
        if choice < 0.3:
            batch = topic.publishing(self._chance.randrange(1, 40), now_ns)
            client.send(wire.mpub(topic.name, list(batch)))
            return [batch]
        if choice < 0.5:
            defer_ms = self._defer_ms()
            deferred = topic.publishing(1, now_ns, defer_ms * MILLISECOND_NS)
            client.send(wire.dpub(topic.name, defer_ms, next(iter(deferred))))
            return [deferred]
        singles = [topic.publishing(1, now_ns) for _ in range(1 if choice < 0.8 else 10)]
        client.send(*(wire.pub(topic.name, next(iter(single))) for single in singles))
        return singles

    def _publish_by_http(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._nsqd.http_port, timeout=40)
        with contextlib.closing(connection):
            while not self.is_over.wait(2 * PUBLISH_PAUSE_S):
                topic = self._pick_topic()
                count = self._chance.choice((1, 1, 8))
                defer_ms = self._defer_ms() if self._chance.random() < 0.2 else 0
                batch = topic.publishing(count, time.time_ns(), defer_ms * MILLISECOND_NS)
                path = f"/{'mpub' if count > 1 else 'pub'}?topic={topic.name}&defer={defer_ms}"
                connection.request("POST", path, b"\n".join(batch))
                answer = connection.getresponse()
                answer.read()
                if answer.status == 200:
                    _answered(batch)

    # ---- operations

    def _operate(self) -> None:
        busy = [topic for topic in self._topics if topic.operations]
        while not self.is_over.wait(self._chance.uniform(*OPERATION_PAUSE_S)):
            topic = self._chance.choice(busy)
            OPERATIONS[self._chance.choice(topic.operations)](self._nsqd, topic, self._chance)


def _answered(batch: dict[bytes, Published]) -> None:
    now_ns = time.time_ns()
    for published in batch.values():
        published.answered_ns = now_ns


@dataclass(slots=True)
class Handled:
    """What one connection did with a message: when it came last, and how many FINs were sent and not refused."""

    body: bytes
    delivered_ns: int = 0
    fins: int = 0


class Consumer:
    """Consumes one channel; finishes all when it `only_finishes`."""

    def __init__(self, nsqd: NsqdProcess, channel: ChannelLedger, chance: random.Random, *, only_finishes: bool = False) -> None:
        self._nsqd = nsqd
        self._channel = channel
        self._chance = chance
        self._only_finishes = only_finishes
        self._deliveries: dict[bytes, Handled] = {}
        self._sent: list[Finish | Requeue] = []
        self._asked: list[Finish | Requeue] | None = None

    def run(self) -> None:
        """Until nsqd ends the connection. Raises Closed and OSError."""
        self._deliveries.clear()
        self._sent, self._asked = [], None
        with self._nsqd.connect() as client:
            client.sub(self._channel.topic.name, self._channel.name, rdy_count=RDY)
            while True:
                frame = client.next_frame()
                if frame.kind == wire.MESSAGE:
                    self._take(client, wire.parse_message(frame.data))
                elif frame == wire.UNKNOWN_TOUCHED:
                    self._processed()
                else:
                    self._refused(frame)

    def _take(self, client: Client, message: Message) -> None:
        now_ns = time.time_ns()
        self._channel.delivered(message, now_ns)
        handled = self._deliveries.setdefault(message.id, Handled(message.body))
        handled.delivered_ns = now_ns
        choice = 1.0 if self._only_finishes else self._chance.random()
        if choice < 0.02:
            return  # held: it comes again when its time is over, or in the next life
        if choice < 0.10:
            delay_ms = self._chance.choice(REQUEUE_MS)
            self._sent.append(self._channel.requeue(message, now_ns + delay_ms * MILLISECOND_NS))
            client.send(wire.req(message.id, delay_ms))
        else:
            self._sent.append(self._channel.finish(message.body, now_ns))
            handled.fins += 1
            client.send(*([wire.touch(message.id)] if choice < 0.15 else []), wire.fin(message.id))
        if len(self._sent) >= ASK_AFTER and self._asked is None:
            self._sent, self._asked = [], self._sent
            client.send(wire.touch(wire.UNKNOWN_ID))

    def _processed(self) -> None:
        """All that was sent before the question."""
        now_ns = time.time_ns()
        for sent in self._asked or ():
            sent.processed_ns = now_ns
        self._asked = None

    def _refused(self, frame: wire.Frame) -> None:
        """E_FIN_FAILED, E_REQ_FAILED, E_TOUCH_FAILED: `<code> <verb> <id> failed ...`."""
        words = frame.data.split()
        assert frame.kind == wire.ERROR, frame
        if not words[0].endswith(b"_FAILED") or len(words) < 3:
            raise Closed
        if words[1] == b"TOUCH":
            return
        handled = self._deliveries[words[2]]
        if words[1] == b"FIN":
            handled.fins -= 1
        if handled.fins > 0:  # one that was sent earlier came when the message was in flight once more
            self._channel.finish(handled.body, handled.delivered_ns)
        else:
            self._channel.refused(handled.body)


def drain(nsqd: NsqdProcess, topics: list[PlannedTopic]) -> None:
    """Takes all that is there, also what is deferred, and stops nsqd."""
    unpause(nsqd, topics)
    chance = random.Random(0)
    channels = [channel for topic in topics for channel in topic.ledger]
    with ThreadPoolExecutor(len(channels)) as pool:
        consumers = [pool.submit(_consume_all, Consumer(nsqd, channel, chance, only_finishes=True), nsqd) for channel in channels]
        try:
            wait_until(lambda: all(_is_empty(nsqd, topic) for topic in topics), DRAIN_DEADLINE_S, "all to be finished")
        finally:
            status = nsqd.stop()
        for consumer in consumers:
            consumer.result(10.0)
    assert status == 0


def _consume_all(consumer: Consumer, nsqd: NsqdProcess) -> None:
    while nsqd.is_running:
        with contextlib.suppress(*_DEATH):
            consumer.run()


def _is_empty(nsqd: NsqdProcess, topic: PlannedTopic) -> bool:
    stats = nsqd.topic_stats(topic.ledger.name)
    assert stats is not None
    counts = [c[name] for c in stats["channels"] for name in ("depth", "in_flight_count", "deferred_count")]
    return not any([stats["depth"], *counts])
