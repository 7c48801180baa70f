"""All consumers, with threads, on gevent and for asyncio, against real nsqds."""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from nsqd_py.client import Consumer as ThreadedConsumer
from nsqd_py.client.errors import BadAddress, BadClientOption, BadName
from nsqd_py.client.message import Message
from tests.support.consumer_drivers import SHELLS, Driver, Shell
from tests.support.network import free_ports
from tests.support.nsqd_process import NsqdProcess
from tests.support.sweeps import sample

TOPIC, CHANNEL = "topic", "channel"

MakeConsumer = Callable[..., Driver]
Make = Callable[..., Any]


@pytest.fixture
def nsqd(nsqd_without_topics) -> NsqdProcess:
    return nsqd_without_topics


@pytest.fixture
def consume(shell) -> Iterator[MakeConsumer]:
    """`consume(handler, nsqd, ..., **settings)` starts a consumer; it is stopped at the end."""
    drivers = []

    def start(handler, *nsqds, **settings):
        settings.setdefault("nsqd_tcp_addresses", [nsqd.tcp_address for nsqd in nsqds])
        drivers.append(Driver(shell, TOPIC, CHANNEL, handler, **settings))
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.close()


@pytest.fixture
def make(kit, address) -> Make:
    """`make(handler, **settings)` makes a consumer that is not started."""
    return partial(kit.consumer, TOPIC, CHANNEL, nsqd_tcp_addresses=address)


def publish(nsqd: NsqdProcess, *bodies: bytes) -> None:
    nsqd.mpub(TOPIC, bodies)


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def channel_of(nsqd: NsqdProcess) -> dict[str, Any]:
    return nsqd.channel_stats(TOPIC, CHANNEL) or {"clients": ()}


def ready_count(nsqd: NsqdProcess) -> int:
    """What all clients of the channel have asked for."""
    return sum(client["ready_count"] for client in channel_of(nsqd)["clients"])


def is_done(nsqd: NsqdProcess) -> bool:
    return nsqd.is_empty(TOPIC, CHANNEL) and channel_of(nsqd)["deferred_count"] == 0


