"""Clients that do to an nsqd, all at once and until it dies, what clients do; they note it in a history.

Publishers (PUB, MPUB, DPUB, /pub, /mpub), a consumer for each channel (FIN, REQ at once and with a delay, TOUCH, and
some messages that are held and never answered), and somebody who pauses, empties, deletes, makes and seeks.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import random
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tests.support import wire
from tests.support.background import Background
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.operations import CHANNELS, MILLISECOND_NS, OPERATIONS, PlannedTopic, unpause
from tests.support.wire import Client, Closed, Message

RDY = 100
ASK_AFTER = 40
PUBLISH_PAUSE_S = 0.002
OPERATION_PAUSE_S = (0.005, 0.06)
DEFER_MS = (20, 400)
REQUEUE_MS = (0, 0, 50, 400)
DRAIN_DEADLINE_S = 60.0
_DEATH = (Closed, OSError, http.client.HTTPException)
_CONNECTIONS = itertools.count()


def _new_connection(kind: str) -> str:
    """Return the name of a connection in the history."""
    return f"{kind}{next(_CONNECTIONS)}"


class Load(Background):
    """The clients of one nsqd. While it is entered they run; they end when nsqd is dead."""

    def __init__(
        self, nsqd: NsqdProcess, topics: list[PlannedTopic], chance: random.Random, longest_defer_ms: int
    ):
        clients: list[Callable[[], None]] = [
            self._publish_by_tcp,
            self._publish_by_tcp,
            self._publish_by_http,
        ]
        clients += [Consumer(nsqd, topic, channel, chance).run for topic in topics for channel in CHANNELS]
        if any(topic.operations for topic in topics):
            clients.append(self._operate)
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

    def _pick_topic(self) -> PlannedTopic:
        return self._chance.choices(self._topics, [topic.share for topic in self._topics])[0]

    def _defer_ms(self) -> int:
        if self._chance.random() < 0.05:
            return self._chance.randrange(*DEFER_MS[1:], self._longest_defer_ms)
        return self._chance.randrange(*DEFER_MS)

    def _publish_by_tcp(self) -> None:
        name = _new_connection("tcp")
        with self._nsqd.connect() as client:
            while not self.is_over.wait(PUBLISH_PAUSE_S):
                topic = self._pick_topic()
                for publish in self._send(client, name, topic, self._chance.random()):
                    frame = client.next_frame()
                    if frame.kind == wire.ERROR:  # it is stopping, or deletes the topic at this moment
                        topic.history.refused(publish, frame.data.decode())
                        raise Closed
                    assert frame == wire.OK, frame
                    topic.history.ok(publish)

    def _send(self, client: Client, name: str, topic: PlannedTopic, choice: float) -> list[int]:
        """One send; the publishes in it, each of which has an answer."""
        history = topic.history
        if choice < 0.3:
            batch = topic.bodies.take(self._chance.randrange(1, 40))
            publishes = [history.sending(topic.name, batch, name)]
            command = wire.mpub(topic.name, batch)
        elif choice < 0.5:
            defer_ms = self._defer_ms()
            (body,) = topic.bodies.take(1)
            publishes = [history.sending(topic.name, [body], name, defer_ns=defer_ms * MILLISECOND_NS)]
            command = wire.dpub(topic.name, defer_ms, body)
        else:
            singles = topic.bodies.take(1 if choice < 0.8 else 10)
            publishes = [history.sending(topic.name, [body], name) for body in singles]
            command = b"".join(wire.pub(topic.name, body) for body in singles)
        client.send(command)
        return publishes

    def _publish_by_http(self) -> None:
        name = _new_connection("http")
        connection = http.client.HTTPConnection("127.0.0.1", self._nsqd.http_port, timeout=40)
        with contextlib.closing(connection):
            connection.connect()
            connection.auto_open = 0
            while not self.is_over.wait(2 * PUBLISH_PAUSE_S):
                topic = self._pick_topic()
                count = self._chance.choice((1, 1, 8))
                defer_ms = self._defer_ms() if self._chance.random() < 0.2 else 0
                batch = topic.bodies.take(count)
                publish = topic.history.sending(topic.name, batch, name, defer_ns=defer_ms * MILLISECOND_NS)
                path = f"/{'mpub' if count > 1 else 'pub'}?topic={topic.name}&defer={defer_ms}"
                connection.request("POST", path, b"\n".join(batch))
                answer = connection.getresponse()
                answer.read()
                if answer.status == 200:
                    topic.history.ok(publish)
                else:
                    topic.history.refused(publish, answer.status)

    # ---- operations

    def _operate(self) -> None:
        busy = [topic for topic in self._topics if topic.operations]
        while not self.is_over.wait(self._chance.uniform(*OPERATION_PAUSE_S)):
            topic = self._chance.choice(busy)
            OPERATIONS[self._chance.choice(topic.operations)](self._nsqd, topic, self._chance)


class Consumer:
    """Consumes one channel; finishes all when it `only_finishes`."""

    def __init__(
        self,
        nsqd: NsqdProcess,
        topic: PlannedTopic,
        channel: str,
        chance: random.Random,
        *,
        only_finishes: bool = False,
    ) -> None:
        self._nsqd = nsqd
        self._topic = topic
        self._channel = channel
        self._history = topic.history
        self._chance = chance
        self._only_finishes = only_finishes
        self._name = ""
        # The FINs and REQs that nsqd may still refuse, by verb and message.
        self._open: dict[tuple[bytes, bytes], list[int]] = defaultdict(list)
        self._sent = 0  # since the last question
        self._last = 0
        self._asked: int | None = None  # through which of them nsqd was asked

    def run(self) -> None:
        """Until nsqd ends the connection. Raises Closed and OSError."""
        self._name = _new_connection("consumer")
        self._open.clear()
        self._sent, self._asked = 0, None
        with self._nsqd.consumer(self._topic.name, self._channel, RDY) as client:
            while True:
                frame = client.next_frame()
                if frame.kind == wire.MESSAGE:
                    self._take(client, wire.parse_message(frame.data))
                elif frame == wire.UNKNOWN_TOUCHED:
                    self._processed()
                else:
                    self._refused(frame)

    def _take(self, client: Client, message: Message) -> None:
        delivery = self._history.received(self._topic.name, self._channel, message, self._name)
        choice = 1.0 if self._only_finishes else self._chance.random()
        if choice < 0.02:
            return  # held: it comes again when its time is over, or in the next life
        if choice < 0.10:
            delay_ms = self._chance.choice(REQUEUE_MS)
            self._note(b"REQ", message.id, self._history.req(delivery, delay_ms))
            client.send(wire.req(message.id, delay_ms))
        else:
            self._note(b"FIN", message.id, self._history.fin(delivery))
            client.send(*([wire.touch(message.id)] if choice < 0.15 else []), wire.fin(message.id))
        if self._sent >= ASK_AFTER and self._asked is None:
            self._sent, self._asked = 0, self._last
            client.send(wire.touch(wire.UNKNOWN_ID))

    def _note(self, verb: bytes, message_id: bytes, answer: int) -> None:
        self._open[verb, message_id].append(answer)
        self._last = answer
        self._sent += 1

    def _processed(self) -> None:
        """All that was sent before the question."""
        asked, self._asked = self._asked, None
        self._history.processed(self._name, asked)
        for key, answers in list(self._open.items()):
            self._open[key] = [answer for answer in answers if answer > asked]
            if not self._open[key]:
                del self._open[key]

    def _refused(self, frame: wire.Frame) -> None:
        """E_FIN_FAILED, E_REQ_FAILED, E_TOUCH_FAILED: `<code> <verb> <id> failed ...`.

        Where several FINs of a message are under way, one was for a delivery whose time was over, and another one came
        when the message was in flight once more: it does not matter which of them counts as refused.
        """
        words = frame.data.split()
        assert frame.kind == wire.ERROR, frame
        if not words[0].endswith(b"_FAILED") or len(words) < 3:
            raise Closed
        if words[1] != b"TOUCH":
            self._history.denied(self._open[words[1], words[2]].pop(0))


def drain(nsqd: NsqdProcess, topics: list[PlannedTopic]) -> None:
    """Takes all that is there, also what is deferred, and stops nsqd."""
    unpause(nsqd, topics)
    chance = random.Random(0)
    channels = [(topic, channel) for topic in topics for channel in CHANNELS]
    with ThreadPoolExecutor(len(channels)) as pool:
        finishing = [
            Consumer(nsqd, topic, channel, chance, only_finishes=True) for topic, channel in channels
        ]
        consumers = [pool.submit(_consume_all, consumer, nsqd) for consumer in finishing]
        try:
            wait_until(
                lambda: all(_is_empty(nsqd, topic) for topic in topics),
                DRAIN_DEADLINE_S,
                "all to be finished",
            )
            for topic, channel in channels:
                topic.history.drained(topic.name, channel)
        finally:
            status = nsqd.stop()
        for task in consumers:
            task.result(60.0)
    assert status == 0


def _consume_all(consumer: Consumer, nsqd: NsqdProcess) -> None:
    while nsqd.is_running:
        with contextlib.suppress(*_DEATH):
            consumer.run()


def _is_empty(nsqd: NsqdProcess, topic: PlannedTopic) -> bool:
    stats = nsqd.topic_stats(topic.name)
    counts = [c[name] for c in stats["channels"] for name in ("depth", "in_flight_count", "deferred_count")]
    return not any([stats["depth"], *counts])
