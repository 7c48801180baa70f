"""What a topic and its channels meet in a test in place of the event loop, sockets, disk syncs and the clock."""

from __future__ import annotations

import contextlib
import errno
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Any
from unittest import mock

import gevent
import gevent.event

from nsqd_py.broker.broker import Broker
from nsqd_py.broker.data_path import DataPath
from nsqd_py.broker.lifetime.startup import load
from nsqd_py.diskqueue.files.open_files import OPEN_FILES
from nsqd_py.pqueues.alarms import Alarms
from nsqd_py.pqueues.in_flight import InFlightTable
from nsqd_py.protocol.batch import Batch, uniform_stride
from nsqd_py.protocol.frames import MESSAGE, Part
from nsqd_py.queue.channel import Channel
from nsqd_py.queue.topic import Topic
from nsqd_py.runtime.disk_speed import DiskSpeed
from nsqd_py.runtime.threads import DiskThreads, Job
from nsqd_py.server.options import NSQD

MS = 1_000_000
SECOND = 1_000 * MS
START_NS = 1_600_000_000 * SECOND  # long past: what keeps time by the real clock never rings here

_HEAD = Struct(">iiqH16s")
_UNLIMITED = 1 << 40


def sized(*messages: bytes) -> bytes:
    """Messages in the form of a batch's body."""
    return b"".join(len(message).to_bytes(4, "big") + message for message in messages)


def make_batch(first_seq: int, *messages: bytes, base_id: int = 0x1000, due_ns: int = 0) -> Batch:
    body = sized(*messages)
    stride = uniform_stride(body, len(messages))
    return Batch(first_seq, base_id + first_seq, START_NS, due_ns, len(messages), stride, body)


def messages_of(batches: list[Batch]) -> list[tuple[int, bytes]]:
    """(sequence number, body) of all messages."""
    return [(batch.first_seq + i, batch.message(i)) for batch in batches for i in range(batch.count)]


class FakeClock:
    """Stands still until it is notified."""

    def __init__(self) -> None:
        self.now_ns = START_NS

    def __call__(self) -> int:
        return self.now_ns


def refuse(*_: Any) -> Any:
    """Fail as a system call does on a full disk."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def quick_syncs() -> Any:
    """Syncs that do nothing, for tests of thousands of them."""
    return mock.patch.object(os, "fsync", lambda fd: None)


class FakeLog:
    """Keeps what is said; an exception that was only noted is one too many."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.warnings: list[str] = []
        self.infos: list[str] = []
        self.of_clients = self

    def debug(self, *_: object) -> None: ...

    def info(self, text: str, *arguments: object) -> None:
        self.infos.append(text % arguments if arguments else text)

    def warning(self, text: str, *arguments: object) -> None:
        self.warnings.append(text % arguments)

    def error(self, text: str, *arguments: object) -> None:
        self.errors.append(text % arguments)

    def exception(self, text: str, *arguments: object) -> None:
        raise AssertionError(text % arguments)


class FakeIteration:
    """The end of an iteration comes when the test says so. `looks_left`: so many looks at the time until it is late."""

    def __init__(self) -> None:
        self.looks_left = 1 << 60
        self._committers: list[Any] = []
        self._deliverers: list[Any] = []

    def add_committer(self, committer: Any) -> None:
        self._committers.append(committer)

    def add_deliverer(self, deliverer: Any) -> None:
        self._deliverers.append(deliverer)

    add_deferred_deliverer = add_deliverer

    def is_late(self) -> bool:
        self.looks_left -= 1
        return self.looks_left < 0

    def end(self) -> None:
        """Commit, then deliver, and so on while there is something new."""
        while self._committers or self._deliverers:
            committers, self._committers = self._committers, []
            for committer in committers:
                committer.commit()
            deliverers, self._deliverers = self._deliverers, []
            for deliverer in deliverers:
                deliverer.deliver()


class FakeThreadPool:
    """Threads without threads."""

    def apply(self, function: Callable[..., Any], arguments: tuple[Any, ...] = ()) -> Any:
        return function(*arguments)

    def begin(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], on_done: Callable[[Job], None]
    ) -> None:
        job = Job(self.apply, (function, arguments), on_done)
        gevent.spawn(lambda: (job.run(), gevent.get_hub().loop.run_callback(on_done, job)))


