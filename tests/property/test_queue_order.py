"""A channel delivers in the order in which messages were queued: what comes back goes behind what waits.

A list is the model. Several consumers take from the same queue; restarts and crashes in between change no order.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nsqd_py.broker.broker import Broker
from nsqd_py.broker.lifetime.shutdown import close as close_broker
from nsqd_py.queue.position import MOST_AHEAD, Position
from tests.support.examples import examples
from tests.unit.fakes import (
    MS,
    SECOND,
    FakeConsumer,
    Received,
    World,
    close_descriptors,
    publish,
    quick_syncs,
    start_broker,
)

WHAT = [
    "publish",
    "defer",
    "finish",
    "requeue",
    "requeue later",
    "time out",
    "discard",
    "wait",
    "restart",
    "kill",
]
STEPS = st.lists(st.tuples(st.sampled_from(WHAT), st.integers(0, 1 << 16)), min_size=5, max_size=40)


class Queue:
    """The real channel with its consumers, and a list of what is queued in it."""

    def __init__(self, directory: Path, consumers: int, rdy: int, mem_queue_size: int) -> None:
        self.world = World()
        self.directory = directory
        self.options = {"mem_queue_size": mem_queue_size, "max_bytes_per_file": 2_000}
        self.queued: list[bytes] = []
        self.deferred: dict[bytes, int] = {}
        self.in_flight: list[tuple[FakeConsumer, Received]] = []
        self.published = 0
        self.came_due: set[bytes] = set()
        self._shape = consumers, rdy
        self.broker = self._open()

    def _open(self) -> Broker:
        broker = start_broker(self.world, self.directory, **self.options)
        self.topic = broker.get_topic("t")
        self.channel = broker.get_channel(self.topic, "c")
        count, rdy = self._shape
        self.consumers = [
            FakeConsumer(self.world, rdy, 10 * SECOND).subscribe(self.channel) for _ in range(count)
        ]
        return broker

    def publish(self, count: int, due_ns: int = 0) -> None:
        bodies = [b"%d" % number for number in range(self.published, self.published + count)]
        self.published += count
        publish(self.topic, *bodies, defer_ns=due_ns - self.world.clock() if due_ns else 0)
        self.world.iteration._committers, committers = [], self.world.iteration._committers
        for committer in committers:
            committer.commit()
        if due_ns:
            self.deferred.update(dict.fromkeys(bodies, due_ns))
        else:
            self.queued += bodies

    def come_due(self) -> None:
        now_ns = self.world.clock()
        due = sorted((due_ns, int(body)) for body, due_ns in self.deferred.items() if due_ns <= now_ns)
        for _, number in due:
            del self.deferred[b"%d" % number]
            self.queued.append(b"%d" % number)
            self.came_due.add(b"%d" % number)

    def settle(self) -> None:
        """Deliver; check that it is what the list begins with."""
        self.world.run()
        taken = []
        for consumer in self.consumers:
            received = consumer.take()
            taken += [message.body for message in received]
            self.in_flight += [(consumer, message) for message in received]
        expected, self.queued = self.queued[: len(taken)], self.queued[len(taken) :]
        assert Counter(taken) == Counter(expected)
        for consumer in self.consumers:
            mine = [
                message.body
                for owner, message in self.in_flight
                if owner is consumer and message.body in expected
            ]
            assert sorted(mine, key=expected.index) == mine, (
                "one consumer's share is in the order of the queue"
            )
        assert self.channel.depth == len(self.queued)

    def step(self, what: str, number: int) -> None:
        now_ns = self.world.clock()
        if what == "publish":
            self.publish(1 + number % 5)
        elif what == "defer":
            self.publish(1 + number % 3, now_ns + (1 + number % 4) * SECOND + number)
        elif what == "wait":
            self.pass_time((1 + number % 3) * SECOND)
        elif what == "time out":
            self.time_out()
        elif what == "discard":
            self.discard(number)
        elif what in ("restart", "kill"):
            self.restart(is_killed=what == "kill")
        elif self.in_flight:
            consumer, message = self.in_flight.pop(number % len(self.in_flight))
            if what == "finish":
                consumer.finish(message)
            elif what == "requeue":
                self.queued.append(message.body)
                consumer.requeue(message)
            else:
                delay_ns = (1 + number % 4) * SECOND + number
                self.deferred[message.body] = now_ns + delay_ns
                consumer.requeue(message, delay_ns)
        self.settle()

    def discard(self, number: int) -> None:
        """Any queued message; one that is not queued stays where it is."""
        if self.queued:
            assert self.channel.discard(int(self.queued.pop(number % len(self.queued))))
        others = [int(body) for body in (*self.deferred, *(message.body for _, message in self.in_flight))]
        assert not any(self.channel.discard(seq) for seq in (*others, self.published))

    def pass_time(self, ns: int) -> None:
        """Nothing times out in the meantime."""
        for consumer, message in self.in_flight:
            self.channel.touch(consumer, message.id)
        until_ns = self.world.clock() + ns
        while (next_ns := self.world.alarms.next_due_ns) is not None and next_ns <= until_ns:
            self.world.clock.now_ns = max(self.world.clock.now_ns, next_ns)
            self.world.alarms.ring_due(self.world.clock())
            self.come_due()
            self.settle()
        self.world.clock.now_ns = until_ns

    def time_out(self) -> None:
        """What is in flight, all of it, at one time: consumer by consumer."""
        self.channel.save_changes()
        for consumer in self.consumers:
            mine = [message for owner, message in self.in_flight if owner is consumer]
            self.channel.expire(consumer.in_flight, self.world.clock() + 1_000 * SECOND)
            self.queued += sorted((message.body for message in mine), key=int)
            consumer.become_ready()
        self.in_flight.clear()

    def restart(self, *, is_killed: bool) -> None:
        """Nothing is in flight then: where it is queued after a kill depends on when it was given."""
        for consumer, message in self.in_flight:
            consumer.finish(message)
        self.in_flight.clear()
        for consumer in self.consumers:
            consumer.leave()
        self.channel.save_changes()
        # The place in the queue of what came due is written with the next snapshot only, as at a clean stop.
        if is_killed and not self.came_due & set(self.queued):
            close_descriptors(self.directory)
        else:
            close_broker(self.broker)
        self.world.alarms._heap.clear()
        self.world.iteration._deliverers.clear()
        self.broker = self._open()


@contextmanager
def a_queue(consumers: int, rdy: int, mem_queue_size: int) -> Iterator[Queue]:
    directory = Path(tempfile.mkdtemp())
    try:
        with quick_syncs():
            yield Queue(directory, consumers, rdy, mem_queue_size)
    finally:
        close_descriptors(directory)
        shutil.rmtree(directory)


@settings(deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=STEPS,
    consumers=st.integers(1, 3),
    rdy=st.sampled_from([1, 2, 7]),
    mem=st.sampled_from([0, 4, 1_000]),
)
def test_the_order_is_that_of_a_queue(
    steps: list[tuple[str, int]], consumers: int, rdy: int, mem: int
) -> None:
    with a_queue(consumers, rdy, mem) as queue:
        queue.publish(5)
        queue.settle()
        for what, number in steps:
            queue.step(what, number)


@settings(deadline=None, max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 1 << 16),
    consumers=st.integers(1, 4),
    rdy=st.sampled_from([1, 5, 20]),
    poison=st.integers(1, 30),
    restarts=st.integers(0, 3),
)
def test_poison_messages_starve_nobody(
    seed: int, consumers: int, rdy: int, poison: int, restarts: int
) -> None:
    """However they are answered, each good message comes after one round of the poison ones at most."""
    chance = random.Random(seed)
    good = 40
    with a_queue(consumers, rdy, mem_queue_size=10) as queue:
        queue.publish(poison)
        queue.publish(good)
        restart_at = {chance.randrange(1, poison + good) for _ in range(restarts)}
        deliveries, seen, rounds = 0, set(), 1  # a restart may begin another round
        while len(seen) < good:
            queue.world.run()
            for consumer in queue.consumers:
                for message in consumer.take():
                    deliveries += 1
                    if int(message.body) >= poison:
                        seen.add(message.body)
                        consumer.finish(message)
                    else:
                        consumer.requeue(message, chance.choice([0, 0, MS]))
            queue.world.pass_time(chance.choice([0, MS, 2 * MS]))
            assert deliveries <= (poison + good) * rounds + consumers * rdy, "good messages starve"
            if any(deliveries >= at for at in restart_at) and restart_at:
                restart_at = {at for at in restart_at if at > deliveries}
                queue.restart(is_killed=chance.random() < 0.5)
                rounds += 1


def test_a_message_that_comes_back_waits_for_no_more_than_the_bound() -> None:
    position = Position(0, 5 * MOST_AHEAD)
    position.take_new(1)
    position.requeue((0, 1, 1, None))
    assert [run[:2] for run in position.queued(5 * MOST_AHEAD)] == [
        (1, MOST_AHEAD + 1),
        (0, 1),
        (MOST_AHEAD + 1, 5 * MOST_AHEAD),
    ]
