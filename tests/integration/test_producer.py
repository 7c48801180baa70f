"""All producers, with threads, on gevent, for asyncio, and the one that works step by step, against real nsqds."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nsqd_py import client
from nsqd_py.client.errors import BadName, ConnectionLost, NoNsqd, NsqClientError, PublishFailed, TimedOut
from nsqd_py.client.gevent import Producer as GeventProducer
from nsqd_py.client.publishing.base import BaseProducer
from nsqd_py.client.publishing.publish import BadBody, FlushFailed
from tests.support.aio_client import AioProducer
from tests.support.ledger import History, compare, judge
from tests.support.module_servers import module_nsqd
from tests.support.network import free_ports
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.sweeps import sample
from tests.support.together import run_in_greenlets, run_in_threads, wait_for_event
from tests.support.wire import bodies, mpub_body

MakeProducer = Callable[..., BaseProducer[Any, Any]]
# Runs each in a thread or greenlet of its own, and returns when all have ended; or the test fails.
RunAll = Callable[[list[Callable[[], Any]]], object]

MAX_MSG_SIZE = 1000
KINDS: dict[str, Any] = {"gevent": GeventProducer, "threads": client.Producer, "aio": AioProducer}


@pytest.fixture
def make_producer(shell) -> Iterator[MakeProducer]:
    """`make_producer(nsqd, ..., **settings)`; what is left open is closed at the end."""
    producers = []

    def make(*nsqds, **settings):
        addresses = [nsqd if isinstance(nsqd, str) else nsqd.tcp_address for nsqd in nsqds]
        producers.append(KINDS[shell](*addresses, **settings))
        return producers[-1]

    yield make
    for producer in producers:
        with contextlib.suppress(NsqClientError):  # what it could not publish was the test's wish
            producer.close(timeout_s=0)


@pytest.fixture
def run_all(shell) -> RunAll:
    return run_in_greenlets if shell == "gevent" else run_in_threads


# For all tests that leave it as it is; each has its own topic.
nsqd = module_nsqd(f"--max-msg-size={MAX_MSG_SIZE}")


other_nsqd = module_nsqd()  # it may be stopped and continued


def connections_of(nsqd: NsqdProcess) -> int:
    """How many connections of clients it has, as the kernel sees them."""
    local = f"0100007F:{nsqd.tcp_port:04X}"
    rows = Path(f"/proc/{nsqd.pid}/net/tcp").read_text().splitlines()[1:]
    established = "01"
    return sum(row.split()[1] == local and row.split()[3] == established for row in rows)


def drain(topic: str, *nsqds: NsqdProcess) -> Counter[bytes]:
    """All messages of a topic on these nsqds, with how often each is there."""
    return Counter(body for nsqd in nsqds for body in bodies(nsqd.consume(topic, "ch", depth(nsqd, topic))))


def depth(nsqd: NsqdProcess, topic: str) -> int:
    stats = nsqd.topic_stats(topic) or {"depth": 0, "channels": ()}
    return int(stats["depth"]) + sum(int(channel["depth"]) for channel in stats["channels"] or ())


# ---- the ways to publish


def test_publish_returns_when_it_is_stored(nsqd, make_producer, topic):
    producer = make_producer(nsqd)
    producer.publish(topic, b"one")
    assert depth(nsqd, topic) == 1
    producer.publish(topic, bytearray(b"two"))
    producer.publish(topic, memoryview(b"three"))
    messages = [b"%d" % number for number in range(5000)]
    producer.multi_publish(topic, messages[:100])
    assert depth(nsqd, topic) == 103
    publishes = [producer.publish_soon(topic, message) for message in messages[100:]]
    producer.flush()
    assert all(publish.is_over and publish.error is None for publish in publishes)
    assert bodies(nsqd.consume(topic, "ch", 5003)) == [b"one", b"two", b"three", *messages]


def test_multi_publish_soon_and_ready_made_bodies(nsqd, make_producer, topic):
    producer = make_producer(nsqd, window=4)
    for _ in range(20):
        producer.multi_publish_soon(topic, [b"a"] * 10)
        producer.send_mpub_body(topic, mpub_body([b"b"] * 10), 10)
    producer.flush()
    assert drain(topic, nsqd) == {b"a": 200, b"b": 200}


def test_on_done_tells_each_outcome(nsqd, make_producer, topic):
    producer = make_producer(nsqd)
    outcomes = []
    for size in (10, MAX_MSG_SIZE + 1, 20):
        producer.publish_soon(topic, bytes(size), outcomes.append)
    producer.flush()  # who was notified is not reported again
    assert sorted(str(getattr(outcome, "code", "OK")) for outcome in outcomes) == [
        "E_BAD_MESSAGE",
        "OK",
        "OK",
    ]


def test_closing_sends_what_is_left(nsqd, make_producer, topic, kit):
    with make_producer(nsqd) as producer:
        for _ in range(100):
            producer.publish_soon(topic, b"x")
    assert depth(nsqd, topic) == 100
    for _ in range(2):
        with pytest.raises(NoNsqd, match="closed"):
            producer.publish(topic, b"x")
        kit.sleep(0.1)  # when its connections would be looked at again
    producer.close()


@pytest.mark.parametrize("shell", ["threads"], indirect=True)
def test_closing_without_time_after_all_is_stored(nsqd, make_producer, topic):
    """A publish is over while the I/O thread still calls `on_done`: `close` does not report it as open."""
    producer = make_producer(nsqd)
    closing = threading.Event()
    publish = producer.publish_soon(topic, b"x", lambda error: wait_for_event(closing, "the close"))
    wait_until(lambda: publish.is_over)
    threading.Timer(0.0, closing.set).start()
    producer.close(timeout_s=0.0)


# ---- errors


def test_what_nsqd_would_refuse_does_not_leave(nsqd, make_producer, topic):
    producer = make_producer(nsqd)
    for error, text, call in (
        (TypeError, "encode", partial(producer.publish, topic, "text")),
        (TypeError, "int", partial(producer.multi_publish, topic, [b"a", 1])),
        (TypeError, "list", partial(producer.multi_publish, topic, b"abc")),
        (BadName, "bad topic", partial(producer.publish, "bad topic", b"x")),
        (BadBody, "empty message", partial(producer.publish_soon, topic, b"")),
        (BadBody, "nothing to publish", partial(producer.multi_publish, topic, [])),
        (BadBody, "begins with the number", partial(producer.send_mpub_body, topic, mpub_body([b"a"]), 2)),
        (ValueError, "deferred", partial(producer.publish, topic, b"x", defer_s=-1)),
    ):
        with pytest.raises(error, match=text):
            call()
    producer.publish(topic, b"good")
    assert drain(topic, nsqd) == {b"good": 1}


def test_a_refused_message_says_why(nsqd, make_producer, topic):
    producer = make_producer(nsqd)
    with pytest.raises(PublishFailed) as caught:
        producer.publish(topic, bytes(MAX_MSG_SIZE + 1))
    assert (caught.value.code, caught.value.address) == ("E_BAD_MESSAGE", nsqd.tcp_address)
    assert "too big" in caught.value.text
    producer.publish(topic, b"the next one")
    with pytest.raises(PublishFailed) as caught:
        producer.publish(topic, b"x", defer_s=1e9)
    assert caught.value.code == "E_INVALID"
    assert drain(topic, nsqd) == {b"the next one": 1}


@pytest.mark.parametrize("retry_unknown", [True, pytest.param(False, marks=pytest.mark.ours)])
def test_bad_ones_among_many_fail_alone(nsqd, make_producer, topic, retry_unknown):
    """Each ends the connection, and what was sent behind it is sent again, once.

    Where nsqd resets the connection, as Go's does, the error and the answers before it may be lost on their way: then
    it takes a publish alone on its connection to find out which one is bad.
    """
    producer = make_producer(nsqd, retry_unknown=retry_unknown)
    expected = [b"%d" % number for number in range(600) if number % 200 != 100]
    for number in range(600):
        producer.publish_soon(topic, bytes(MAX_MSG_SIZE + 1) if number % 200 == 100 else b"%d" % number)
    with pytest.raises(FlushFailed) as caught:
        producer.flush()
    assert (caught.value.count, caught.value.code) == (3, "E_BAD_MESSAGE")
    producer.flush()  # reported once
    compare(expected, drain(topic, nsqd).elements(), at_least_once=retry_unknown).require_sound()


def test_an_address_where_nobody_listens_is_told_at_once(make_producer, topic):
    port = free_ports(1)[0]
    producer = make_producer(f"127.0.0.1:{port}", publish_timeout_s=60)
    began_s = time.monotonic()
    with pytest.raises(NoNsqd, match=f"127.0.0.1:{port}: cannot connect"):
        producer.publish(topic, b"x")
    with pytest.raises(NoNsqd):
        producer.ping()
    assert time.monotonic() - began_s < 40


def test_one_that_comes_later_is_found(make_nsqd, make_producer, topic, kit):
    (port,) = free_ports(1)
    producer = make_producer(f"127.0.0.1:{port}")
    with pytest.raises(NoNsqd):
        producer.ping()
    make_nsqd(f"--tcp-address=127.0.0.1:{port}")

    def is_there():
        with contextlib.suppress(NoNsqd):
            producer.publish(topic, b"x")
            return True
        return False

    kit.wait(is_there)


def test_ping_connects(nsqd, make_producer):
    wait_until(lambda: not connections_of(nsqd))
    producer = make_producer(nsqd)
    assert not connections_of(nsqd)
    producer.ping()
    producer.ping()
    assert connections_of(nsqd) == 1


# ---- several nsqds, and those that fail


def use_all(producer: Any, topic: str, *nsqds: NsqdProcess) -> None:
    """Publish until each has a message."""

    def all_are_used():
        producer.publish(topic, b"x")
        return all(depth(nsqd, topic) for nsqd in nsqds)

    wait_until(all_are_used)


def test_all_nsqds_are_used(nsqd, other_nsqd, make_producer, topic):
    producer = make_producer(nsqd, other_nsqd)
    use_all(producer, topic, nsqd, other_nsqd)
    before = depth(nsqd, topic), depth(other_nsqd, topic)
    for _ in range(20):
        producer.publish(topic, b"x")
    assert (depth(nsqd, topic), depth(other_nsqd, topic)) == (before[0] + 10, before[1] + 10)


@pytest.mark.ours
def test_what_was_acknowledged_survives_the_loss_of_an_nsqd(make_nsqd, make_producer, run_all, kit, topic):
    doomed, other = make_nsqd(), make_nsqd()
    producer = make_producer(doomed, other)
    producer.ping()
    history = History()
    history.created(topic, "ch")
    is_over = False

    def publish(worker):
        number = 0
        while not is_over:
            body = b"%d.%d" % (worker, number)
            sent = history.sending(topic, [body], resends=True)
            producer.publish(topic, body)
            history.ok(sent)
            number += 1

    def end_it():
        nonlocal is_over
        try:
            kit.wait(lambda: min(depth(doomed, topic), depth(other, topic)))
            doomed.kill()
            goal = history.acknowledged + 500
            kit.wait(lambda: history.acknowledged >= goal)
        finally:
            is_over = True

    run_all([*(partial(publish, worker) for worker in range(8)), end_it])
    doomed.start()
    for body in drain(topic, doomed, other).elements():
        history.delivered(topic, "ch", body)
    verdict = judge(history).require_sound()
    assert verdict.acknowledged > 500
    assert verdict.deliveries - verdict.acknowledged <= 8 * 2  # no more than what was under way comes twice


@pytest.mark.parametrize("shell", sample("threads", "gevent", "aio"))
def test_without_retries_of_the_unknown_nothing_comes_twice(make_nsqd, make_producer, run_all, kit, topic):
    doomed, other = make_nsqd(), make_nsqd()
    producer = make_producer(doomed, other, retry_unknown=False)
    while not depth(doomed, "first"):  # until it is connected
        producer.publish("first", b"x")
    outcomes = {}
    messages = [b"%d" % number for number in range(20_000)]

    def publish():
        for message in messages:
            producer.publish_soon(topic, message, partial(outcomes.__setitem__, message))
        producer.flush()

    def end_it():
        kit.wait(lambda: depth(doomed, topic))
        doomed.stop()

    run_all([publish, end_it])
    doomed.start()
    found = drain(topic, doomed, other)
    assert set(outcomes) == set(messages)
    stored = [message for message, error in outcomes.items() if error is None]
    assert compare(stored, found.elements()).of("lost", "twice") == []
    assert all(isinstance(error, ConnectionLost) for error in outcomes.values() if error is not None)


def test_a_restart_is_waited_out(make_nsqd, make_producer, run_all, kit, topic):
    nsqd = make_nsqd(f"--tcp-address=127.0.0.1:{free_ports(1)[0]}")
    producer = make_producer(nsqd)
    producer.publish(topic, b"before")
    nsqd.stop()

    def start_it():
        kit.sleep(0.3)
        nsqd.launch()

    run_all([start_it, lambda: producer.publish(topic, b"after")])
    nsqd.wait_until_it_listens()
    assert drain(topic, nsqd).keys() == {b"before", b"after"}


def test_an_nsqd_that_hangs_is_left_for_another(nsqd, other_nsqd, make_producer, topic):
    producer = make_producer(nsqd, other_nsqd, answer_timeout_s=0.4)
    use_all(producer, topic, nsqd, other_nsqd)
    other_nsqd.signal(signal.SIGSTOP)
    try:
        messages = [b"%d" % number for number in range(500)]
        for message in messages:
            producer.publish_soon(topic, message)
        producer.flush(timeout_s=40)
        assert compare(messages, drain(topic, nsqd).elements(), at_least_once=True).of("lost") == []
    finally:
        other_nsqd.signal(signal.SIGCONT)


def test_an_nsqd_that_hangs_alone(other_nsqd, make_producer, topic):
    producer = make_producer(other_nsqd, answer_timeout_s=1.0, publish_timeout_s=3.0)
    producer.publish(topic, b"x")
    other_nsqd.signal(signal.SIGSTOP)
    try:
        with pytest.raises(TimedOut, match=f"127.0.0.1:{other_nsqd.tcp_port}"):
            producer.publish(topic, b"x")
        producer.publish_soon(topic, b"x")
        with pytest.raises(TimedOut, match="1 publish is open"):
            producer.flush(timeout_s=0.1)
        producer.publish_soon(topic, b"x")
        with pytest.raises(TimedOut, match="2 publishes are open"):
            producer.flush(timeout_s=0.0)
    finally:
        other_nsqd.signal(signal.SIGCONT)

    def goes_on():
        with contextlib.suppress(NsqClientError):
            producer.publish(topic, b"again")
            return True
        return False

    wait_until(goes_on)


# ---- found by nsqlookupd


def test_all_nsqds_of_nsqlookupds_are_used(make_nsqd, make_nsqlookupd, make_producer, topic):
    lookupd = make_nsqlookupd()
    flag = f"--lookupd-tcp-address=127.0.0.1:{lookupd.tcp_port}"
    first = make_nsqd(flag)
    wait_until(lambda: len(lookupd.nodes()) == 1)
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    producer = make_producer(lookupd_http_addresses=[nobody, lookupd.http_address], lookupd_poll_interval=0.1)
    producer.publish(topic, b"x")
    assert depth(first, topic) == 1
    use_all(producer, topic, make_nsqd(flag))  # comes later


def nsqds_of(producer: Any) -> dict[str, Any]:
    """Return the nsqds that it has."""
    return vars(producer).get("producer", producer)._core.dispatcher.writers


def test_an_nsqd_that_nsqlookupd_forgot_may_come_back(make_nsqd, make_nsqlookupd, make_producer, topic, kit):
    lookupd = make_nsqlookupd()
    address = f"127.0.0.1:{free_ports(1)[0]}"
    nsqd = make_nsqd(f"--lookupd-tcp-address=127.0.0.1:{lookupd.tcp_port}", f"--tcp-address={address}")
    wait_until(lambda: len(lookupd.nodes()) == 1)
    # Without an nsqd, it asks more often.
    producer = make_producer(lookupd_http_addresses=[lookupd.http_address])
    producer.publish(topic, b"before")
    nsqd.stop()

    def is_forgotten():
        with contextlib.suppress(NsqClientError):
            producer.flush()
        return address not in nsqds_of(producer)

    kit.wait(is_forgotten)
    nsqd.start()
    producer.publish(topic, b"after")
    assert drain(topic, nsqd).keys() == {b"before", b"after"}


def test_nsqlookupds_that_know_no_nsqd(make_nsqlookupd, make_producer, topic):
    producer = make_producer(lookupd_http_addresses=[make_nsqlookupd().http_address])
    with pytest.raises(NoNsqd, match="no nsqd is known"):
        producer.publish(topic, b"x")


# ---- the connection


def test_everything_at_once_tls_snappy_and_auth(secured_nsqd, make_producer, certificates):
    tls = {"tls_v1": True, "tls_root_ca_file": str(certificates.authority)}
    producer = make_producer(secured_nsqd, snappy=True, auth_secret="secret", **tls)
    for number in range(2000):
        producer.publish_soon("mine", b"%d" % number)
    producer.flush()
    assert depth(secured_nsqd, "mine") == 2000
    with pytest.raises(PublishFailed) as caught:
        producer.publish("yours", b"x")
    assert caught.value.code == "E_UNAUTHORIZED"
    producer.publish("mine", b"x")
    with pytest.raises(NoNsqd, match=f"127.0.0.1:{secured_nsqd.tcp_port}"):
        make_producer(secured_nsqd, auth_secret="secret").publish("mine", b"x")


# ---- shared


def test_many_share_one_producer(nsqd, make_producer, run_all, topic):
    producer = make_producer(nsqd, window=50)

    def publish(worker):
        for number in range(20):
            producer.publish(topic, b"%d.%d" % (worker, number))

    run_all([partial(publish, worker) for worker in range(40)])
    expected = [b"%d.%d" % (worker, number) for worker in range(40) for number in range(20)]
    compare(expected, drain(topic, nsqd).elements()).require_sound()


@pytest.mark.parametrize(
    "shell", sorted(KINDS.keys() - {"aio"}), indirect=True
)  # an event loop survives no fork
def test_parent_and_child_go_on_after_a_fork(nsqd, make_producer, topic):
    producer = make_producer(nsqd)
    producer.publish(topic, b"before")
    for _ in range(10):
        producer.publish_soon(topic, b"parent")  # unfinished at the fork: the child is not to send them too
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            for _ in range(20):
                producer.publish(topic, b"child")
            producer.close()
            status = 0
        finally:
            os._exit(status)
    for _ in range(20):
        producer.publish(topic, b"parent")
    producer.flush()
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    producer.publish(topic, b"after")
    assert drain(topic, nsqd) == {b"before": 1, b"parent": 30, b"child": 20, b"after": 1}
