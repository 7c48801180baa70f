"""Directories that earlier versions wrote, stopped or killed, are opened by this one: every message is where it was."""

from __future__ import annotations

import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nsqd_py.broker.broker import Broker
from nsqd_py.broker.lifetime.shutdown import close as close_broker
from tests.unit.fakes import SECOND, FakeConsumer, Received, World, close_descriptors, start_broker
from tests.upgrade.write_directory import (
    DIRECTORIES,
    HELD,
    IN_FLIGHT,
    KEPT_LARGE,
    LATER,
    LONELY,
    ORDERS,
    PUT_OFF,
    REQUEUED,
)

pytestmark = pytest.mark.ours

YEARS_NS = 11 * 365 * 24 * 3600 * SECOND
ARCHIVES = sorted(DIRECTORIES.glob("*.tar.xz"))


class Opened:
    """A broker of this version on a directory, as of today."""

    def __init__(self, directory: Path) -> None:
        self.world = World()
        self.world.clock.now_ns = time.time_ns()
        self.broker: Broker = start_broker(self.world, directory)
        self._consumers: dict[tuple[str, str], FakeConsumer] = {}

    def counts(self, topic: str, channel: str) -> tuple[int, int]:
        found = self.broker.topics[topic].channels[channel]
        return found.depth, found.deferred_count

    def take(self, topic: str, channel: str) -> dict[bytes, Received]:
        """Deliver and finish what is ready."""
        if (topic, channel) not in self._consumers:
            consumer = FakeConsumer(self.world, rdy=1000, msg_timeout_ns=1000 * SECOND)
            self._consumers[topic, channel] = consumer.subscribe(self.broker.topics[topic].channels[channel])
        consumer = self._consumers[topic, channel]
        self.world.run()
        received = consumer.take()
        consumer.finish(*received)
        assert self.broker.health() is None
        return {message.body: message for message in received}


@contextmanager
def opened(archive: Path, directory: Path) -> Iterator[Opened]:
    with tarfile.open(archive) as file:
        file.extractall(directory, filter="data")
    try:
        found = Opened(directory)
        yield found
        assert found.world.log.errors == []
    finally:
        close_descriptors(directory)


def test_there_are_directories_of_several_versions():
    versions = {archive.name.rsplit("-", 1)[0] for archive in ARCHIVES}
    assert len(versions) >= 4
    assert len(ARCHIVES) == 2 * len(versions)


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_every_message_is_where_it_was(archive, tmp_path):
    with opened(archive, tmp_path) as now:
        topics = now.broker.topics
        assert set(topics) == {"orders", "held", "lonely", "sparse"}
        assert (topics["held"].is_paused, topics["orders"].is_paused) == (True, False)
        assert topics["orders"].channels["archive"].is_paused
        assert (topics["held"].depth, topics["lonely"].depth) == (len(HELD), len(LONELY))

        assert now.counts("orders", "billing") == (len(IN_FLIGHT) + 1, len(PUT_OFF) + 1)
        billing = now.take("orders", "billing")
        assert set(billing) == {*IN_FLIGHT, REQUEUED}
        assert billing[REQUEUED].attempts == 2
        assert now.counts("orders", "archive") == (len(ORDERS), 1)
        now.broker.pause_channel(topics["orders"], topics["orders"].channels["archive"], False)
        assert list(now.take("orders", "archive")) == ORDERS

        now.broker.pause_topic(topics["held"], False)
        assert list(now.take("held", "c")) == HELD
        now.broker.get_channel(topics["lonely"], "new")
        assert list(now.take("lonely", "new")) == LONELY
        assert now.counts("sparse", "c") == (0, len(KEPT_LARGE))

        now.world.clock.now_ns += YEARS_NS
        now.world.pass_time(SECOND)
        assert {body: message.attempts for body, message in now.take("orders", "billing").items()} == (
            dict.fromkeys(PUT_OFF, 2) | {LATER: 1}
        )
        assert list(now.take("orders", "archive")) == [LATER]
        assert {body: message.attempts for body, message in now.take("sparse", "c").items()} == (
            dict.fromkeys(KEPT_LARGE, 2)
        )


@pytest.mark.parametrize("archive", ARCHIVES[-2:], ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_what_this_version_writes_it_finds_again(archive, tmp_path):
    with opened(archive, tmp_path) as now:
        now.take("orders", "billing")
        close_broker(now.broker)
    again = Opened(tmp_path)
    assert again.counts("orders", "billing") == (0, len(PUT_OFF) + 1)
    assert again.counts("orders", "archive") == (len(ORDERS), 1)
    close_descriptors(tmp_path)
