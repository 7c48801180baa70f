"""A real broker with topics, channels, log and journals, against a plain model, through any sequence of events.

At any moment each accepted message is, for each channel, in exactly one of queued, in flight, deferred, finished;
also across restarts, and wherever a kill cuts off what was done.
"""

from __future__ import annotations

import shutil
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from unittest.mock import patch

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from nsqd_py.broker.lifetime.shutdown import close as close_broker
from nsqd_py.broker.seek import EARLIEST, LATEST, seek_channel
from nsqd_py.queue.storage import NoRoom
from tests.property.machine import CHANNELS, MAX_MSG_TIMEOUT_NS, TOPICS, BrokerMachine, index
from tests.property.model import DEFERRED, QUEUED, ModelChannel, ModelTopic
from tests.property.real import ModelConsumer, ModelPublisher, broken_reads, broken_writes, copied_at, observe
from tests.support.examples import examples
from tests.unit.fakes import MS, SECOND, World, close_descriptors, publish, start_broker

sizes = st.lists(st.sampled_from([1, 1, 1, 20, 60]), min_size=1, max_size=6)
delays = st.sampled_from([0, 0, SECOND, 3 * SECOND, 20 * SECOND])
publishes = st.lists(st.tuples(sizes, delays), min_size=1, max_size=4)
all_answers = st.lists(st.tuples(st.sampled_from("FRT"), index, index, delays), min_size=1, max_size=8)
goals = st.sampled_from([EARLIEST, LATEST, 0, SECOND, 5 * SECOND, 40 * SECOND])  # or so many ns ago
administrations = st.sampled_from(
    [
        "pause",
        "unpause",
        "pause topic",
        "unpause topic",
        "empty",
        "empty topic",
        "delete",
        "discard",
        "leave",
        "tidy",
    ]
)


