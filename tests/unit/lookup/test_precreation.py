"""A new topic waits for its channels, and nobody waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

import gevent
import pytest
from gevent.event import Event

from nsqd_py.broker.broker import Broker
from nsqd_py.lookup.peers import LookupPeers
from nsqd_py.net.http.client import HttpClientError
from nsqd_py.options import NSQD
from nsqd_py.queue.topic import Topic
from tests.unit.fakes import World, sized, start_broker


class FakePeer:
    """Knows channels, says so when it may."""

    def __init__(self, *channels: str, is_hung: bool = False, error: str = "") -> None:
        self.name = "peer"
        self.asked: WeakSet[Topic] = WeakSet()
        self.query = self
        self.may_answer = Event()
        self.questions: list[str] = []
        self._channels = list(channels)
        self._error = error
        if not is_hung:
            self.may_answer.set()

    def channels(self, topic_name: str) -> list[str]:
        self.questions.append(topic_name)
        self.may_answer.wait()
        if self._error:
            raise HttpClientError(self._error)
        return self._channels


class Scene:
    """A broker that asks the peers of this test."""

    def __init__(self, directory: Path) -> None:
        self.world = World()
        self.warnings: list[str] = []
        self.world.log.warning = lambda text, *args: self.warnings.append(text % args)
        self.broker: Broker = start_broker(self.world, directory)
        self.peers: list[Any] = []
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


@pytest.fixture
def make_scene(tmp_path: Path) -> Iterator[Callable[..., Scene]]:
    scenes: list[Scene] = []

    def make(*peers: FakePeer) -> Scene:
        scene = Scene(tmp_path)
        scene.peers += peers
        scenes.append(scene)
        return scene

    yield make
    for scene in scenes:
        scene.lookups.close()


MakeScene = Callable[..., Scene]


def test_a_topic_that_is_deleted_meanwhile(make_scene: MakeScene) -> None:
    """And made again: the answer to the first is none for the second."""
    slow = FakePeer("a", is_hung=True)
    scene = make_scene(slow)
    topic = scene.publish("orders", b"one")
    gevent.sleep(0)
    scene.broker.delete_topic("orders")
    scene.peers = []
    again = scene.publish("orders", b"new")
    assert scene.broker.wait_until_started(again, 5)
    slow.may_answer.set()
    scene.lookups.wait_until_started(topic, 5)
    assert (depths(again), depths(topic)) == ({}, {})


def test_a_channel_that_cannot_be_made_keeps_no_other_from_it(make_scene: MakeScene) -> None:
    scene = make_scene(FakePeer("a", "b"))
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
