"""Consumers of others' client libraries find their nsqds through nsqlookupd."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.cluster import Cluster, ClusterNsqd
from tests.support.nsqd_process import REPOSITORY, wait_until

MODULES = {"pynsq": "nsq", "gnsq": "gnsq", "ansq": "ansq"}
# pynsq does not come back to an nsqd within 10 s.
FOUND_S = 40.0
StartConsumer = Callable[..., "DiscoveringConsumer"]


class DiscoveringConsumer:
    """See tests/cluster/discovering_consumer.py."""

    def __init__(self, output: Path, library: str, *arguments: str) -> None:
        self._output = output
        self._errors = output.with_suffix(".err")
        command = [sys.executable, "-m", "tests.cluster.discovering_consumer", library, *arguments]
        with output.open("wb") as out, self._errors.open("wb") as err:
            self._process = subprocess.Popen(command, cwd=REPOSITORY, stdout=out, stderr=err)

    def received(self) -> set[str]:
        assert self._process.poll() is None, self._errors.read_text()
        return set(self._output.read_text().splitlines())

    def wait_for(self, bodies: set[str]) -> None:
        wait_until(lambda: bodies <= self.received(), FOUND_S, f"{len(bodies)} messages in {self._output}")

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def start_consumer(tmp_path: Path) -> Iterator[StartConsumer]:
    consumers: list[DiscoveringConsumer] = []

    def start(library: str, *arguments: str) -> DiscoveringConsumer:
        consumers.append(DiscoveringConsumer(tmp_path / f"consumer{len(consumers)}.out", library, *arguments))
        return consumers[-1]

    yield start
    for consumer in consumers:
        consumer.end()


def publish(nsqds: list[ClusterNsqd], topic: str, name: str) -> set[str]:
    """Some messages to each; their bodies."""
    sent = {nsqd: [f"{name}-{nsqd.identity}-{number}" for number in range(10)] for nsqd in nsqds}
    for nsqd, bodies in sent.items():
        with nsqd.connect() as client:
            client.pub(topic, *(body.encode() for body in bodies))
    return {body for bodies in sent.values() for body in bodies}


def test_consumers_follow_the_cluster(cluster: Cluster, topic: str, start_consumer: StartConsumer) -> None:
    """Each, on a channel of its own, receives from all nsqds, goes on when one dies, and finds one that joins.

    It finds the dead one when it is back, also while the lookupd that it asked first is gone.
    """
    libraries = [library for library, module in MODULES.items() if importlib.util.find_spec(module)]
    if not libraries:
        pytest.skip(f"needs one of the modules {', '.join(MODULES.values())}")
    first, second, third = cluster.nsqds
    for nsqd in cluster.nsqds:
        nsqd.create(topic, *libraries)
    cluster.wait_for_producers(topic, cluster.nsqds, channel=libraries[-1])
    lookupds = [lookupd.http_address for lookupd in cluster.lookupds]
    consumers = [start_consumer(library, topic, library, *lookupds) for library in libraries]

    def expect_everywhere(bodies: set[str]) -> None:
        for consumer in consumers:
            consumer.wait_for(bodies)

    expect_everywhere(publish(cluster.nsqds, topic, "all"))

    second.kill()
    guest = cluster.new_guest()
    guest.start()
    expect_everywhere(publish([first, third, guest], topic, "one-is-dead"))

    second.start()
    cluster.wait_for_producers(topic, [*cluster.nsqds, guest])
    cluster.lookupds[0].kill()
    expect_everywhere(publish([*cluster.nsqds, guest], topic, "one-is-back"))
