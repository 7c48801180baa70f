"""The names of nsqlookupds, and responses that are not understood."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import gevent
import pytest
from gevent.event import Event

from nsqd_py.broker.broker import Broker
from nsqd_py.lookup.connection import BadResponse, LookupConnection
from nsqd_py.lookup.host import LookupHost, parse_address, resolve
from nsqd_py.lookup.peers import LookupPeers
from nsqd_py.queue.topic import Topic
from nsqd_py.server.options import NSQD
from tests.unit.fakes import World, sized, start_broker

HOST = "127.0.0.1"


# --- names


def test_a_resolution_that_fails_keeps_what_is_there() -> None:
    unknown = socket.gaierror(-2, "Name or service not known")
    look_up = Mock(
        side_effect=[unknown, [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (HOST, 4160))], unknown]
    )
    log, progress = World().log, Mock()
    address = parse_address("lookup:4160")
    host = LookupHost(address, partial(resolve, look_up=look_up), log, lambda: 0.0, lambda _: False, progress)
    assert not host.resolve()
    assert (host.was_resolved, host.selection.all) == (True, ())
    assert host.resolve()
    assert not host.resolve()
    assert [str(endpoint) for endpoint in host.selection.in_use] == [f"{HOST}:4160"]
    assert progress.call_count == 3
    assert log.errors == ["LOOKUP(lookup:4160): failed to resolve - Name or service not known"] * 2


# --- a connection


@contextmanager
def connected(answer: bytes) -> Iterator[LookupConnection]:
    """A connection to a server that sends this at once."""
    with socket.create_server((HOST, 0)) as server:
        connection = LookupConnection(parse_address(f"{HOST}:{server.getsockname()[1]}").endpoint, 100)
        with server.accept()[0] as accepted, closing(connection):
            accepted.sendall(answer)
            yield connection


@pytest.mark.parametrize("size", [101, -1])
def test_a_response_that_is_too_long_is_not_read(size: int) -> None:
    answer = size.to_bytes(4, "big", signed=True)
    with connected(answer) as connection, pytest.raises(BadResponse, match=f"size \\({size}\\)"):
        connection.read()


def test_what_nothing_asked_for_is_an_error() -> None:
    with connected(sized(b"OK")) as connection, pytest.raises(BadResponse, match="nothing asked for"):
        connection.wait(Event(), 60)


# --- a new topic waits for its channels, and nobody waits for it


class FakePeer:
    """Knows channels, says so when it may."""

    def __init__(self, *channels: str) -> None:
        self.name = "peer"
        self.asked: set[str] = set()
        self.query = self
        self.may_answer = Event()
        self._channels = list(channels)

    def channels(self, topic_name: str) -> list[str]:
        self.may_answer.wait()
        return self._channels


class Scene:
    """A broker that asks the peers of this test."""

    def __init__(self, directory: Path, *peers: FakePeer) -> None:
        self.world = World()
        self.broker: Broker = start_broker(self.world, directory)
        self.peers: list[Any] = [*peers]
        self.lookups = LookupPeers(self.broker, NSQD.defaults(), self.world.log)
        self.lookups.peers_to_ask = lambda: self.peers  # type: ignore[method-assign]
        self.broker.lookups = SimpleNamespace(
            topic_made=self.lookups.precreate,
            notify=lambda *_, **__: None,
            wait_until_started=self.lookups.wait_until_started,
        )  # type: ignore[assignment]

    def publish(self, name: str, *bodies: bytes) -> Topic:
        topic = self.broker.get_topic(name)
        self.world.publish(topic, *bodies)
        return topic


def depths(topic: Topic) -> dict[str, int]:
    return {name: channel.depth for name, channel in sorted(topic.channels.items())}


def test_a_topic_that_is_deleted_meanwhile(tmp_path: Path) -> None:
    """And made again: the answer to the first is none for the second."""
    slow = FakePeer("a")
    scene = Scene(tmp_path, slow)
    topic = scene.publish("orders", b"one")
    gevent.sleep(0)
    scene.broker.delete_topic("orders")
    scene.peers = []
    again = scene.publish("orders", b"new")
    assert scene.broker.wait_until_started(again, 5)
    slow.may_answer.set()
    scene.lookups.wait_until_started(topic, 5)
    assert (depths(again), depths(topic)) == ({}, {})
    scene.lookups.close()


def test_a_channel_that_cannot_be_made_keeps_no_other_from_it(tmp_path: Path) -> None:
    peer = FakePeer("a", "b")
    peer.may_answer.set()
    scene = Scene(tmp_path, peer)
    get_channel = scene.broker.get_channel

    def fail_for_a(topic: Topic, name: str) -> Any:
        if name == "a":
            raise OSError("disk full")
        return get_channel(topic, name)

    scene.broker.get_channel = fail_for_a  # type: ignore[method-assign]
    topic = scene.publish("orders", b"one")
    assert scene.broker.wait_until_started(topic, 5)
    assert depths(topic) == {"b": 1}
    assert scene.world.log.errors == ["TOPIC(orders): failed to pre-create channel a - disk full"]
    scene.lookups.close()