def disk_threads() -> DiskThreads:
    """Threads as a serving nsqd has them."""
    threads = DiskThreads(4)
    threads.serve()
    return threads


class GatedPool(FakeThreadPool):
    """A thread that begins when the test says so."""

    def __init__(self) -> None:
        self.gate = gevent.event.Event()

    def apply(self, function: Callable[..., Any], arguments: tuple[Any, ...] = ()) -> Any:
        assert self.gate.wait(40)
        return super().apply(function, arguments)


@contextlib.contextmanager
def counted_turns() -> Iterator[list[int]]:
    """A list that grows each time that other greenlets may run."""
    turns = []

    def count() -> None:
        while True:
            turns.append(1)
            gevent.sleep(0)

    other = gevent.spawn(count)
    try:
        yield turns
    finally:
        other.kill()


class World:
    """Clock, alarms, loop iteration and log of one test; it may take the place of a broker's services."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.alarms = Alarms()
        self.log: Any = FakeLog()
        self.iteration: Any = FakeIteration()
        self.threadpool: Any = FakeThreadPool()
        self.disk_speed = DiskSpeed(self.alarms, self.clock, self.clock, self.log)
        self.data_path = DataPath(Path(), self.log)

    def run(self) -> None:
        """End the iteration, and those that this begets."""
        self.iteration.end()

    def pass_time(self, ns: int) -> None:
        """Alarms ring at their times on the way; every ring ends an iteration."""
        until_ns = self.clock.now_ns + ns
        while (due_ns := self.alarms.next_due_ns) is not None and due_ns <= until_ns:
            self.clock.now_ns = max(self.clock.now_ns, due_ns)
            self.alarms.ring_due(self.clock.now_ns)
            self.run()
        self.clock.now_ns = until_ns

    def publish(self, topic: Topic, *bodies: bytes, defer_ns: int = 0) -> FakePublisher:
        """Publish one batch, and end the iteration."""
        publisher = publish(topic, *bodies, defer_ns=defer_ns)
        self.run()
        return publisher

    def consumer(self, channel: Channel, rdy: int = 1, msg_timeout_ns: int = 60 * SECOND) -> FakeConsumer:
        """Return a consumer that has what it is ready for."""
        consumer = FakeConsumer(self, rdy, msg_timeout_ns).subscribe(channel)
        self.run()
        return consumer


@dataclass(frozen=True)
class Received:
    """A message as a consumer saw it."""

    id: bytes
    attempts: int
    body: bytes
    timestamp_ns: int


class FakeConsumer:
    """A consumer with the arithmetic of a real connection, that parses what it is sent."""

    def __init__(
        self, world: World, rdy: int = 1, msg_timeout_ns: int = 60 * SECOND, room: int = _UNLIMITED
    ) -> None:
        self.in_flight = InFlightTable()
        self.is_waiting = False
        self.msg_timeout_ns = msg_timeout_ns
        self.sample_rate = 0
        self.nearness = 0
        self.message_count = 0
        self.rdy = rdy
        self.received: list[Received] = []
        self.close_reason: str | None = None
        self.channel: Channel | None = None
        self._room = room
        self.queued_bytes = 0
        self._alarm = world.alarms.alarm(self._on_deadline)

    # ---- the channel's view

    def is_in_sample(self) -> bool:
        return random.randrange(100) <= self.sample_rate

    def capacity(self) -> int:
        return 0 if self.free_bytes() <= 0 else self.rdy - len(self.in_flight)

    def free_bytes(self) -> int:
        return self._room - self.queued_bytes

    def send_frames(self, parts: list[Part], size_bytes: int) -> None:
        self.queued_bytes += size_bytes
        self.received += parse_messages(b"".join(parts))

    def watch_deadline(self, deadline_ns: int) -> None:
        self._alarm.set_no_later(deadline_ns)

    def close(self, reason: str) -> None:
        self.close_reason = reason

    # ---- the test's view

    def subscribe(self, channel: Channel) -> FakeConsumer:
        assert channel.add_client(self)
        self.channel = channel
        self.become_ready()
        return self

    def become_ready(self) -> None:
        if self.channel is not None and not self.is_waiting and self.capacity() > 0:
            self.channel.client_ready(self)

    def set_rdy(self, rdy: int) -> None:
        self.rdy = rdy
        self.become_ready()

    def drain(self) -> None:
        """The socket took everything."""
        self.queued_bytes = 0
        self.become_ready()

    def finish(self, *received: Received) -> list[bytes]:
        missing = self.channel.finish(self, [message.id for message in received])
        self.become_ready()
        return missing

    def requeue(self, received: Received, delay_ns: int = 0) -> bool:
        found = self.channel.requeue(self, received.id, delay_ns)
        self.become_ready()
        return found

    def leave(self) -> None:
        self._alarm.set(None)
        channel, self.channel = self.channel, None
        channel.remove_client(self)

    def take(self) -> list[Received]:
        """What came since this was last asked."""
        received, self.received = self.received, []
        return received

    def bodies(self) -> list[bytes]:
        return [message.body for message in self.take()]

    def _on_deadline(self, now_ns: int) -> None:
        if self.channel is None:
            return
        if self.channel.expire(self.in_flight, now_ns):
            self.become_ready()
        self._alarm.set(self.in_flight.next_deadline_ns)


def parse_messages(data: bytes) -> list[Received]:
    """Message frames, one after the other."""
    messages = []
    position = 0
    while position < len(data):
        size, kind, timestamp_ns, attempts, message_id = _HEAD.unpack_from(data, position)
        assert kind == MESSAGE
        after = position + 4 + size
        assert after <= len(data)
        messages.append(Received(message_id, attempts, data[position + _HEAD.size : after], timestamp_ns))
        position = after
    return messages


class FakePublisher:
    """Notes what became of what it published."""

    def __init__(self) -> None:
        self.failures: list[tuple[int, OSError]] = []
        self.holds = 0

    def publish_failed(self, ticket: int, error: OSError) -> None:
        self.failures.append((ticket, error))

    def hold(self) -> None:
        self.holds += 1

    def release(self) -> None:
        self.holds -= 1


def publish(
    topic: Topic, *bodies: bytes, defer_ns: int = 0, publisher: FakePublisher | None = None
) -> FakePublisher:
    """Publish one batch, which is written at the end of the iteration."""
    publisher = publisher or FakePublisher()
    body = sized(*bodies)
    topic.buffer.publish(body, len(bodies), uniform_stride(body, len(bodies)), publisher, 0, defer_ns)
    return publisher


def limits(**changed: Any) -> Any:
    """Options of an nsqd that does nothing by itself soon, and limits nothing that a test does not."""
    ours = {
        "max_channels_per_topic": 0,
        "max_topics": 0,
        "max_new_topics_per_second": 0,
        "sync_every": 1 << 40,
        "sync_timeout_ns": 1_000 * SECOND,
        "node_id": 7,
        "broadcast_address": "127.0.0.1",
        "broadcast_tcp_port": 4150,
        "min_free_disk_bytes": 0,
        "http_address": "127.0.0.1:4151",
    }
    return NSQD.defaults(**ours | changed)


def start_broker(
    world: World, directory: Path, *, is_same_boot: bool = False, store: Any = None, **changed: Any
) -> Broker:
    """A broker on what is in the directory, and beyond it in a `Store`."""
    options = limits(**changed)
    options.data_path = str(directory)
    broker = Broker(
        options,
        world.log,
        world.iteration,
        world.alarms,
        FakeThreadPool(),
        clock=world.clock,
        wall_clock=world.clock,
    )
    broker.disk_speed.is_measured = False  # a busy machine is no slow disk
    # What greenlets do in the background is done at once.
    broker.metadata.want = broker.metadata.persist  # type: ignore[method-assign]
    broker.logs._run_in_background = lambda work: work()  # type: ignore[method-assign]
    # `run` is called by those tests that want it: the greenlet of a broker that was killed must not come back.
    broker.housekeeper._start = lambda: None  # type: ignore[method-assign]
    if store is not None:
        broker.logs.use_store(store)
    load(broker, directory, is_same_boot=is_same_boot)
    return broker


def close_descriptors(directory: Path) -> None:
    """What the kernel does for a process that is killed: close its files in the directory as they are."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith(str(directory)):
                os.close(int(name))
    # Others get these numbers: nobody may close them on behalf of the files that had them.
    for file in [file for file in OPEN_FILES._files if file.path.is_relative_to(directory)]:
        OPEN_FILES.forget(file)
