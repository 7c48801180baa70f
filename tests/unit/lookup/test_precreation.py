"""A new topic waits for its channels, and nobody waits for it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

import gevent
from gevent.event import Event

from nsqd_py.broker.broker import Broker
from nsqd_py.lookup.peers import LookupPeers
from nsqd_py.options import NSQD
from nsqd_py.queue.topic import Topic
from tests.unit.fakes import World, sized, start_broker


class FakePeer:
    """Knows channels, says so when it may."""

    def __init__(self, *channels: str) -> None:
        self.name = "peer"
        self.asked: WeakSet[Topic] = WeakSet()
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
            topic_made=self.lookups.precreate, notify=lambda *_, **__: None, wait_until_started=self.lookups.wait_until_started
        )  # type: ignore[assignment]

    def publish(self, name: str, *bodies: bytes) -> Topic:
        topic = self.broker.get_topic(name)
        topic.buffer.publish(sized(*bodies), len(bodies), 0, None, 0)
        self.world.run()
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
