"""What the test suites of pynsq, gnsq and ansq try, on our three clients, and no other test of ours has."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nsqd_py import client
from nsqd_py.client import gevent as on_gevent
from nsqd_py.client.errors import NoNsqd
from nsqd_py.client.message import Message
from tests.support.aio_client import AioProducer
from tests.support.consumer_drivers import Driver
from tests.support.fake_nsqd import agree, agree_then, listening
from tests.support.nsqd_process import NsqdProcess

CHANNEL = "channel"
NUMBERS = itertools.count()
PRODUCERS: dict[str, Any] = {"aio": AioProducer, "gevent": on_gevent.Producer, "threads": client.Producer}

Consume = Callable[..., Driver]


@pytest.fixture
def topic() -> str:
    return f"topic{next(NUMBERS)}"


@pytest.fixture
def consume(shell: str, topic: str) -> Iterator[Consume]:
    """`consume(handler, nsqd, ..., **settings)` starts a consumer; it is stopped at the end."""
    drivers: list[Driver] = []

    def make(handler: Any, *nsqds: NsqdProcess | str, **settings: Any) -> Driver:
        addresses = [nsqd if isinstance(nsqd, str) else address_of(nsqd) for nsqd in nsqds]
        settings.setdefault("default_requeue_delay", 0)
        drivers.append(Driver(shell, topic, CHANNEL, handler, nsqd_tcp_addresses=addresses, **settings))
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.close()


def address_of(nsqd: NsqdProcess) -> str:
    return f"127.0.0.1:{nsqd.tcp_port}"


def publish(nsqd: NsqdProcess, topic: str, *bodies: bytes) -> None:
    with nsqd.connect() as connection:
        connection.mpub(topic, bodies)


def clients_of(nsqd: NsqdProcess, topic: str) -> list[dict[str, Any]]:
    return list((nsqd.channel_stats(topic, CHANNEL) or {}).get("clients") or ())


# ---- connections


def test_nsqd_shows_what_a_client_says_of_itself(shared_nsqd: NsqdProcess, consume: Consume, topic: str) -> None:
    said = {"client_id": "worker-7", "hostname": "worker.example", "user_agent": "billing/2.1", "sample_rate": 42}
    driver = consume(lambda message: None, shared_nsqd, **said)
    (shown,) = driver.wait(lambda: clients_of(shared_nsqd, topic))
    assert {name: shown[name] for name in said} == said


def test_settings_that_nsqd_refuses(
    shared_nsqd: NsqdProcess, consume: Consume, shell: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    refused = {"heartbeat_interval": "2m", "read_timeout": "4m"}  # nsqd allows a minute
    with PRODUCERS[shell](address_of(shared_nsqd), **refused) as producer, pytest.raises(NoNsqd, match="E_BAD_BODY"):
        producer.publish(topic, b"message")
    caplog.clear()
    driver = consume(lambda message: None, shared_nsqd, **refused)
    driver.wait(lambda: "E_BAD_BODY" in caplog.text)
    assert driver.consumer.running


def test_after_garbage_a_new_connection_is_opened(consume: Consume, caplog: pytest.LogCaptureFixture) -> None:
    is_opened_again = threading.Event()

    def agree_again(sock: socket.socket) -> None:
        agree(sock)
        is_opened_again.set()

    with listening(agree_then(b"\0\0\0\x0a\0\0\0\x09garbage"), agree_again) as address:
        driver = consume(lambda message: None, address)
        driver.wait(is_opened_again.is_set)
    assert "a frame of unknown kind 9" in caplog.text


# ---- messages


# ---- the flow


def test_a_pause_outlasts_backoff(shared_nsqd: NsqdProcess, consume: Consume, topic: str) -> None:
    def fail_once(message: Message) -> None:
        if message.attempts == 1:
            raise ValueError("starts back-off")

    driver = consume(fail_once, shared_nsqd, backoff_multiplier="50ms")
    publish(shared_nsqd, topic, b"message")
    driver.wait(lambda: driver.stats().backoff.level == 1)
    driver.consumer.pause()
    driver.wait(lambda: driver.stats().backoff.phase == "probing")
    assert driver.wait(lambda: clients_of(shared_nsqd, topic))[0]["ready_count"] == 0
    assert driver.stats().finished == 0
    driver.consumer.resume()
    driver.wait(lambda: driver.stats().finished == 1 and driver.stats().backoff.phase == "flowing")


# ---- the table above
