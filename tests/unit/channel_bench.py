"""A channel in a test: its bodies are in memory, its consumers parse what they get."""

from __future__ import annotations

from collections.abc import Iterator

from nsqd_py.diskqueue.journals.journal import Journal
from nsqd_py.protocol.batch import Batch
from nsqd_py.queue.channel import Channel
from nsqd_py.queue.position import Position
from tests.unit.fakes import SECOND, FakeConsumer, Received, World, limits, make_batch


class Source:
    """Batches in memory; a disk that may fail, or have lost some."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.error: OSError | None = None
        self.fails_from = 0
        self.fails_until: int | None = None
        self.reads = 0

    @property
    def end(self) -> int:
        return self.batches[-1].end_seq if self.batches else 0

    def batch_at(self, seq: int) -> Batch | None:
        self.reads += 1
        if self.error is not None and self.fails_from <= seq < self.readable_from(seq):
            raise self.error
        return next((batch for batch in self.batches if batch.end_seq > seq), None)

    def batches_at(self, seqs: list[int]) -> Iterator[Batch | None]:
        return map(self.batch_at, seqs)

    def readable_from(self, _seq: int) -> int:
        return self.end if self.fails_until is None else self.fails_until


class Bench:
    """A channel with what it needs."""

    def __init__(self) -> None:
        self.world = World()
        self.run, self.pass_time = self.world.run, self.world.pass_time
        self.source = Source()
        self.limits = limits(mem_queue_size=10)
        self.changes = 0
        self.channel = self.new_channel()

    def new_channel(self, name: str = "ch", journal: Journal | None = None) -> Channel:
        def count(_: Channel) -> None:
            self.changes += 1

        world = self.world
        self.channel = Channel(
            name,
            Position(self.source.end, self.source.end),
            self.source,
            lambda: None,
            self.limits,
            world.iteration,
            world.alarms,
            world.clock,
            journal,
            count,
            keeps_batches=False,
        )
        return self.channel

    def release(self, *bodies: bytes, due_ns: int = 0) -> None:
        """One batch more."""
        batch = make_batch(self.source.end, *bodies, due_ns=due_ns)
        self.source.batches.append(batch)
        deferred = [(batch.first_seq, batch.end_seq, due_ns)] if due_ns else []
        self.channel.release(batch.first_seq, batch.end_seq, deferred)

    def consumer(self, rdy: int = 1, msg_timeout_ns: int = 60 * SECOND, room: int = 1 << 40) -> FakeConsumer:
        return FakeConsumer(self.world, rdy, msg_timeout_ns, room).subscribe(self.channel)

    def deliver(self, *bodies: bytes) -> None:
        """One batch more, which goes to those who are ready."""
        self.release(*bodies)
        self.run()

    def statistics(self) -> tuple[int, int, int]:
        channel = self.channel
        return channel.depth, channel.in_flight_count, channel.deferred_count


def numbered(count: int) -> list[bytes]:
    return [b"%03d" % i for i in range(count)]


def bodies(received: list[Received]) -> list[bytes]:
    return [message.body for message in received]
