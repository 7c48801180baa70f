"""The real broker next to the models of its topics, before anything happens to them, and what holds at any moment."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant

from nsqd_py.broker import seek
from nsqd_py.protocol.names import is_ephemeral
from nsqd_py.queue.channel import Channel
from nsqd_py.queue.topic import Topic
from nsqd_py.settings.kinds import ByTopic
from tests.property.model import DEFERRED, FINISHED, IN_FLIGHT, QUEUED, ModelTopic, Rules
from tests.property.real import ModelConsumer, observe
from tests.unit.fakes import SECOND, World, close_descriptors, quick_syncs, start_broker

# The second one has neither a time to live nor retention nor a limit of its size.
TOPICS = ("orders", "other")
CHANNELS = ("a", "b", "c", "d#ephemeral")
MAX_MSG_TIMEOUT_NS = 8 * SECOND
MOST_PUBLISHED_AT_ONCE = 6 * 4

index = st.integers(0, 1 << 16)


class BrokerMachine(RuleBasedStateMachine):
    """A broker that works on a directory, and its consumers. Rules work on one topic, until they turn to the other."""

    def __init__(self) -> None:
        super().__init__()
        self.base = Path(tempfile.mkdtemp())
        self.directory = self.base / "data"
        self.directory.mkdir()
        self.world = World()
        self.name = TOPICS[0]
        self.rules: dict[str, Rules] = {}
        self.models: dict[str, ModelTopic] = {}
        self.everyone: list[ModelConsumer] = []
        self.published = 0
        self.options: dict[str, Any] = {}
        self.is_reading_broken = False
        self._patches = [
            quick_syncs(),
            mock.patch.object(seek, "in_thread", lambda pool, work, *arguments: work(*arguments)),
        ]
        for patch in self._patches:
            patch.start()

    @initialize(
        mem_queue_size=st.sampled_from([0, 3, 100]),
        mem_queue_bytes=st.sampled_from([1 << 28, 0, 1_000, 3_000]),
        max_bytes_per_file=st.sampled_from([200, 600, 5_000]),
        rdys=st.lists(st.sampled_from([1, 5, 50]), max_size=3),
        max_attempts=st.sampled_from([0, 0, 1, 2]),
        ttl_ns=st.sampled_from([0, 0, 4 * SECOND, 15 * SECOND]),
        retention=st.sampled_from([(0, 0), (0, 0), (700, 0), (0, 10 * SECOND)]),
        max_topic_bytes=st.sampled_from([0, 0, 0, 1_500]),
    )
    def start(
        self,
        rdys: list[int],
        max_attempts: int,
        ttl_ns: int,
        retention: tuple[int, int],
        max_topic_bytes: int,
        **options: int,
    ) -> None:
        own = TOPICS[0]
        self.options = options | {
            "max_msg_timeout_ns": MAX_MSG_TIMEOUT_NS,
            "max_attempts": ByTopic(max_attempts),
            "message_ttl_ns": ByTopic(0, ((own, ttl_ns),)),
            "retention_bytes": ByTopic(0, ((own, retention[0]),)),
            "retention_time_ns": ByTopic(0, ((own, retention[1]),)),
            "max_topic_bytes": ByTopic(0, ((own, max_topic_bytes),)),
        }
        self.broker = start_broker(self.world, self.directory, **self.options)
        for name in TOPICS:
            self.rules[name] = Rules(max_attempts, ttl_ns if name == own else 0)
            self.create_topic(name)
        for number, rdy in enumerate(rdys):
            self.create_channel(CHANNELS[number % 2])
            self.connect(self.model, CHANNELS[number % 2], rdy, 2 * SECOND, 1 << 40)
            self.settle()

    def teardown(self) -> None:
        for patch in self._patches:
            patch.stop()
        close_descriptors(self.base)
        shutil.rmtree(self.base)

    # ---- ways to say it

    @property
    def topic(self) -> Topic:
        return self.broker.topics[self.name]

    @property
    def model(self) -> ModelTopic:
        return self.models[self.name]

    @property
    def consumers(self) -> list[ModelConsumer]:
        return [consumer for consumer in self.everyone if consumer.topic is self.model]

    def channel(self, name: str) -> Channel:
        return self.topic.channels[name]

    def create_topic(self, name: str) -> None:
        self.broker.get_topic(name)
        self.models[name] = ModelTopic(name, lambda: self.world.clock(), self.rules[name])

    def create_channel(self, name: str) -> None:
        self.broker.get_channel(self.topic, name)
        if name not in self.model.channels:
            self.model.add_channel(name, is_ephemeral=is_ephemeral(name))
            self.model.channels[name].keep()
        self.settle()

    def connect(self, model: ModelTopic, name: str, rdy: int, timeout_ns: int, room: int) -> ModelConsumer:
        topic = self.broker.topics[model.name]
        consumer = ModelConsumer(
            self.world, model, name, rdy, timeout_ns, room, lambda consumer: self.leave(consumer, topic)
        )
        self.everyone.append(consumer)
        consumer.subscribe(topic.channels[name])
        return consumer

    def leave(self, consumer: ModelConsumer, topic: Topic | None = None) -> None:
        """Its messages stay in flight, and are nobody's to finish."""
        self.everyone.remove(consumer)
        channel, consumer.channel = consumer.channel, None
        if channel.is_ephemeral and not any(other.channel is channel for other in self.everyone):
            consumer.topic.channels.pop(consumer.name, None)
        self.broker.client_left(topic or self.broker.topics[consumer.topic.name], channel, consumer)

    def settle(self) -> None:
        """End the iteration, ring what is due by now."""
        self.world.run()
        self.world.pass_time(0)
        now_ns = self.world.clock()
        for name, model in self.models.items():
            topic = self.broker.topics[name]
            if topic.is_held:
                model.forget_too_old(topic.released, now_ns)
            for channel_name, channel in model.channels.items():
                real = topic.channels[channel_name]
                channel.advance(now_ns)
                found = observe(real)
                channel.forget_too_old(found, now_ns)
                channel.forget_overflow(found, self.options["mem_queue_size"])
                if not real.is_dirty:
                    channel.keep()

    def bodies(self, lengths: list[int]) -> list[bytes]:
        first = self.published
        self.published += len(lengths)
        return [b"%d." % (first + i) + b"x" * length for i, length in enumerate(lengths)]

    def dead_letters(self, name: str) -> Iterator[bytes]:
        dead = self.broker.topics.get(f"{name}.dead")
        seq = 0
        while dead is not None and seq < dead.next_seq:
            batch = dead.messages.batch_at(seq)
            yield from map(batch.message, range(batch.count))
            seq = batch.end_seq

    # ---- what always holds

    @invariant()
    def everything_is_where_the_model_has_it(self) -> None:
        assert set(self.broker.topics) - {f"{name}.dead" for name in TOPICS} == set(self.models)
        for name, model in self.models.items():
            topic = self.broker.topics[name]
            assert set(topic.channels) == set(model.channels)
            assert (topic.next_seq, topic.depth) == (len(model.bodies), len(model.held))
            assert topic.is_paused == model.is_paused
            for channel_name in model.channels:
                self.check_channel(topic, model, channel_name)

    def check_channel(self, topic: Topic, model: ModelTopic, name: str) -> None:
        channel, expected = topic.channels[name], model.channels[name]
        statistics = channel.depth, channel.in_flight_count, channel.deferred_count
        assert statistics == tuple(expected.count(state) for state in (QUEUED, IN_FLIGHT, DEFERRED))
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
        for name, rules in self.rules.items():
            assert Counter(self.dead_letters(name)) == rules.deaths

    @invariant()
    def nobody_waits_for_what_is_there(self) -> None:
        if self.is_reading_broken:
            return
        for consumer in self.everyone:
            channel = consumer.channel
            idle = consumer.capacity() > 0 and channel.depth > 0 and not channel.is_paused
            assert not idle, f"{consumer.name} has {channel.depth} messages for a consumer that waits"

    @invariant()
    def memory_is_bounded(self) -> None:
        for name in self.models:
            most = self.options["mem_queue_size"] + MOST_PUBLISHED_AT_ONCE
            assert self.broker.topics[name]._recent.count <= most

    @invariant()
    def memory_is_counted(self) -> None:
        memory, topics = self.broker.memory, self.broker.topics.values()
        assert memory.cached_bytes <= memory.limit_bytes
        assert memory.ephemeral_bytes == 0
        held = sum(topic.memory_bytes + topic.log.chunks.memory_bytes for topic in topics)
        assert 0 <= held - memory.cached_bytes < len(topics) * 20 * 1024, "what is not reported yet"

    @invariant()
    def the_disk_keeps_to_its_limits(self) -> None:
        for name in self.models:
            topic = self.broker.topics[name]
            most = topic.policy.max_bytes
            assert not most or topic.log.size_bytes <= most, f"{name} takes {topic.log.size_bytes} bytes"
