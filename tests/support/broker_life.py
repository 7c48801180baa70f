"""A broker in a test's own process, and clients that note what they were promised."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent

from nsqd_py.broker.broker import Broker
from nsqd_py.protocol.batch import uniform_stride
from tests.support.ledger import History
from tests.unit.fakes import (
    SECOND,
    FakeConsumer,
    FakePublisher,
    Received,
    World,
    close_descriptors,
    sized,
    start_broker,
)

TOPIC = "orders"
CHANNELS = ("fast", "slow")


class NotingPublisher(FakePublisher):
    """Tells when a publish was acknowledged: nobody holds its answer any more, and it did not fail."""

    def __init__(self, on_ok: Callable[[], None]) -> None:
        super().__init__()
        self._on_ok = on_ok

    def release(self) -> None:
        super().release()
        self.look()

    def look(self) -> None:
        if not self.holds and not self.failures:
            self._on_ok()


class Life:
    """One life of a broker on a directory, with a topic, two channels and a consumer of each."""

    def __init__(self, directory: Path, mark: Callable[..., None], **options: Any) -> None:
        self.directory = directory
        self.world = World()
        self.broker: Broker = start_broker(self.world, directory, **options)
        self.mark = mark

    def settle(self, rounds: int = 4) -> None:
        """Let greenlets and the iteration do what there is to do."""
        for _ in range(rounds):
            self.world.run()
            gevent.sleep(0)

    def pass_time(self, ns: int) -> None:
        self.world.pass_time(ns)
        self.settle()

    def create(self) -> None:
        topic = self.broker.get_topic(TOPIC)
        for name in CHANNELS:
            self.broker.get_channel(topic, name)
        self.broker.metadata.persist()
        self.mark("created")

    def publish(self, *messages: bytes, defer_ns: int = 0) -> NotingPublisher:
        """Marks ("acknowledged", *messages) when it is."""
        publisher = NotingPublisher(lambda: self.mark("acknowledged", *messages))
        self.mark("published", *messages)
        body = sized(*messages)
        self.broker.get_topic(TOPIC).buffer.publish(
            body, len(messages), uniform_stride(body, len(messages)), publisher, 0, defer_ns
        )
        self.world.run()
        if self.broker.sync.every > 1:  # else it is notified when it is let go
            publisher.look()
        return publisher

    def consumer(self, channel: str, rdy: int) -> FakeConsumer:
        topic = self.broker.get_topic(TOPIC)
        return FakeConsumer(self.world, rdy=rdy, msg_timeout_ns=1_000_000 * SECOND).subscribe(
            self.broker.get_channel(topic, channel)
        )

    def finish(self, channel: str, consumer: FakeConsumer, *received: Received) -> None:
        self.mark("finished", channel, *(message.body for message in received))
        consumer.finish(*received)

    def drain(self, channel: str) -> list[bytes]:
        """All that the channel has, also what is deferred, finished."""
        return [message.body for message in self._drain(channel)]

    def drain_into(self, history: History, channel: str) -> list[bytes]:
        """Note all that the channel has, also what is deferred, and that it is finished. Return the bodies."""
        messages = self._drain(channel)
        for message in messages:
            history.fin(history.received(TOPIC, channel, message, "drain"))
        history.drained(TOPIC, channel)
        return [message.body for message in messages]

    def _drain(self, channel: str) -> list[Received]:
        consumer = self.consumer(channel, rdy=1 << 30)
        messages = []
        for pause_ns in (0, 7200 * SECOND):
            self.pass_time(pause_ns)
            received = consumer.take()
            consumer.finish(*received)
            messages += received
        return messages

    def end(self) -> None:
        """As when the process is killed."""
        close_descriptors(self.directory)


def work(life: Life, chance: random.Random, steps: int) -> None:
    """Something of everything: publishing, also deferred, consuming, requeueing, emptying, time that passes."""
    consumers = {name: life.consumer(name, rdy=chance.choice((1, 20))) for name in CHANNELS}
    number = 0
    for _ in range(steps):
        choice = chance.random()
        if choice < 0.5:
            count = chance.choice((1, 1, 3, 20))
            bodies = [b"%05d" % (number + i) + b"x" * chance.choice((0, 40, 700)) for i in range(count)]
            number += count
            life.publish(*bodies, defer_ns=3600 * SECOND if choice < 0.05 else 0)
        elif choice < 0.8:
            name = chance.choice(CHANNELS)
            received = consumers[name].take()
            kept = [message for message in received if chance.random() < 0.1]
            life.finish(name, consumers[name], *(message for message in received if message not in kept))
            for message in kept:
                consumers[name].requeue(message, chance.choice((0, SECOND)))
        elif choice < 0.82:
            name = chance.choice(CHANNELS)
            life.mark("emptied", name)
            topic = life.broker.get_topic(TOPIC)
            with contextlib.suppress(OSError):  # a disk that fails
                life.broker.empty_channel(topic, topic.channels[name])
        else:
            life.pass_time(chance.choice((SECOND // 10, SECOND, 3 * SECOND)))
        life.settle()
