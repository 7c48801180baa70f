"""Whatever is published, finished, put off, compacted, dropped, sought, killed: each channel gets what is its own."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from nsqd_py.diskqueue.compaction import holes
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.settings.types import ByTopic
from tests.support.examples import examples
from tests.unit.fakes import SECOND, FakeConsumer, Received, World, close_descriptors, sized, start_broker

CHANNELS = ("a", "b")
DELAY_S = 500
FILE_BYTES = 1500

channel_names = st.sampled_from(CHANNELS)
share = st.floats(0, 1)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 12), st.booleans()),
        st.tuples(st.just("use_a_file"), st.integers(10, 40), st.integers(0, 7)),
        st.tuples(st.just("finish"), channel_names, share),
        st.tuples(st.just("requeue"), channel_names, share),
        st.tuples(st.just("seek"), channel_names, share),
        st.tuples(st.just("compact")),
        st.tuples(st.just("compact")),
        st.tuples(st.just("kill")),
        st.tuples(st.just("wait"), st.integers(1, 300)),
    ),
    min_size=8,
    max_size=30,
)


def body(number: int) -> bytes:
    return b"%06d" % number * (1 + number % 30)


class Sides:
    """The broker and, next to it, which messages each channel is not done with."""

    def __init__(self, directory: Path, retention_bytes: int) -> None:
        self.directory = directory
        self.retention_bytes = retention_bytes
        self.published = 0
        self.open: dict[str, set[int]] = {name: set() for name in CHANNELS}
        self.due_ns: dict[int, int] = {}
        self.world = World()
        self.start()

    def start(self) -> None:
        self.broker = start_broker(
            self.world,
            self.directory,
            max_bytes_per_file=FILE_BYTES,
            mem_queue_size=3,
            retention_bytes=ByTopic(self.retention_bytes),
        )
        self.topic = self.broker.get_topic("t")
        self.channels = {name: self.broker.get_channel(self.topic, name) for name in CHANNELS}
        self.consumers = {
            name: FakeConsumer(self.world, rdy=1 << 30, msg_timeout_ns=200 * SECOND).subscribe(channel)
            for name, channel in self.channels.items()
        }
        self.in_hand: dict[str, dict[bytes, Received]] = {name: {} for name in CHANNELS}
        self.world.run()
        self.take()

    @property
    def log(self) -> TopicLog:
        assert self.topic.log is not None
        return self.topic.log

    def take(self) -> None:
        """Each message that comes was open, whole, and due."""
        for name, consumer in self.consumers.items():
            for message in consumer.take():
                number = int(message.body[:6])
                assert message.body == body(number)
                assert number in self.open[name], f"{number} comes again to {name}"
                assert self.due_ns.get(number, 0) <= self.world.clock.now_ns, f"{number} comes too early to {name}"
                self.in_hand[name][message.id] = message

    def do(self, operation: str, *arguments: object) -> None:
        getattr(self, operation)(*arguments)
        self.world.run()
        self.take()

    def publish(self, count: int, is_deferred: bool) -> None:
        numbers = range(self.published, self.published + count)
        due_ns = self.world.clock.now_ns + DELAY_S * SECOND if is_deferred else 0
        self.topic.buffer.publish(sized(*map(body, numbers)), count, 0, None, 0, DELAY_S * SECOND if is_deferred else 0)
        self.world.run()
        self.published += count
        for number in numbers:
            if is_deferred:
                self.due_ns[number] = due_ns
            for unfinished in self.open.values():
                unfinished.add(number)

    def use_a_file(self, count: int, kept: int) -> None:
        """Both channels put off the same few messages in the middle, and one at the end, and finish the others."""
        for part, is_deferred in [(count, False), (1, False), (3, True), (count // 2, False)]:
            self.publish(part, is_deferred)
        self.take()
        for name, in_hand in self.in_hand.items():
            ordered = sorted(in_hand.values(), key=lambda message: message.body[:6])
            some = ordered[len(ordered) // 3 :][:kept] + ordered[-1:]
            for message in ordered:
                if message in some:
                    del in_hand[message.id]
                    self.consumers[name].requeue(message, DELAY_S * SECOND)
            self.finish(name, 1)
        self.compact()

    def part_of(self, name: str, part: float) -> list[Received]:
        in_hand = list(self.in_hand[name].values())
        return in_hand[: round(part * len(in_hand))]

    def finish(self, name: str, part: float) -> None:
        chosen = self.part_of(name, part)
        missing = self.consumers[name].finish(*chosen)
        for message in chosen:
            del self.in_hand[name][message.id]
            if message.id not in missing:
                self.open[name].discard(int(message.body[:6]))

    def requeue(self, name: str, part: float) -> None:
        for message in self.part_of(name, part):
            del self.in_hand[name][message.id]
            self.consumers[name].requeue(message, DELAY_S * SECOND)

    def seek(self, name: str, part: float) -> None:
        target = round(part * self.published)
        seq = min(max(target, self.log.earliest_seq), self.topic.released)
        unkept = holes(self.log.files, seq, self.topic.released)
        not_due = [(n, n + 1, due_ns) for n, due_ns in self.due_ns.items() if due_ns > self.world.clock.now_ns]
        self.channels[name].seek(seq, not_due, unkept, 0)
        in_hand, before = self.in_hand[name], {n for n in self.open[name] if n < seq}
        self.in_hand[name] = {i: message for i, message in in_hand.items() if int(message.body[:6]) < seq}
        kept = set(range(seq, self.published)) - {n for low, high in unkept for n in range(low, high)}
        self.open[name] = before | kept

    def compact(self) -> None:
        self.world.pass_time(SECOND)
        self.broker.housekeeper.run()

    def kill(self) -> None:
        for channel in self.channels.values():
            channel.save_changes()
        self.check_files()
        close_descriptors(self.directory)
        now_ns = self.world.clock.now_ns
        self.world = World()
        self.world.clock.now_ns = now_ns
        self.start()

    def wait(self, seconds: int) -> None:
        self.world.pass_time(seconds * SECOND)

    def check_files(self) -> None:
        """What is open is in the files, and what the files say of themselves is true."""
        kept: set[int] = set()
        for file in self.log.files:
            seq, numbers = file.first_seq, set[int]()
            while seq < file.end_seq:
                chunk = self.log.read(seq)
                numbers |= {n for batch in chunk for n in range(batch.first_seq, batch.end_seq) if n < file.end_seq}
                seq = chunk[-1].end_seq
            assert file.message_count == len(numbers)
            kept |= numbers
        assert set().union(*self.open.values()) <= kept

    def end(self) -> None:
        """All that is open comes, and nothing was counted lost."""
        for _ in range(4):
            for name in CHANNELS:
                self.finish(name, 1)
            self.do("wait", DELAY_S)
        self.check_files()
        assert self.open == {name: set() for name in CHANNELS}
        assert [channel.lost_count for channel in self.channels.values()] == [0, 0]
        assert self.world.log.errors == []


@settings(max_examples=examples(80))
@given(operations, st.sampled_from([0, 0, 4000]))
def test_each_channel_gets_what_is_its_own(steps: list[tuple[str, object]], retention_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        sides = Sides(Path(name), retention_bytes)
        try:
            for operation, *arguments in steps:
                sides.do(operation, *arguments)
            sides.end()
        finally:
            close_descriptors(Path(name))
