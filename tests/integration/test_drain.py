"""Taking an nsqd out of service: it takes no more, delivers what it has, and ends."""

from __future__ import annotations

import contextlib
import http.client
import re
import signal

import pytest

from tests.support.nsqd_process import wait_until
from tests.support.wire import bodies, dpub, mpub, pub, req

pytestmark = pytest.mark.ours

LEFT_MESSAGES = 3  # the exit status that docs/operations.md gives

REFUSED = {
    "PUB": pub("orders", b"late"),
    "MPUB": mpub("orders", [b"late", b"later"]),
    "DPUB": dpub("orders", 100, b"late"),
    "PUB to a new topic": pub("new", b"late"),
    "PUB PUB": pub("orders", b"late") * 2,
}


@pytest.mark.parametrize("by_signal", [False, True])
def test_everything_is_delivered_and_then_nsqd_ends(nsqd, by_signal):
    with nsqd.consumer("orders", "billing", 2) as consumer:
        nsqd.mpub("orders", [b"%d" % number for number in range(10)])
        nsqd.dpub("orders", 300, b"deferred")
        first, second = consumer.messages(2)
        if by_signal:
            nsqd.signal(signal.SIGUSR1)
        else:
            nsqd.post("/drain")
        wait_until(lambda: nsqd.http("GET", "/health").status == 503)
        consumer.send(req(first.id, 200))
        consumer.fin(second)
        rest = consumer.consume(9)
        assert nsqd.is_running
        last = consumer.consume(1)
    # When the two that wait come depends on how long this test took.
    came = sorted([*bodies(rest), *bodies(last)])
    assert came == [b"0", *[b"%d" % number for number in range(2, 10)], b"deferred"]
    assert nsqd.wait() == 0
    assert "INFO: NSQ: drained, no messages are left" in nsqd.log_text()


def test_publishers_are_told_why_and_their_messages_are_not_taken(nsqd):
    with contextlib.ExitStack() as stack:
        producers = {name: stack.enter_context(nsqd.connect()) for name in REFUSED}
        for producer in producers.values():
            producer.pub("orders", b"taken", b"taken")  # the second one on the short way of a lone PUB
        nsqd.post("/drain")
        for name, producer in producers.items():
            answer = producer.ask(REFUSED[name])
            verb = name.split(" ")[0]
            assert answer.data == f"E_{verb}_FAILED {verb} failed nsqd is draining".encode()
            assert producer.rest() == []
    assert [topic["depth"] for topic in nsqd.stats()["topics"]] == [2 * len(REFUSED)]


def test_http_publishers_go_elsewhere(nsqd):
    with contextlib.closing(
        http.client.HTTPConnection("127.0.0.1", nsqd.http_port, timeout=40)
    ) as connection:

        def ask(path):
            connection.request("POST", path, b"x")
            answer = connection.getresponse()
            return answer.status, answer.read()

        for _ in range(3):  # then its head is known
            assert ask("/pub?topic=orders") == (200, b"OK")
        nsqd.post("/drain")
        for path in (
            "pub?topic=orders",
            "pub?topic=new",
            "mpub?topic=orders",
            "mpub?topic=orders&binary=true",
            "pub?topic=orders",
        ):
            assert ask(f"/{path}") == (503, b'{"message":"DRAINING"}'), path
    assert [topic["depth"] for topic in nsqd.stats()["topics"]] == [3]


def test_its_state_is_seen(nsqd):
    nsqd.post("/pub?topic=orders", b"kept")
    assert not [key for key in nsqd.stats() if key.startswith("drain")]
    answer = nsqd.post("/drain?timeout=1h").json()
    assert answer["draining"] is True
    assert answer["drain_messages_left"] == 1
    assert answer["drain_deadline"] - answer["drain_start_time"] == 3600
    assert {key: value for key, value in nsqd.stats().items() if key.startswith("drain")} == answer
    assert nsqd.stats()["health"] == "NOK - draining"
    health = nsqd.http("GET", "/health?format=json")
    assert (health.status, health.json()["status"], health.json()["ready"]) == (503, "draining", False)
    assert health.json()["live"] and nsqd.is_healthy()  # a restart would end the drain
    assert "Health: NOK - draining" in nsqd.http("GET", "/stats").text


def test_nsqlookupd_forgets_it_while_its_consumers_go_on(make_nsqd, make_nsqlookupd):
    lookupd = make_nsqlookupd()
    nsqd = make_nsqd(f"--lookupd-tcp-address=127.0.0.1:{lookupd.tcp_port}")
    nsqd.create("orders", "billing")
    wait_until(lambda: lookupd.channel_producers("orders", "billing"))
    with nsqd.consumer("orders", "billing", 1) as consumer:
        nsqd.post("/pub?topic=orders", b"first")
        message = consumer.message()
        nsqd.post("/drain")
        wait_until(lambda: not lookupd.nodes())
        assert lookupd.lookup("orders") == []
        nsqd.http("PUT", "/config/nsqlookupd_tcp_addresses", f'["127.0.0.1:{lookupd.tcp_port}"]'.encode())
        with nsqd.connect() as another:
            another.sub("orders", "audit")
        consumer.round_trip()
        assert lookupd.nodes() == []
        consumer.fin(message)
        assert nsqd.wait() == 0


def test_messages_that_are_left_at_the_time_limit_are_there_after_the_next_start(make_nsqd):
    nsqd = make_nsqd("--drain-timeout=200ms")
    with nsqd.consumer("orders", "billing", 1) as consumer:
        nsqd.pub("orders", b"left", b"in flight")
        nsqd.dpub("orders", 3_000_000, b"deferred for long")
        consumer.message()
        nsqd.signal(signal.SIGUSR1)
        assert nsqd.wait() == LEFT_MESSAGES
    assert re.search(
        "WARNING: NSQ: the drain ends .* 3 messages left, which stay in the log", nsqd.log_text()
    )
    nsqd.start()
    nsqd.wait_for_channel("orders", "billing", depth=2, deferred_count=1)
    assert nsqd.is_healthy()
    assert nsqd.http("POST", "/pub?topic=orders", b"as ever").body == b"OK"


def test_a_stop_does_not_wait_for_the_drain(nsqd):
    nsqd.post("/pub?topic=orders", b"left")
    nsqd.post("/drain")
    assert nsqd.stop() == 0
    assert "drained" not in nsqd.log_text()
    assert "WARNING: NSQ: stopping while draining, 1 messages are left" in nsqd.log_text()
    assert "NSQ: bye" in nsqd.log_text()
    nsqd.start()
    assert nsqd.topic_stats("orders")["depth"] == 1
