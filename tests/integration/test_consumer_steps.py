"""A consumer without a thread, in an event loop of somebody else: `selectors`, and a backend that connects at once."""

from __future__ import annotations

import select
import selectors
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest

from nsqd_py.client.blocking.backend import Backend
from nsqd_py.client.blocking.consuming_core import NonBlockingConsumer
from nsqd_py.client.errors import BadClientOption
from nsqd_py.client.message import Message
from nsqd_py.protocol import frames
from tests.support.fake_nsqd import listening
from tests.support.network import free_ports
from tests.support.nsqd_process import NsqdProcess
from tests.support.nsqd_side import identity
from tests.support.subscription import frame

pytestmark = pytest.mark.ours

CHANNEL = "channel"
DEADLINE_S = 60

Handle = Callable[[Message], object]


class Poll:
    """Looks at a socket, and refuses to wait for it."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self.register = self._poll.register

    def poll(self, timeout_ms: float | None) -> Any:
        assert timeout_ms == 0, "a step waited for a socket"
        return self._poll.poll(0)


class Threadless(Backend):
    select = SimpleNamespace(poll=Poll)

    def spawn(self, name: str, call: Callable[..., object], *args: object) -> None:
        call(*args)


class SteppedConsumer(NonBlockingConsumer):
    _make_backend = Threadless


class Loop:
    """An event loop that knows nothing of nsqd. It steps a consumer only when one of its descriptors, or its time, is due."""

    def __init__(self) -> None:
        self.handlers: dict[NonBlockingConsumer, Handle] = {}
        self._due_s: dict[NonBlockingConsumer, float] = {}

    def add(self, consumer: NonBlockingConsumer, handle: Handle) -> None:
        self.handlers[consumer] = handle
        self._due_s[consumer] = 0.0

    def run_until(self, is_true: Callable[[], object]) -> None:
        deadline_s = monotonic() + DEADLINE_S
        while not is_true():
            assert monotonic() < deadline_s
            self._round()

    def _round(self) -> None:
        with selectors.DefaultSelector() as selector:
            for consumer in self.handlers:
                for watched in consumer.watched:
                    selector.register(watched, selectors.EVENT_READ, consumer)
            wait_s = max(0.0, min(self._due_s.values()) - monotonic())
            ready = {key.data for key, _ in selector.select(wait_s)}
        for consumer in list(self.handlers):
            if consumer in ready or monotonic() >= self._due_s[consumer]:
                self._step(consumer)

    def _step(self, consumer: NonBlockingConsumer) -> None:
        batches = consumer.step(0)
        if batches is None:
            del self.handlers[consumer], self._due_s[consumer]
            return
        self._due_s[consumer] = monotonic() + consumer.wait_s
        for batch in batches:
            for message in batch.messages():
                self.handlers[consumer](message)


@pytest.fixture
def loop() -> Iterator[Loop]:
    """A loop in a process that has no other threads than before."""
    threads = threading.active_count()
    loop = Loop()
    yield loop
    assert threading.active_count() == threads
    for consumer in loop.handlers:
        consumer._close()


@pytest.fixture
def fixed_nsqd(make_nsqd) -> NsqdProcess:
    """An nsqd that has the same ports after a restart."""
    return make_nsqd(ports=free_ports(2))


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_10_000_messages_over_two_connections_and_a_restart(loop, fixed_nsqd, topic):
    """Every tenth message is requeued once, and every tenth is touched and answered in a later round."""
    nsqd = fixed_nsqd
    nsqd.create(topic, CHANNEL)
    nsqd.publish(topic, numbers(10_000), batch=500)
    finished: set[bytes] = set()
    requeued: Counter[bytes] = Counter()
    later: list[Message] = []

    def finish(message: Message) -> None:
        if message.is_live:
            finished.add(message.body)
        message.finish()

    def handle(message: Message) -> None:
        kind = int(message.body) % 10
        if kind == 0 and not requeued[message.body]:
            requeued[message.body] += 1
            message.requeue(0, backoff=False)
        elif kind == 1:
            message.touch()
            later.append(message)
        else:
            finish(message)
        if len(later) > 20:
            finish(later.pop(0))

    def is_done() -> bool:
        while later and len(finished) + len(later) >= 10_000:
            finish(later.pop())
        return len(finished) == 10_000 and nsqd.is_empty(topic, CHANNEL)

    addresses = [f"127.0.0.1:{nsqd.tcp_port}", f"localhost:{nsqd.tcp_port}"]
    consumer = SteppedConsumer(topic, CHANNEL, nsqd_tcp_addresses=addresses, max_in_flight=200)
    loop.add(consumer, handle)
    loop.run_until(lambda: len(finished) > 4000)
    assert len(consumer.stats().connections) == 2
    nsqd.restart()
    loop.run_until(lambda: len(consumer.stats().connections) == 2)
    loop.run_until(is_done)
    assert len(requeued) == 1000 and consumer.stats().requeued >= 1000

    consumer.begin_to_stop(DEADLINE_S)
    began_s = monotonic()
    loop.run_until(lambda: not loop.handlers)
    assert monotonic() - began_s < DEADLINE_S / 2
    nsqd.wait_for_channel(topic, CHANNEL, client_count=0, depth=0, in_flight_count=0, deferred_count=0)


def test_heartbeats_and_touches_while_a_message_is_kept(loop, shared_nsqd, address, topic):
    """nsqd would end the connection after two heartbeats without an answer, and redeliver after a second."""
    shared_nsqd.mpub(topic, [b"kept"])
    kept: list[Message] = []
    settings: Any = {"heartbeat_interval": "1s", "msg_timeout": "1s"}
    consumer = SteppedConsumer(topic, CHANNEL, nsqd_tcp_addresses=address, **settings)
    loop.add(consumer, kept.append)
    loop.run_until(lambda: kept)
    ends_s = monotonic() + 3.5
    loop.run_until(lambda: monotonic() > ends_s)
    kept[0].finish()
    loop.run_until(lambda: shared_nsqd.is_empty(topic, CHANNEL))
    stats = consumer.stats()
    assert (len(kept), stats.finished, stats.timed_out, len(stats.connections)) == (1, 1, 0, 1)
    assert stats.touched >= 3
    consumer.begin_to_stop(DEADLINE_S)
    loop.run_until(lambda: not loop.handlers)


def test_consumers_share_a_loop(loop, shared_nsqd, address, topic):
    """One stops with messages that it has not answered. The others go on, and nothing is lost."""
    names = ["stops", "goes", "stays"]
    shared_nsqd.create(topic, *names)
    shared_nsqd.publish(topic, numbers(2000), batch=100)
    finished: dict[str, set[bytes]] = {name: set() for name in names}
    kept: list[Message] = []

    def handle(message: Message) -> None:
        if message.channel == "stops" and len(finished["stops"]) >= 100:
            kept.append(message)
            return
        message.finish()
        finished[message.channel].add(message.body)

    consumers = {
        name: SteppedConsumer(topic, name, nsqd_tcp_addresses=address, max_in_flight=50) for name in names
    }
    for consumer in consumers.values():
        loop.add(consumer, handle)
    loop.run_until(lambda: len(kept) == 50)
    stopping = consumers["stops"]
    stopping.begin_to_stop(DEADLINE_S)
    loop.run_until(lambda: len(finished["goes"]) == len(finished["stays"]) == 2000)
    assert stopping in loop.handlers, "its messages are not answered"
    for message in kept:
        message.finish()
    loop.run_until(lambda: stopping not in loop.handlers)
    assert loop.handlers.keys() == {consumers["goes"], consumers["stays"]}
    left = 2000 - len(finished["stops"]) - len(kept)
    shared_nsqd.wait_for_channel(topic, "stops", depth=left, client_count=0, timeout_count=0, requeue_count=0)
    for name in ("goes", "stays"):
        consumers[name].begin_to_stop(DEADLINE_S)
    loop.run_until(lambda: not loop.handlers)
    for name in ("goes", "stays"):
        shared_nsqd.wait_for_channel(
            topic, name, depth=0, client_count=0, message_count=2000, timeout_count=0
        )


def test_the_time_of_a_stop(loop, shared_nsqd, address, topic):
    """What is not answered by then is redelivered to others."""
    shared_nsqd.mpub(topic, [b"kept"])
    kept: list[Message] = []
    consumer = SteppedConsumer(topic, CHANNEL, nsqd_tcp_addresses=address, msg_timeout="1s")
    loop.add(consumer, kept.append)
    loop.run_until(lambda: kept)
    consumer.begin_to_stop(0.2)
    loop.run_until(lambda: not loop.handlers)
    assert not kept[0].is_live
    assert [message.body for message in shared_nsqd.consume(topic, CHANNEL, 1)] == [b"kept"]


def test_an_answer_of_another_thread_ends_the_wait(shared_nsqd, address, topic):
    """Connecting happens in a thread here, as it does by default."""
    shared_nsqd.mpub(topic, [b"x"])
    loop = Loop()
    consumer = NonBlockingConsumer(topic, CHANNEL, nsqd_tcp_addresses=address)
    kept: list[Message] = []
    loop.add(consumer, kept.append)
    loop.run_until(lambda: kept)
    answering = threading.Thread(target=kept[0].finish)
    answering.start()
    with selectors.DefaultSelector() as selector:
        selector.register(consumer.watched[0], selectors.EVENT_READ)
        assert selector.select(DEADLINE_S)
    answering.join()
    loop.run_until(lambda: shared_nsqd.is_empty(topic, CHANNEL))
    consumer.begin_to_stop(DEADLINE_S)
    loop.run_until(lambda: not loop.handlers)


def test_a_step_does_not_wait_for_room_in_a_socket(loop, topic):
    """nsqd reads no answers, but ends the subscription. All answers are sent later, and the stop waits for that."""
    may_end, may_read = threading.Event(), threading.Event()
    received: list[bytes] = []

    def behave(sock: Any) -> None:
        sock.recv(65536)
        sock.sendall(identity(max_rdy_count=50_000))
        sock.recv(65536)
        sock.sendall(frames.OK)
        while b"RDY" not in sock.recv(65536):
            pass
        sock.sendall(b"".join(frame(number) for number in range(50_000)))
        assert may_end.wait(40)
        sock.sendall(frames.response(b"CLOSE_WAIT"))
        assert may_read.wait(40)
        while data := sock.recv(1 << 20):
            received.append(data)

    with listening(behave) as address:
        consumer = SteppedConsumer(topic, CHANNEL, nsqd_tcp_addresses=address, max_in_flight=50_000)
        kept: list[Message] = []
        loop.add(consumer, kept.append)
        loop.run_until(lambda: consumer._nsqds[address].connection if consumer._nsqds else None)
        consumer._nsqds[address].connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        loop.run_until(lambda: len(kept) == 50_000)
        for message in kept:
            message.finish()
        consumer.step(0)
        assert consumer._nsqds[address].connection.has_unsent
        consumer.begin_to_stop(DEADLINE_S)
        may_end.set()
        loop.run_until(lambda: consumer._nsqds[address]._nsqd_is_done)
        assert consumer in loop.handlers
        may_read.set()
        loop.run_until(lambda: not loop.handlers)
    assert b"".join(received).count(b"FIN ") == 50_000


def test_handlers_are_refused():
    with pytest.raises(BadClientOption, match="a consumer with a handler"):
        NonBlockingConsumer("topic", CHANNEL, print, nsqd_tcp_addresses="127.0.0.1:4150")