class Keep:
    """A handler that keeps its messages, which are answered later."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def __call__(self, message: Message) -> None:
        message.detach()
        self.messages.append(message)


# ---- handlers


def test_a_handler_gets_every_message_once(nsqd, consume):
    publish(nsqd, *numbers(1000))
    got = []
    driver = consume(got.append, nsqd, max_in_flight=100)
    driver.wait(lambda: is_done(nsqd))
    assert [message.body for message in got] == numbers(1000)
    first = got[0]
    assert (first.topic, first.channel, first.nsqd, first.attempts) == (TOPIC, CHANNEL, nsqd.tcp_address, 1)
    assert len(first.id) == 16
    assert 0 <= time.time_ns() - first.timestamp_ns < 60e9
    assert first.is_answered
    stats = driver.stats()
    assert (stats.received, stats.finished, stats.requeued, stats.in_flight) == (1000, 1000, 0, 0)
    lane = stats.connections[nsqd.tcp_address]
    assert (lane.rdy, lane.received, lane.in_flight) == (100, 1000, 0)


def test_a_failed_message_comes_again_and_slows_the_consumer(nsqd, consume):
    attempts = Counter()
    phases = []

    def fail_twice(message):
        attempts[message.body] += 1
        phases.append(driver.stats().backoff.phase)
        if message.body == b"bad" and message.attempts < 3:
            raise ValueError("not yet")

    driver = consume(fail_twice, nsqd, max_in_flight=1, default_requeue_delay=0, backoff_multiplier="20ms")
    publish(nsqd, b"bad", b"good")
    driver.wait(lambda: is_done(nsqd))
    assert attempts == {b"bad": 3, b"good": 1}
    assert phases[0] == "flowing"
    assert "probing" in phases
    driver.wait(lambda: driver.stats().backoff.phase == "flowing" or publish(nsqd, b"more"))
    assert driver.stats().requeued == 2


def test_a_message_that_comes_too_often_is_given_up(nsqd, consume):
    seen = []
    given_up = []

    def fail(message):
        seen.append(message.attempts)
        raise ValueError

    driver = consume(
        fail,
        nsqd,
        max_attempts=2,
        default_requeue_delay=0,
        max_backoff_duration=0,
        on_give_up=given_up.append,
    )
    publish(nsqd, b"hopeless")
    driver.wait(lambda: is_done(nsqd) and given_up)
    assert seen == [1, 2]
    assert [message.body for message in given_up] == [b"hopeless"]
    assert driver.stats().given_up == 1


def test_a_detached_message_is_answered_later(nsqd, consume):
    keep = Keep()

    def fail(message):
        keep(message)
        raise ValueError("says nothing of a message that is detached")

    driver = consume(fail, nsqd, max_in_flight=2)
    publish(nsqd, b"one", b"two")
    driver.wait(lambda: len(keep.messages) == 2)
    assert driver.stats().in_flight == channel_of(nsqd)["in_flight_count"] == 2
    assert driver.stats().backoff.level == 0
    for message in keep.messages:
        message.finish()
    driver.wait(lambda: is_done(nsqd))


def test_batches_are_columns_that_are_answered_at_any_time(nsqd, consume):
    batches = []
    publish(nsqd, *numbers(50))
    driver = consume(None, nsqd, batch_handler=batches.append, max_in_flight=50)
    driver.wait(lambda: sum(map(len, batches)) == 50)
    assert [body for batch in batches for body in batch.bodies] == numbers(50)
    assert {attempts for batch in batches for attempts in batch.attempts} == {1}
    assert len({message_id for batch in batches for message_id in batch.ids}) == 50
    assert driver.stats().in_flight == 50
    first, *others = batches  # what is requeued may be here again at once
    first.requeue(0, ids=first.ids[:1])
    first.finish_some(first.ids[1:3])
    for batch in (first, *others):
        batch.finish()
    driver.wait(lambda: sum(map(len, batches)) == 51)
    assert batches[-1].attempts == [2]
    batches[-1].finish()
    driver.wait(lambda: is_done(nsqd))


# ---- iteration


def test_a_loop_finishes_a_message_when_it_asks_for_the_next(nsqd, make):
    publish(nsqd, *numbers(10))
    got = []
    consumer = make(max_in_flight=4)
    for message in consumer:
        got.append(message.body)
        if len(got) == 5:
            break
    assert got == numbers(5)
    stats = nsqd.wait_for_channel(TOPIC, CHANNEL, depth=6, in_flight_count=0, deferred_count=0)
    assert stats["client_count"] == 0
    assert consumer.stats().finished == 4
    assert not consumer.running


def test_a_loop_that_fails_gives_its_message_back(nsqd, make):
    publish(nsqd, b"one")
    with pytest.raises(ZeroDivisionError):
        for _ in make():
            _ = 1 // 0
    nsqd.wait_for_channel(TOPIC, CHANNEL, depth=1, in_flight_count=0, deferred_count=0)


def test_a_loop_may_answer_by_itself_and_stop(nsqd, make):
    publish(nsqd, b"later", b"last", b"other")
    consumer = make(max_in_flight=3)
    for message in consumer:
        if message.body == b"later":
            message.requeue(60, backoff=False)
        if message.body == b"last":
            consumer.stop()
    nsqd.wait_for_channel(TOPIC, CHANNEL, depth=1, in_flight_count=0, deferred_count=1)
    assert consumer.stats().finished == 1


# ---- touching and time-outs


@pytest.mark.parametrize("auto_touch", [True, False])
def test_what_is_not_answered_is_touched(nsqd, consume, auto_touch):
    keep = Keep()
    driver = consume(keep, nsqd, msg_timeout="1s", auto_touch=auto_touch)
    publish(nsqd, b"slow")
    if auto_touch:
        driver.wait(lambda: driver.stats().touched >= 3)
        assert (len(keep.messages), channel_of(nsqd)["timeout_count"]) == (1, 0)
    else:
        driver.wait(lambda: len(keep.messages) == 2)
        assert channel_of(nsqd)["timeout_count"] == 1
        assert keep.messages[1].attempts == 2
        driver.wait(lambda: driver.stats().timed_out == 1)
        assert not keep.messages[0].is_live
    keep.messages[-1].finish()
    driver.wait(lambda: is_done(nsqd))


def test_an_answer_that_comes_too_late_is_counted(nsqd, consume):
    keep = Keep()
    driver = consume(keep, nsqd, msg_timeout="1s", auto_touch=False)
    publish(nsqd, b"slow")
    driver.wait(lambda: keep.messages)
    driver.consumer.pause()
    driver.wait(lambda: channel_of(nsqd)["timeout_count"] == 1)
    keep.messages[0].finish()
    driver.wait(lambda: driver.stats().refused == 1)
    assert ready_count(nsqd) == 0
    assert channel_of(nsqd)["client_count"] == 1  # such an error costs no connection


# ---- what flows


def test_a_pause_and_other_limits_reach_nsqd(nsqd, consume):
    keep = Keep()
    driver = consume(keep, nsqd, max_in_flight=10)
    driver.wait(lambda: ready_count(nsqd) == 10)
    driver.consumer.pause()
    driver.wait(lambda: ready_count(nsqd) == 0)
    assert driver.stats().is_paused
    publish(nsqd, b"waits")
    driver.consumer.set_max_in_flight(3)
    driver.consumer.resume()
    driver.wait(lambda: ready_count(nsqd) == 3 and len(keep.messages) == 1)
    assert not driver.consumer.is_starved
    publish(nsqd, *numbers(5))
    driver.wait(lambda: len(keep.messages) == 3)
    assert driver.consumer.is_starved


def test_max_in_flight_is_shared_by_all_connections(make_nsqd, consume):
    one, other = make_nsqd(), make_nsqd("--max-rdy-count=3")
    driver = consume(lambda message: None, one, other, max_in_flight=10)
    driver.wait(lambda: (ready_count(one), ready_count(other)) == (7, 3))
    other.kill()
    driver.wait(lambda: ready_count(one) == 10)


# ---- connections


def test_nsqd_shows_what_a_client_says_of_itself(nsqd, consume):
    said = {
        "client_id": "worker-7",
        "hostname": "worker.example",
        "user_agent": "billing/2.1",
        "sample_rate": 42,
    }
    driver = consume(lambda message: None, nsqd, **said)
    (shown,) = driver.wait(lambda: channel_of(nsqd)["clients"])
    assert {name: shown[name] for name in said} == said


def test_settings_that_nsqd_refuses(nsqd, consume, caplog):
    # nsqd allows a minute.
    driver = consume(lambda message: None, nsqd, heartbeat_interval="2m", read_timeout="4m")
    driver.wait(lambda: "E_BAD_BODY" in caplog.text)
    assert driver.consumer.running


def test_an_nsqd_that_returns_is_found_again(tmp_path, consume):
    tcp_port, http_port = free_ports(2)
    nsqd = NsqdProcess(tmp_path / "nsqd", ports=(tcp_port, http_port))
    got = []
    driver = consume(
        lambda message: got.append(message.body),
        nsqd_tcp_addresses=[f"127.0.0.1:{tcp_port}"],
        lookupd_poll_interval="200ms",
    )
    with nsqd:
        for expected in ([b"one"], [b"one", b"two"]):
            nsqd.start()
            driver.wait(lambda: ready_count(nsqd) == 1)
            publish(nsqd, expected[-1])
            driver.wait(lambda expected=expected: got == expected and is_done(nsqd))
            nsqd.stop()
            driver.wait(lambda: driver.stats().connections == {})
    assert driver.stats().received == 2


def test_nsqds_can_be_added(make_nsqd, consume):
    one, other = make_nsqd(), make_nsqd()
    got = []
    driver = consume(got.append, one, max_in_flight=10)
    driver.wait(lambda: ready_count(one) == 10)
    driver.consumer.connect_to_nsqd(other.tcp_address)
    driver.wait(lambda: (ready_count(one), ready_count(other)) == (5, 5))
    publish(other, b"message")
    driver.wait(lambda: len(got) == 1)


def test_a_refusal_is_logged_and_not_the_end(nsqd, consume, caplog):
    """An nsqd that wants no more consumers, or TLS, may think otherwise later."""
    driver = consume(lambda message: None, nsqd, tls_v1=True, lookupd_poll_interval="50ms")
    driver.wait(lambda: caplog.messages)
    assert f"{nsqd.tcp_address}: nsqd offers no TLS" in caplog.text
    assert driver.consumer.running
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"topic": "bad topic"}, BadName),
        ({"channel": "bad channel"}, BadName),
        ({"nsqd_tcp_addresses": ["localhost"]}, BadAddress),
        ({"lookupd_http_addresses": ["localhost"]}, BadClientOption),
        ({"handler": print, "batch_handler": print}, BadClientOption),
        ({"max_in_flight": -1}, BadClientOption),
        ({"no_such_option": 1}, BadClientOption),
        ({"concurrency": 0}, BadClientOption),
    ],
)
def test_what_cannot_be_is_refused_at_once(kit, settings, error):
    with pytest.raises(error):
        kit.consumer(**{"topic": TOPIC, "channel": CHANNEL, **settings})


# ---- the end


class Hanging:
    """A consumer whose handler hangs, until it may end."""

    def __init__(self, kit: Shell, make: Make, **settings: Any) -> None:
        self._has_begun, self.may_end = kit.event(), kit.event()
        self.consumer = make(self._hang, **settings)
        self.consumer.start()
        assert self._has_begun.wait(40)

    def _hang(self, message: Message) -> None:
        self._has_begun.set()
        self.may_end.wait()


def test_stop_waits_for_what_is_in_flight(nsqd, kit, make):
    publish(nsqd, *numbers(5))
    hanging = Hanging(kit, make, max_in_flight=3)
    stopping = kit.spawn(hanging.consumer.stop)
    kit.wait(lambda: ready_count(nsqd) == 0)
    assert not stopping.ready()
    hanging.may_end.set()
    stopping.get(timeout=40)
    assert hanging.consumer.wait(0)
    assert hanging.consumer.stats().finished == 3
    nsqd.wait_for_channel(TOPIC, CHANNEL, depth=2, in_flight_count=0, client_count=0)


def test_stop_ends_as_soon_as_the_last_answer_is_sent(nsqd, kit, make):
    """The quickest of some attempts; it takes a few ms. A consumer that has nothing to do sleeps for 0.5 s."""

    def stop_s():
        publish(nsqd, b"last")
        hanging = Hanging(kit, make)
        stopping = kit.spawn(hanging.consumer.stop)
        kit.wait(lambda: ready_count(nsqd) == 0)
        began_s = time.monotonic()
        hanging.may_end.set()
        stopping.get(timeout=40)
        return time.monotonic() - began_s

    assert any(stop_s() < 0.4 for _ in range(5))


def test_what_no_handler_has_begun_in_time_is_given_back(nsqd, kit, make):
    publish(nsqd, *numbers(5))
    hanging = Hanging(kit, make, max_in_flight=5)
    hanging.consumer.stop(timeout_s=0.05)
    hanging.may_end.set()
    # asyncio's task is cancelled, and a greenlet killed: they give their message back. A thread has no way to.
    begun = int(kit is SHELLS["threads"])
    nsqd.wait_for_channel(TOPIC, CHANNEL, depth=5 - begun, in_flight_count=begun, client_count=0)


def test_a_handler_may_stop_the_consumer(nsqd, make):
    publish(nsqd, *numbers(3))
    consumer = make(lambda message: consumer.stop())
    consumer.start()
    assert consumer.wait(40)
    assert not consumer.running
    nsqd.wait_for_channel(TOPIC, CHANNEL, depth=2, in_flight_count=0, client_count=0)


def test_stop_does_not_wait_for_an_nsqd_that_hangs(nsqd, kit):
    with socket.create_server(("127.0.0.1", 0)) as server:
        addresses = [f"127.0.0.1:{server.getsockname()[1]}", nsqd.tcp_address]
        consumer = kit.consumer(TOPIC, CHANNEL, lambda message: None, nsqd_tcp_addresses=addresses)
        consumer.start()
        kit.wait(lambda: ready_count(nsqd) == 1)
        nsqd.signal(signal.SIGSTOP)
        try:
            kit.spawn(lambda: consumer.stop(timeout_s=300)).get(timeout=40)
        finally:
            nsqd.signal(signal.SIGCONT)


# ---- handlers


def test_handlers_run_side_by_side(nsqd, kit, make):
    inside = most = 0
    all_in = kit.event()

    def handle(message):
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        if inside == 5:
            all_in.set()
        assert all_in.wait(40)
        inside -= 1

    publish(nsqd, *numbers(20))
    with make(handle, max_in_flight=20, concurrency=5):
        kit.wait(lambda: is_done(nsqd))
    assert most == 5


@pytest.mark.parametrize("shell", sample("gevent", "threads", "aio"))
def test_slow_handlers_do_not_cost_the_connection(nsqd, kit):
    """One that waits, then some that compute: nsqd wants an answer to a heartbeat within two intervals."""
    waits = kit.event()

    def handle(message):
        if message.body == b"waits":
            waits.wait()
        else:
            ends_s = time.monotonic() + 0.02
            while time.monotonic() < ends_s:
                pass

    publish(nsqd, b"waits", *numbers(120))
    began_s = time.monotonic()
    settings = {"nsqd_tcp_addresses": [nsqd.tcp_address], "max_in_flight": 200, "concurrency": 2}
    with kit.consumer(TOPIC, CHANNEL, handle, heartbeat_interval="1s", **settings) as consumer:
        kit.wait(lambda: consumer.stats().finished == 120)
        assert time.monotonic() - began_s > 2.2
        waits.set()
        kit.wait(lambda: is_done(nsqd))
        assert (consumer.stats().refused, consumer.stats().received) == (0, 121)


def test_a_loop_over_batches(nsqd, make):
    publish(nsqd, *numbers(10))
    bodies = []
    consumer = make(max_in_flight=10)
    for batch in consumer.batches(idle_timeout_s=2):
        bodies += batch.bodies
        batch.finish()
    assert bodies == numbers(10)
    nsqd.wait_for_channel(TOPIC, CHANNEL, depth=0, in_flight_count=0, client_count=0)


def test_a_child_process_has_connections_of_its_own(nsqd):
    publish(nsqd, *numbers(6))
    consumer = ThreadedConsumer(TOPIC, CHANNEL, nsqd_tcp_addresses=[nsqd.tcp_address], max_in_flight=2)
    loop = consumer.messages(idle_timeout_s=2)
    first = next(loop)
    read_end, write_end = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.write(write_end, next(consumer.messages()).body)
        finally:
            os._exit(0)
    os.close(write_end)
    body_of_child = os.read(read_end, 100)
    os.close(read_end)
    os.waitpid(pid, 0)
    rest = [message.body for message in loop]
    assert first.body == b"0"
    assert rest[0] == b"1"
    assert body_of_child in numbers(6)[2:]
    assert sorted({first.body, *rest}) == numbers(6)  # what the child had came again when it died
    assert consumer.stats().refused == 0


logging.getLogger("nsqd_py.client").setLevel(logging.WARNING)
