"""A primary and its standby are upgraded one after the other under load, as docs/standby.md says: no publish fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.etcd import ETCD, Etcd
from tests.support.ledger import History, judge, lost_so_far
from tests.support.network import port_pairs
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.nsqlookupd_process import NsqlookupdProcess
from tests.support.standby_processes import promote, wait_until_it_follows, wait_until_it_serves
from tests.upgrade.publishers import DEADLINE_S, TOPIC, Publishers, noting_consumer

pytestmark = pytest.mark.ours

CHANNEL = "billing"
ACKS = ("--standby-acks=1", "--standby-timeout=30s")


class Pair:
    """nsqlookupd and two nsqds on ports that they keep, of which the first is the primary."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ports = port_pairs(2)
        self.lookupd = NsqlookupdProcess(directory / "nsqlookupd.log").start()
        self.nsqds: dict[int, NsqdProcess] = {}

    def address(self, number: int) -> str:
        return f"127.0.0.1:{self._ports[number][0]}"

    def start(self, number: int, *flags: str) -> NsqdProcess:
        """Start an nsqd that serves or follows. Here its program would be replaced by the new version."""
        self.nsqds[number] = NsqdProcess(
            self._directory / f"nsqd{number}",
            *ACKS,
            f"--node-id={number}",
            f"--lookupd-tcp-address=127.0.0.1:{self.lookupd.tcp_port}",
            *flags,
            ports=self._ports[number],
        ).start()
        return self.nsqds[number]

    def close(self) -> None:
        for process in (*self.nsqds.values(), self.lookupd):
            process.destroy()


@pytest.fixture
def pair(tmp_path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    yield pair
    pair.close()


def upgrade_by_hand(pair: Pair, publishers: Publishers) -> None:
    first, second = pair.nsqds[0], pair.nsqds[1]
    second.stop()
    second = pair.start(1, f"--standby-of={pair.address(0)}")
    wait_until_it_follows(second)
    publishers.go_on()
    first.stop()
    promote(second)
    wait_until_it_follows(pair.start(0, f"--standby-of={pair.address(1)}"))
    publishers.go_on()


def upgrade_with_a_lease(lease: tuple[str, ...]) -> Callable[[Pair, Publishers], None]:
    def upgrade(pair: Pair, publishers: Publishers) -> None:
        first, second = pair.nsqds[0], pair.nsqds[1]
        second.stop()
        second = pair.start(1, *lease)
        wait_until_it_follows(second)
        publishers.go_on()
        first.stop()
        wait_until_it_serves(second)
        wait_until_it_follows(pair.start(0, *lease))
        publishers.go_on()

    return upgrade


def under_load(pair: Pair, upgrade: Callable[[Pair, Publishers], None]) -> None:
    """Carry out the upgrade while others publish and consume; nothing is refused, nothing is lost."""
    history = History()
    pair.nsqds[0].create(TOPIC, CHANNEL)
    history.created(TOPIC, CHANNEL)
    consumer = noting_consumer(history, Counter(), CHANNEL, pair.lookupd.http_address)
    consumer.start()
    try:
        with Publishers(history, [pair.address(0), pair.address(1)]) as publishers:
            publishers.go_on()
            upgrade(pair, publishers)
        wait_until(lambda: not lost_so_far(history), DEADLINE_S, "all that was acknowledged")
    finally:
        consumer.stop()
    judge(history).require_sound()


@pytest.mark.slow
def test_by_hand(pair):
    pair.start(0)
    wait_until_it_follows(pair.start(1, f"--standby-of={pair.address(0)}"))
    under_load(pair, upgrade_by_hand)


@pytest.mark.skipif(ETCD is None, reason="no etcd here")
def test_with_a_lease(pair, tmp_path):
    with Etcd(tmp_path) as etcd:
        lease = (f"--lease={etcd.url('orders')}", "--lease-ttl=2s")
        pair.start(0, *lease)  # it listens when it has the lease
        wait_until_it_follows(pair.start(1, *lease))
        under_load(pair, upgrade_with_a_lease(lease))
