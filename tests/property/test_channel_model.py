"""A real topic with its channels, log and journals, against a plain model, through any sequence of events.

At any moment each accepted message is, for each channel, in exactly one of queued, in flight, deferred, finished;
also across restarts and crashes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from nsqd_py.batch import uniform_stride
from nsqd_py.queue.channel import Channel
from nsqd_py.queue.topic import Topic
from nsqd_py.settings.types import ByTopic
from tests.property.model import DEFERRED, FINISHED, IN_FLIGHT, QUEUED, ModelChannel, ModelTopic, observe
from tests.property.real import ModelConsumer, broken_reads, broken_writes
from tests.support.examples import examples
from tests.unit.fakes import MS, SECOND, FakePublisher, World, close_descriptors, sized, start_broker

NAME = "orders"
DEAD = "orders.dead"
MAX_MSG_TIMEOUT_NS = 8 * SECOND
CHANNELS = ("a", "b", "c")

index = st.integers(0, 1 << 16)
sizes = st.lists(st.sampled_from([1, 1, 1, 20, 60]), min_size=1, max_size=6)
delays = st.sampled_from([0, 0, SECOND, 3 * SECOND, 20 * SECOND])


class TopicMachine(RuleBasedStateMachine):
    """The real one is reached through a broker."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.world = World()
        self.model = ModelTopic()
        self.consumers: list[ModelConsumer] = []
        self.ids: dict[int, bytes] = {}
        self.options: dict[str, Any] = {}
        self.is_reading_broken = False
        self._patches = [mock.patch.object(os, "fsync", lambda fd: None)]
        for patch in self._patches:
            patch.start()

    @initialize(
        mem_queue_size=st.sampled_from([0, 3, 100]),
        mem_queue_bytes=st.sampled_from([1 << 28, 0, 1_000, 3_000]),
        max_bytes_per_file=st.sampled_from([200, 600, 5_000]),
        rdys=st.lists(st.sampled_from([1, 5, 50]), max_size=3),
        max_attempts=st.sampled_from([0, 0, 1, 2]),
        ttl_ns=st.sampled_from([0, 0, 4 * SECOND, 15 * SECOND]),
    )
    def start(
        self, mem_queue_size: int, mem_queue_bytes: int, max_bytes_per_file: int, rdys: list[int], max_attempts: int,
        ttl_ns: int,
    ) -> None:  # fmt: skip
        self.options = {
            "mem_queue_size": mem_queue_size,
            "mem_queue_bytes": mem_queue_bytes,
            "max_bytes_per_file": max_bytes_per_file,
            "max_msg_timeout_ns": MAX_MSG_TIMEOUT_NS,
            "max_attempts": ByTopic(max_attempts),
            "message_ttl_ns": ByTopic(0, ((NAME, ttl_ns),)),
        }
        self.model.rules.max_attempts, self.model.rules.ttl_ns = max_attempts, ttl_ns
        self.broker = start_broker(self.world, self.directory, **self.options)
        self.broker.get_topic(NAME)
        for number, rdy in enumerate(rdys):
            self.add_channel(CHANNELS[number % 2])
            self.subscribe(number, rdy, 2 * SECOND, 1 << 40)

    def teardown(self) -> None:
        for patch in self._patches:
            patch.stop()
        close_descriptors(self.directory)
        shutil.rmtree(self.directory)

    # ---- ways to say it

    @property
    def topic(self) -> Topic:
        return self.broker.topics[NAME]

    def channel(self, name: str) -> Channel:
        return self.topic.channels[name]

    def seq_of(self, body: bytes) -> int:
        seq = int(body.split(b".")[0])
        assert self.model.bodies[seq] == body
        return seq

    def pick_channel(self, number: int) -> str:
        names = sorted(self.model.channels)
        return names[number % len(names)]

    def pick_consumer(self, number: int) -> ModelConsumer:
        return self.consumers[number % len(self.consumers)]

    def pick_in_flight(self, number: int) -> tuple[ModelConsumer, ModelChannel, list[int]]:
        """A consumer, its channel in the model, and what it has in flight, which may be nothing."""
        consumer = self.pick_consumer(number)
        model = self.model.channels[consumer.name]
        return consumer, model, model.in_flight_of(consumer)

    def settle(self) -> None:
        """End the iteration, ring what is due by now."""
        self.world.run()
        self.world.pass_time(0)
        now_ns = self.world.clock()
        if self.topic.is_held:
            self.model.forget_too_old(self.topic.released, now_ns)
        for name, model in self.model.channels.items():
            model.advance(now_ns)
            model.forget_too_old(observe(self.channel(name)), now_ns)
            if not self.channel(name).is_dirty:
                model.keep()

    has_consumers = precondition(lambda self: self.consumers)

    # ---- publishing

    def bodies(self, lengths: list[int]) -> list[bytes]:
        first = len(self.model.bodies)
        return [b"%d." % (first + i) + b"x" * length for i, length in enumerate(lengths)]

    def publish(self, lengths: list[int], delay_ns: int, bodies: list[bytes]) -> FakePublisher:
        publisher = FakePublisher()
        body = sized(*bodies)
        self.topic.publish(body, len(bodies), uniform_stride(body, len(bodies)), publisher, 0, delay_ns)
        return publisher

    @rule(parts=st.lists(st.tuples(sizes, delays), min_size=1, max_size=4))
    def publish_several(self, parts: list[tuple[list[int], int]]) -> None:
        """In one iteration."""
        for lengths, delay_ns in parts:
            bodies = self.bodies(lengths)
            publisher = self.publish(lengths, delay_ns, bodies)
            # They count as published from now on: the iteration delivers them as soon as it has written them.
            now_ns = self.world.clock()
            self.model.publish(bodies, now_ns + delay_ns if delay_ns else 0, now_ns)
            assert publisher.failures == []
        self.settle()

    @rule(length=st.sampled_from([1, 20, 60]))
    def publish_lone(self, length: int) -> None:
        (body,) = self.bodies([length])
        self.publish([length], 0, [body])
        self.model.publish([body], 0, self.world.clock())
        self.settle()

    @rule(lengths=sizes, delay_ns=delays, keep=st.sampled_from([None, 0, 10, 70, 130]))
    def publish_to_a_full_disk(self, lengths: list[int], delay_ns: int, keep: int | None) -> None:
        with broken_writes(keep):
            publisher = self.publish(lengths, delay_ns, self.bodies(lengths))
            self.world.run()
        assert len(publisher.failures) == 1
        assert self.broker.health() is not None
        self.settle()

    # ---- channels

    @rule(
        what=st.sampled_from(["pause", "unpause", "pause topic", "unpause topic", "empty", "delete", "tidy", "leave"]),
        number=index,
    )
    def administer(self, what: str, number: int) -> None:
        if what.endswith("topic"):
            self.pause_topic(what == "pause topic")
        elif what == "tidy":
            self.clean_up()
        elif what == "leave" and self.consumers:
            self.leave(self.pick_consumer(number))
        elif self.model.channels:
            self.administer_channel(what, self.pick_channel(number))
        self.settle()

    def administer_channel(self, what: str, name: str) -> None:
        channel, model = self.channel(name), self.model.channels[name]
        if what == "empty":
            self.broker.empty_channel(self.topic, channel)
            model.empty()
        elif what == "delete":
            for consumer in [consumer for consumer in self.consumers if consumer.name == name]:
                self.leave(consumer)
            self.broker.delete_channel(self.topic, name)
            del self.model.channels[name]
        else:
            self.broker.pause_channel(self.topic, channel, what == "pause")
            model.is_paused = what == "pause"

    def pause_topic(self, paused: bool) -> None:
        self.broker.pause_topic(self.topic, paused)
        self.model.is_paused = paused
        self.model.release()

    @precondition(lambda self: self.model.held)
    @rule()
    def empty_topic(self) -> None:
        self.broker.empty_topic(self.topic)
        self.model.drop_held(len(self.model.held))
        self.settle()

    @precondition(lambda self: len(self.model.channels) < len(CHANNELS))
    @rule(name=st.sampled_from(CHANNELS))
    def add_channel(self, name: str) -> None:
        self.broker.get_channel(self.topic, name)
        if name not in self.model.channels:
            self.model.add_channel(name)
            self.model.channels[name].keep()
        self.settle()

    # ---- consumers

    @precondition(lambda self: self.model.channels and len(self.consumers) < 4)
    @rule(
        number=index,
        rdy=st.sampled_from([0, 1, 2, 5, 50]),
        timeout_ns=st.sampled_from([2 * SECOND, 5 * SECOND]),
        room=st.sampled_from([60, 300, 1 << 40]),
    )
    def subscribe(self, number: int, rdy: int, timeout_ns: int, room: int) -> None:
        self.connect(self.pick_channel(number), rdy, timeout_ns, room)
        self.settle()

    def connect(self, name: str, rdy: int, timeout_ns: int, room: int) -> None:
        consumer = ModelConsumer(self, name, rdy, timeout_ns, room)
        self.consumers.append(consumer)
        consumer.subscribe(self.channel(name))

    def leave(self, consumer: ModelConsumer) -> None:
        self.consumers.remove(consumer)
        channel, consumer.channel = consumer.channel, None
        assert channel is not None
        self.broker.client_left(self.topic, channel, consumer)
        # Its messages stay in flight, and are nobody's to finish.

    @has_consumers
    @rule(number=index, rdy=st.sampled_from([0, 1, 2, 5, 50]))
    def get_ready(self, number: int, rdy: int) -> None:
        """The socket took everything, and it says how much more it wants."""
        consumer = self.pick_consumer(number)
        consumer.drain()
        consumer.set_rdy(rdy)
        self.settle()

    @has_consumers
    @rule(answers=st.lists(st.tuples(st.sampled_from("FRT"), index, index, delays), min_size=1, max_size=8))
    def answer(self, answers: list[tuple[str, int, int, int]]) -> None:
        """In one iteration."""
        for what, number, which, delay_ns in answers:
            consumer, model, mine = self.pick_in_flight(number)
            channel = self.channel(consumer.name)
            seq = mine[which % len(mine)] if mine else None
            if seq is None:
                assert not channel.requeue(consumer, b"f" * 16, delay_ns)
                assert not channel.touch(consumer, b"f" * 16)
            elif what == "F":
                assert channel.finish(consumer, [self.ids[seq]]) == []
                model.messages[seq].finish()
            elif what == "R":
                assert channel.requeue(consumer, self.ids[seq], delay_ns)
                model.requeue(seq, self.world.clock() + delay_ns if delay_ns else 0)
            else:
                assert channel.touch(consumer, self.ids[seq])
                model.touch(seq, self.world.clock(), consumer.msg_timeout_ns, MAX_MSG_TIMEOUT_NS)
            consumer.become_ready()
        self.settle()

    @has_consumers
    @rule(number=index, kept=st.sets(st.integers(0, 10)), foreign=index)
    def finish(self, number: int, kept: set[int], foreign: int) -> None:
        """All but some of what it has in flight, and one that it has not."""
        consumer, model, mine = self.pick_in_flight(number)
        done = [seq for place, seq in enumerate(mine) if place not in kept]
        ids = [self.ids[seq] for seq in done]
        others = [message_id for seq, message_id in self.ids.items() if seq not in mine]
        unknown = [others[foreign % len(others)]] if others else []
        assert self.channel(consumer.name).finish(consumer, unknown + ids) == unknown
        for seq in done:
            model.messages[seq].finish()
        consumer.become_ready()
        self.settle()

    # ---- time and disk

    @rule(ns=st.sampled_from([MS, 100 * MS, 2 * SECOND]))
    def pass_a_moment(self, ns: int) -> None:
        self.pass_time(ns)

    @rule(ns=st.sampled_from([700 * MS, 2 * SECOND, 6 * SECOND, 30 * SECOND]))
    def pass_time(self, ns: int) -> None:
        self.world.pass_time(ns)
        self.settle()

    @rule(keep=st.sampled_from([None, 0, 5, 30]))
    def pass_time_on_a_full_disk(self, keep: int | None) -> None:
        """Journals cannot be written, nor dead letters."""
        self.model.rules.can_publish_dead_letters = False
        with broken_writes(keep):
            self.world.pass_time(200 * MS)
            self.settle()
        self.model.rules.can_publish_dead_letters = True

    @rule(number=index)
    def read_from_a_failing_disk(self, number: int) -> None:
        self.is_reading_broken = True
        with broken_reads():
            self.publish_several([([1, 20], 0)])
            if self.consumers:
                self.pick_consumer(number).set_rdy(50)
            self.settle()
        self.is_reading_broken = False
        for _ in range(130):  # it is tried again, ever later where it failed before
            if not self.is_something_set_aside():
                break
            self.world.pass_time(SECOND)
            self.settle()

    def is_something_set_aside(self) -> bool:
        """Whether something that should be queued is deferred, since the disk did not give it when it was tried."""
        return any(
            state == DEFERRED and model.messages[seq].state == QUEUED
            for name, model in self.model.channels.items()
            for seq, (state, _, _) in observe(self.channel(name)).items()
            if seq in model.messages
        )

    def clean_up(self) -> None:
        self.broker.housekeeper.clean_up(self.topic)
        assert self.topic.log is not None
        for file in self.topic.log.files[:-1]:
            assert self.model.is_needed(file.first_seq, file.end_seq), f"{file.path.name} is kept for nobody"

    # ---- restarts

    @rule(is_crash=st.booleans(), away_ns=st.sampled_from([0, 100 * MS, 10 * SECOND]))
    def restart(self, is_crash: bool, away_ns: int) -> None:
        consumers = self.consumers[:]
        if is_crash:
            self.consumers.clear()
        else:
            while self.consumers:
                self.leave(self.consumers[0])
            self.broker.close()
        self.start_again(away_ns)
        now_ns = self.world.clock()
        for name, model in self.model.channels.items():
            if is_crash:
                model.restart_after_a_crash(observe(self.channel(name)), now_ns)
            else:
                model.restart_cleanly(now_ns)
        self.settle()
        self.everything_is_where_the_model_has_it()
        for gone in consumers:
            self.connect(gone.name, gone.rdy, gone.msg_timeout_ns, 1 << 40)
        self.settle()

    def start_again(self, away_ns: int) -> None:
        close_descriptors(self.directory)
        now_ns = self.world.clock()
        self.world = World()
        self.world.clock.now_ns = now_ns + away_ns
        self.is_reading_broken = False
        self.broker = start_broker(self.world, self.directory, **self.options)
        assert self.world.log.errors == []
        assert set(self.broker.topics) - {DEAD} == {NAME}

    # ---- what always holds

    @invariant()
    def everything_is_where_the_model_has_it(self) -> None:
        topic, model = self.topic, self.model
        assert set(topic.channels) == set(model.channels)
        assert (topic.next_seq, topic.depth) == (len(model.bodies), len(model.held))
        assert topic.is_paused == model.is_paused
        for name, expected in model.channels.items():
            channel = topic.channels[name]
            figures = channel.depth, channel.in_flight_count, channel.deferred_count
            assert figures == tuple(expected.count(state) for state in (QUEUED, IN_FLIGHT, DEFERRED))
            assert channel.is_paused == expected.is_paused
            assert channel.lost_count == 0
            for seq, (state, attempts, due_ns) in observe(channel).items():
                if seq < expected.first:
                    assert state == FINISHED
                elif state == FINISHED:
                    assert expected.messages[seq].state == FINISHED
                else:
                    assert expected.messages[seq].seen == (state, attempts, due_ns), seq

    @invariant()
    def dead_letters_are_where_the_model_has_them(self) -> None:
        deaths = {self.model.bodies[seq]: count for seq, count in self.model.rules.deaths.items()}
        assert Counter(self.dead_letters()) == deaths

    def dead_letters(self) -> Iterator[bytes]:
        dead = self.broker.topics.get(DEAD)
        assert dead is None or dead.log is not None
        seq = 0
        while dead is not None and seq < dead.next_seq:
            batch = dead.batch_at(seq)
            assert batch is not None
            yield from map(batch.message, range(batch.count))
            seq = batch.end_seq

    @invariant()
    def nobody_waits_for_what_is_there(self) -> None:
        if self.is_reading_broken:
            return
        for consumer in self.consumers:
            channel = self.channel(consumer.name)
            idle = consumer.capacity() > 0 and channel.depth > 0 and not channel.is_paused
            assert not idle, f"{consumer.name} has {channel.depth} messages for a consumer that waits"

    @invariant()
    def memory_is_bounded(self) -> None:
        assert self.topic._recent.count <= self.options["mem_queue_size"] + 6 * 4

    @invariant()
    def memory_is_counted(self) -> None:
        memory, topics = self.broker.memory, self.broker.topics.values()
        assert memory.cached_bytes <= memory.limit_bytes
        assert memory.ephemeral_bytes == 0
        held = sum(topic.held_bytes + topic.log.read_bytes for topic in topics if topic.log is not None)
        assert 0 <= held - memory.cached_bytes < len(topics) * 20 * 1024, "what is not told yet"


TopicMachine.TestCase.settings = settings(
    deadline=None,
    max_examples=examples(60),
    stateful_step_count=50,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
test_topic_against_the_model: type = TopicMachine.TestCase