class TopicMachine(BrokerMachine):
    """What users do, time, the disk, and the end of the process."""

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

    has_consumers = precondition(lambda self: self.consumers)
    has_channels = precondition(lambda self: self.model.channels)

    # ---- topics

    @rule()
    def turn_to_the_other_topic(self) -> None:
        self.name = next(name for name in TOPICS if name != self.name)

    @rule(then=st.sampled_from(["", "crash", "stop"]))
    def delete_topic(self, then: str) -> None:
        """And create it again: what was in it is gone."""
        self.end_topic()
        self.settle()
        if then:
            self.restart(then == "crash", 0)
        self.create_topic(self.name)
        self.settle()

    def end_topic(self) -> None:
        self.broker.delete_topic(self.name)
        assert not self.consumers
        del self.models[self.name]

    # ---- publishing

    def publish(self, lengths: list[int], delay_ns: int) -> ModelPublisher:
        """It counts as published from now on: the iteration delivers it as soon as it has written it."""
        bodies = self.bodies(lengths)
        publisher = ModelPublisher(self.model, len(bodies))
        publish(self.topic, *bodies, defer_ns=delay_ns, publisher=publisher)
        self.model.publish(bodies, self.world.clock() + delay_ns if delay_ns else 0)
        return publisher

    @rule(parts=publishes)
    def publish_several(self, parts: list[tuple[list[int], int]]) -> None:
        """In one iteration."""
        publishers = [self.publish(lengths, delay_ns) for lengths, delay_ns in parts]
        self.settle()
        failures = [error for publisher in publishers for _, error in publisher.failures]
        assert all(isinstance(error, NoRoom) for error in failures)
        if failures:
            assert self.topic.policy.max_bytes, failures
            assert len(failures) == len(publishers), "one record, or none"

    @rule(lengths=sizes, delay_ns=delays, keep=st.sampled_from([None, 0, 10, 70, 130]))
    def publish_to_a_full_disk(self, lengths: list[int], delay_ns: int, keep: int | None) -> None:
        with broken_writes(keep):
            publisher = self.publish(lengths, delay_ns)
            self.world.run()
        assert len(publisher.failures) == 1
        assert self.broker.health() is not None
        self.settle()

    # ---- channels

    @rule(what=administrations, number=index)
    def administer(self, what: str, number: int) -> None:
        if what.endswith("topic"):
            self.administer_topic(what)
        elif what == "tidy":
            self.clean_up()
        elif what == "leave" and self.consumers:
            self.leave(self.pick_consumer(number))
        elif self.model.channels:
            self.administer_channel(what, self.pick_channel(number), number)
        self.settle()

    def administer_topic(self, what: str) -> None:
        if what == "empty topic":
            self.broker.empty_topic(self.topic)
            self.model.drop_held(len(self.model.held))
        else:
            self.broker.pause_topic(self.topic, what == "pause topic")
            self.model.is_paused = what == "pause topic"
            self.model.release()

    def administer_channel(self, what: str, name: str, number: int) -> None:
        channel, model = self.channel(name), self.model.channels[name]
        if what == "empty":
            self.broker.empty_channel(self.topic, channel)
            model.empty()
        elif what == "delete":
            self.broker.delete_channel(self.topic, name)
            self.model.channels.pop(name, None)
        elif what == "discard":
            seq = number % (self.model.released + 1)
            is_queued = seq in model.messages and model.messages[seq].state == QUEUED
            assert channel.discard(seq) == is_queued
            if is_queued:
                model.messages[seq].finish()
        else:
            self.broker.pause_channel(self.topic, channel, what == "pause")
            model.is_paused = what == "pause"

    @precondition(lambda self: len(self.model.channels) < len(CHANNELS))
    @rule(name=st.sampled_from(CHANNELS))
    def add_channel(self, name: str) -> None:
        self.create_channel(name)

    @has_channels
    @rule(number=index, goal=goals)
    def seek(self, number: int, goal: str | int) -> None:
        """To an end, or to a moment so many ns ago."""
        name = self.pick_channel(number)
        since_ns = self.world.clock() - goal if isinstance(goal, int) else 0
        result = seek_channel(self.broker, self.topic, name, since_ns if isinstance(goal, int) else goal)
        seq, stored = result.seq, self.stored()
        if goal == LATEST:
            assert seq == self.model.released
        else:
            earliest_seq = self.topic.log.earliest_seq  # before it are only parts of files
            published = [
                (n, self.model.births[n][1]) for n in stored if earliest_seq <= n < self.model.released
            ]
            assert all(time_ns < since_ns for n, time_ns in published if n < seq), "it passed some"
            assert all(time_ns >= since_ns for n, time_ns in published if n >= seq), "it is too early"
        skip_below = seq if goal == LATEST else 0
        if isinstance(goal, int):
            younger = (n for n in sorted(stored) if self.model.births[n][1] >= since_ns)
            skip_below = next(younger, self.model.released)
        assert result.skipped == self.model.channels[name].seek(seq, stored, skip_below)
        self.settle()

    def stored(self) -> set[int]:
        """The numbers that the log has; how many a file has, it says itself."""
        log, stored = self.topic.log, set[int]()
        for file in log.files:
            seq, numbers = file.first_seq, set[int]()
            while seq < file.end_seq:
                chunk = log.read(seq)
                numbers |= {
                    n for batch in chunk for n in range(batch.first_seq, batch.end_seq) if n < file.end_seq
                }
                seq = chunk[-1].end_seq
            assert file.message_count == len(numbers)
            stored |= numbers
        return stored

    # ---- consumers

    @precondition(lambda self: self.model.channels and len(self.consumers) < 4)
    @rule(
        number=index,
        rdy=st.sampled_from([0, 1, 2, 5, 50]),
        timeout_ns=st.sampled_from([2 * SECOND, 5 * SECOND]),
        room=st.sampled_from([60, 300, 1 << 40]),
    )
    def subscribe(self, number: int, rdy: int, timeout_ns: int, room: int) -> None:
        self.connect(self.model, self.pick_channel(number), rdy, timeout_ns, room)
        self.settle()

    @has_consumers
    @rule(number=index, rdy=st.sampled_from([0, 1, 2, 5, 50]))
    def get_ready(self, number: int, rdy: int) -> None:
        """The socket took everything, and it says how much more it wants."""
        consumer = self.pick_consumer(number)
        consumer.drain()
        consumer.set_rdy(rdy)
        self.settle()

    @has_consumers
    @rule(answers=all_answers)
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
                self.finish_one(consumer, seq)
            elif what == "R":
                self.requeue(consumer, seq, delay_ns)
            else:
                assert channel.touch(consumer, self.model.ids[seq])
                model.touch(seq, self.world.clock(), consumer.msg_timeout_ns, MAX_MSG_TIMEOUT_NS)
            consumer.become_ready()
        self.settle()

    def finish_one(self, consumer: ModelConsumer, seq: int) -> None:
        assert self.channel(consumer.name).finish(consumer, [self.model.ids[seq]]) == []
        self.model.channels[consumer.name].messages[seq].finish()

    def requeue(self, consumer: ModelConsumer, seq: int, delay_ns: int) -> None:
        assert self.channel(consumer.name).requeue(consumer, self.model.ids[seq], delay_ns)
        self.model.channels[consumer.name].requeue(seq, self.world.clock() + delay_ns if delay_ns else 0)

    @has_consumers
    @rule(number=index, kept=st.sets(st.integers(0, 10)), foreign=index)
    def finish(self, number: int, kept: set[int], foreign: int) -> None:
        """All but some of what it has in flight, and one that it has not."""
        consumer, model, mine = self.pick_in_flight(number)
        done = [seq for place, seq in enumerate(mine) if place not in kept]
        ids = [self.model.ids[seq] for seq in done]
        others = [message_id for seq, message_id in self.model.ids.items() if seq not in mine]
        unknown = [others[foreign % len(others)]] if others else []
        assert self.channel(consumer.name).finish(consumer, unknown + ids) == unknown
        for seq in done:
            model.messages[seq].finish()
        consumer.become_ready()
        self.settle()

    @rule()
    def drain(self) -> None:
        """All that is left comes, and then there is nothing left: no message, and no file that nobody needs."""
        if self.model.is_paused:
            self.administer("unpause topic", 0)
        for name, channel in list(self.model.channels.items()):
            if channel.is_paused:
                self.broker.pause_channel(self.topic, self.channel(name), False)
                channel.is_paused = False
                self.settle()
            consumer = self.connect(self.model, name, 1 << 20, MAX_MSG_TIMEOUT_NS, 1 << 40)
            for _ in range(3):  # what others have in flight times out, what is deferred becomes due
                self.settle()
                for seq in channel.in_flight_of(consumer):
                    self.finish_one(consumer, seq)
                for other in self.consumers[:-1]:
                    if other.name == name:
                        other.set_rdy(0)
                self.pass_time(20 * SECOND)
            self.leave(consumer)
            self.settle()
        assert not any(
            self.model.is_needed(0, seq) for seq in [len(self.model.bodies)] if self.model.channels
        )
        self.clean_up()

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
        with broken_writes(keep), ExitStack() as stack:
            for rules in self.rules.values():
                stack.enter_context(patch.object(rules, "can_publish_dead_letters", False))
            self.world.pass_time(200 * MS)
            self.settle()

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
            state == DEFERRED and channel.messages[seq].state == QUEUED
            for model in self.models.values()
            for name, channel in model.channels.items()
            for seq, (state, _, _) in observe(self.broker.topics[model.name].channels[name]).items()
            if seq in channel.messages
        )

    @rule()
    def compact(self) -> None:
        self.pass_time(SECOND)
        self.broker.housekeeper.run()
        stored = self.stored()
        needed = [seq for seq in range(len(self.model.bodies)) if self.model.is_needed(seq, seq + 1)]
        assert stored.issuperset(needed)

    @has_consumers
    @rule(count=st.integers(6, 24), kept=st.integers(0, 7))
    def make_files_sparse(self, count: int, kept: int) -> None:
        """Consumers put off the same few messages in the middle, and the last one, and finish the others."""
        for lengths, delay_ns in (([20] * count, 0), ([1] * 3, 20 * SECOND), ([20] * (count // 2), 0)):
            self.publish_several([(lengths, delay_ns)])
        for consumer in self.consumers:
            model = self.model.channels[consumer.name]
            mine = model.in_flight_of(consumer)
            for seq in mine:
                if seq in (*mine[len(mine) // 3 :][:kept], mine[-1]):
                    self.requeue(consumer, seq, 20 * SECOND)
                else:
                    self.finish_one(consumer, seq)
            consumer.become_ready()
        self.settle()
        self.compact()

    def clean_up(self) -> None:
        self.broker.housekeeper.clean_up(self.topic)
        policy = self.topic.policy
        if policy.retention_ns or policy.retention_bytes:
            return
        for file in self.topic.log.files[:-1]:
            assert self.model.is_needed(file.first_seq, file.end_seq), f"{file.path.name} is kept for nobody"

    # ---- the end of the process

    @rule(is_crash=st.booleans(), away_ns=st.sampled_from([0, 100 * MS, 10 * SECOND]))
    def restart(self, is_crash: bool, away_ns: int) -> None:
        consumers = self.everyone[:]
        if is_crash:
            self.end_in_a_crash(
                {name: model.copy() for name, model in self.models.items()}, away_ns, consumers
            )
            return
        while self.everyone:
            self.leave(self.everyone[0])
        close_broker(self.broker)
        self.start_again(away_ns)
        for model in self.models.values():
            first_open = model.end_of_life()
            released = self.broker.topics[model.name].released
            assert released <= first_open
            model.go_on_from(released)
            for channel in model.channels.values():
                channel.restart_cleanly(self.world.clock())
        self.come_back(consumers)

    @rule(
        what=st.sampled_from(["publish", "answer", "administer", "seek", "time", "compact", "delete"]),
        number=st.integers(1, 12),
        keep=st.integers(0, 80),
        parts=publishes,
        answers=all_answers,
        administration=administrations,
        which=index,
        goal=goals,
    )
    def kill(
        self,
        what: str,
        number: int,
        keep: int,
        parts: list[tuple[list[int], int]],
        answers: list[tuple[str, int, int, int]],
        administration: str,
        which: int,
        goal: str | int,
    ) -> None:
        """The process ends with the `number`th change of a file that this causes, if there are so many."""
        does = {
            "publish": lambda: self.publish_several(parts),
            "answer": lambda: self.answer(answers) if self.consumers else None,
            "administer": lambda: self.administer(administration, which),
            "seek": lambda: self.seek(which, goal) if self.model.channels else None,
            "time": lambda: self.pass_time(2 * SECOND),
            "compact": self.compact,
            "delete": self.end_topic,
        }
        before, consumers = {name: model.copy() for name, model in self.models.items()}, self.everyone[:]
        left = self.base / "left"
        with copied_at(number, self.directory, left, keep):
            does[what]()
            if what in ("answer", "administer"):
                self.pass_time(100 * MS)
        if left.exists():
            close_descriptors(self.directory)
            shutil.rmtree(self.directory)
            left.rename(self.directory)
            self.end_in_a_crash(before, 0, consumers)
        elif what == "delete":
            self.create_topic(self.name)
            self.settle()

    def start_again(self, away_ns: int) -> None:
        close_descriptors(self.directory)
        now_ns = self.world.clock()
        self.world = World()
        self.world.clock.now_ns = now_ns + away_ns
        self.is_reading_broken = False
        self.broker = start_broker(self.world, self.directory, **self.options)
        # A kill may leave a part of a record, or of the header of a new file.
        errors = [
            text for text in self.world.log.errors if "cut off" not in text and "passed over" not in text
        ]
        assert errors == []

    def end_in_a_crash(
        self, before: dict[str, ModelTopic], away_ns: int, consumers: list[ModelConsumer]
    ) -> None:
        """The process ended somewhere between what the models were before and what they are now."""
        self.everyone.clear()
        self.start_again(away_ns)
        for name in before.keys() - self.models.keys():  # it was deleted, or some of it
            if name in self.broker.topics:
                self.broker.delete_topic(name)
            self.create_topic(name)
        for name, later in self.models.items():
            earlier = before.get(name, later)
            if earlier.births is later.births:
                self.compare_after_a_crash(earlier, later)
            found = Counter(self.dead_letters(name))
            assert earlier.rules.deaths <= found <= later.rules.deaths
            self.rules[name].deaths = found
        self.come_back(consumers)

    def compare_after_a_crash(self, earlier: ModelTopic, later: ModelTopic) -> None:
        topic = self.broker.topics[later.name]
        assert topic.next_seq >= len(earlier.bodies), "what was acknowledged is lost"
        assert topic.next_seq in later.ends, "a part of a publish is there"
        later.withdraw(len(later.bodies) - topic.next_seq)
        channels = [*earlier.channels.values(), *later.channels.values()]
        # Without durable channels, the topic's own position is what is kept, up to 100 ms ago.
        is_exact = earlier.channels.keys() == later.channels.keys() and not any(
            c.is_ephemeral for c in channels
        )
        least = min(earlier.released, later.released, len(later.bodies)) if is_exact else 0
        assert least <= topic.released <= max(earlier.end_of_life(), later.end_of_life())
        for name, channel in earlier.channels.items():
            if name in topic.channels and name not in later.channels:
                later.channels[name] = replace(channel.copy(), topic=later)
        assert (
            later.channels.keys() >= topic.channels.keys() >= earlier.channels.keys() & later.channels.keys()
        )
        later.channels = {name: later.channels[name] for name in topic.channels}
        later.go_on_from(topic.released)
        assert topic.is_paused in (earlier.is_paused, later.is_paused)
        later.is_paused = topic.is_paused
        for name, channel in later.channels.items():
            before, real = earlier.channels.get(name, channel), topic.channels[name]
            assert real.is_paused in (before.is_paused, channel.is_paused)
            channel.is_paused = real.is_paused
            channel.restart_after_a_crash(before, observe(real), self.world.clock())

    def come_back(self, consumers: list[ModelConsumer]) -> None:
        self.settle()
        self.everything_is_where_the_model_has_it()
        for gone in consumers:
            if gone.topic is self.models.get(gone.topic.name) and gone.name in gone.topic.channels:
                self.connect(gone.topic, gone.name, gone.rdy, gone.msg_timeout_ns, 1 << 40)
        self.settle()


TopicMachine.TestCase.settings = settings(
    deadline=None,
    max_examples=examples(80),
    stateful_step_count=50,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
test_topic_against_the_model: type = TopicMachine.TestCase
