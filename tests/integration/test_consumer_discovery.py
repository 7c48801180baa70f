"""Both consumers find their nsqds through nsqlookupds, whatever these do."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.certificates import make_certificates
from tests.support.consumer_drivers import Driver
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.nsqlookupd_process import NsqlookupdProcess
from tests.support.web_server import Reply, WebServer

TOPIC, CHANNEL = "topic", "channel"
POLL = "100ms"
_PRODUCER = b'{"broadcast_address": "127.0.0.1", "tcp_port": %d}'


class Found:
    """A consumer that finds its nsqds, and what it got."""

    def __init__(self, shell: str, lookupds: list[str], settings: dict[str, Any]) -> None:
        settings.setdefault("lookupd_poll_interval", POLL)
        self.bodies: list[bytes] = []
        self.driver: Driver = Driver(
            shell,
            TOPIC,
            CHANNEL,
            lambda message: self.bodies.append(message.body),
            lookupd_http_addresses=lookupds,
            max_in_flight=10,
            **settings,
        )

    def wait_for(self, *bodies: bytes) -> None:
        """These have come, and no others."""
        self.driver.wait(lambda: sorted(self.bodies) == sorted(bodies))

    def wait_for_connections(self, *nsqds: NsqdProcess) -> None:
        wanted = {f"127.0.0.1:{nsqd.tcp_port}" for nsqd in nsqds}
        self.driver.wait(lambda: self.driver.stats().connections.keys() == wanted)


MakeFound = Callable[..., Found]


# aio hands discovery on to the consumer for threads; its own behaviour is in test_consumer.py.
@pytest.fixture(params=["gevent", "threads", pytest.param("aio", marks=pytest.mark.slow)])
def find(request) -> Iterator[MakeFound]:
    """`find(nsqlookupd, ..., **settings)` starts a consumer; it is stopped at the end."""
    started = []

    def make(*lookupds, **settings):
        addresses = [lookupd if isinstance(lookupd, str) else lookupd.http_address for lookupd in lookupds]
        started.append(Found(request.param, addresses, settings))
        return started[-1]

    yield make
    for found in started:
        found.driver.close()


@pytest.fixture
def lookupd(make_nsqlookupd) -> NsqlookupdProcess:
    return make_nsqlookupd()


def flags(*lookupds: NsqlookupdProcess) -> list[str]:
    return [f"--lookupd-tcp-address=127.0.0.1:{lookupd.tcp_port}" for lookupd in lookupds]


def publish(nsqd: NsqdProcess, body: bytes) -> None:
    nsqd.pub(TOPIC, body)


def test_a_new_nsqd_is_found(make_nsqd, lookupd, find):
    first = make_nsqd(*flags(lookupd))
    publish(first, b"first")
    found = find(lookupd)
    found.wait_for(b"first")
    second = make_nsqd(*flags(lookupd))
    publish(second, b"second")
    found.wait_for(b"first", b"second")
    found.wait_for_connections(first, second)


def test_a_topic_that_nobody_knows_is_waited_for(make_nsqd, lookupd, find, caplog):
    nsqd = make_nsqd(*flags(lookupd))
    found = find(lookupd)
    found.driver.wait(lambda: "/lookup" in lookupd.log_text())
    publish(nsqd, b"now")
    found.wait_for(b"now")
    assert caplog.messages == ["no nsqd has the topic topic: waiting until one does"]


def test_several_nsqlookupds_together(make_nsqd, make_nsqlookupd, find):
    """Each knows an nsqd of its own, and one that the other knows too."""
    one, other = make_nsqlookupd(), make_nsqlookupd()
    nsqds = [make_nsqd(*flags(one)), make_nsqd(*flags(other)), make_nsqd(*flags(one, other))]
    for number, nsqd in enumerate(nsqds):
        publish(nsqd, b"%d" % number)
    found = find(one, other)
    found.wait_for(b"0", b"1", b"2")
    found.wait_for_connections(*nsqds)


def test_an_nsqlookupd_that_dies_takes_nothing_with_it(make_nsqd, make_nsqlookupd, find, caplog):
    one, other = make_nsqlookupd(), make_nsqlookupd()
    nsqd = make_nsqd(*flags(one, other))
    publish(nsqd, b"1")
    found = find(one, other)
    found.wait_for(b"1")
    one.kill()
    found.driver.wait(lambda: one.http_address in caplog.text)
    publish(nsqd, b"2")
    found.wait_for(b"1", b"2")
    second = make_nsqd(*flags(other))
    publish(second, b"3")
    found.wait_for(b"1", b"2", b"3")
    assert len([line for line in caplog.messages if one.http_address in line]) == 1  # once a minute


def test_an_nsqd_that_leaves_is_forgotten_and_one_that_moves_is_found(make_nsqd, lookupd, find):
    nsqd = make_nsqd(*flags(lookupd))
    publish(nsqd, b"before")
    found = find(lookupd)
    found.wait_for(b"before")
    found.driver.wait(lambda: nsqd.channel_stats(TOPIC, CHANNEL)["in_flight_count"] == 0)
    nsqd.restart()
    publish(nsqd, b"after")
    found.wait_for(b"before", b"after")
    found.wait_for_connections(nsqd)


def test_a_loss_is_a_reason_to_ask_again(make_nsqd, lookupd, find):
    nsqd = make_nsqd(*flags(lookupd))
    publish(nsqd, b"message")
    wait_until(lambda: lookupd.topics() == [TOPIC])  # it is asked only once
    found = find(lookupd, lookupd_poll_interval="60s")
    found.wait_for(b"message")
    second = make_nsqd(*flags(lookupd))
    publish(second, b"second")
    wait_until(lambda: len(lookupd.lookup(TOPIC)) == 2)
    found.wait_for(b"message")  # the second is not known yet
    nsqd.stop()
    found.wait_for(b"message", b"second")


def test_an_nsqlookupd_that_hangs_holds_nobody_up(make_nsqd, lookupd, find, caplog):
    nsqd = make_nsqd(*flags(lookupd))
    publish(nsqd, b"1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        hung = f"127.0.0.1:{server.getsockname()[1]}"
        found = find(hung, lookupd, lookupd_poll_timeout="300ms")
        found.wait_for(b"1")
        found.driver.wait(lambda: caplog.messages)
        publish(nsqd, b"2")
        found.wait_for(b"1", b"2")
        assert caplog.messages == [f"nsqlookupd {hung}: no answer within 0.3s; asking again"]
        found.driver.close()


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (500, b"{}", "got response 500"),
        (200, b"\r\n" * 20_000, "too many lines"),
        (200, b'{"producers": [{"tcp_port": 1}]}', "broadcast_address"),
        (200, b"[]", "no list of producers"),
        (
            200,
            b'{"producers": [%s]}' % b",".join(_PRODUCER % port for port in range(1, 2002)),
            "only the first 2000 are used",
        ),
    ],
)
def test_an_answer_that_cannot_be_used_is_told(find, caplog, status, body, reason):
    with WebServer(lambda _: Reply(status, body=body)) as web:
        address = f"127.0.0.1:{web.port}"
        found = find(address)
        found.driver.wait(lambda: caplog.messages)
    assert caplog.messages[0].startswith(f"nsqlookupd {address}: ")
    assert reason in caplog.messages[0]


@pytest.mark.ours
def test_over_https(make_nsqd, make_nsqlookupd, find, tmp_path):
    certificates = make_certificates(tmp_path / "certificates")
    lookupd = make_nsqlookupd(*certificates.server_flags)
    nsqd = make_nsqd(*flags(lookupd))
    publish(nsqd, b"message")
    found = find(f"https://{lookupd.http_address}", tls_root_ca_file=str(certificates.authority))
    found.wait_for(b"message")
