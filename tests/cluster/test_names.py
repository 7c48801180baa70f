"""A name that stands for several nsqlookupds, and then for others: nsqd registers with all that it stands for."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import NSQD_PORTS, Cluster, ClusterNsqd, eventually, names
from tests.support.nsqlookupd_process import NsqlookupdProcess

# Go's nsqd takes the first address that answers, and keeps to it.
pytestmark = pytest.mark.ours

NAME = "lookupd.test"
# nsqd asks again when a connection ends, but not more often than every 5 s.
NOTICED_S = 40.0
AWAY_S = 8.0


class Hosts:
    """What one namespace takes for /etc/hosts. It is written in place: a new file would not be seen inside."""

    def __init__(self, namespace: str) -> None:
        self._directory = Path("/etc/netns") / namespace
        self._directory.mkdir(parents=True)
        self._file = self._directory / "hosts"
        self._file.touch()

    def point_to(self, *lookupds: NsqlookupdProcess) -> None:
        with self._file.open("r+") as file:
            file.truncate()
            file.writelines(f"{lookupd.host.address} {NAME}\n" for lookupd in lookupds)

    def remove(self) -> None:
        self._file.unlink()
        self._directory.rmdir()
        with contextlib.suppress(OSError):  # others use it
            self._directory.parent.rmdir()


@pytest.fixture
def hosts(guest: ClusterNsqd) -> Iterator[Hosts]:
    hosts = Hosts(guest.host.command_prefix[-1])
    yield hosts
    guest.destroy()
    hosts.remove()


@pytest.fixture
def guest(cluster: Cluster) -> ClusterNsqd:
    """An nsqd that knows its lookupds by name."""
    guest = cluster.new_guest()
    if not guest.host.command_prefix:
        pytest.skip("needs network namespaces: only they have an /etc/hosts of their own")
    guest.flags = [f"--lookupd-tcp-address={NAME}:4160"]
    return guest


def knows(lookupd: NsqlookupdProcess, guest: ClusterNsqd) -> int:
    """How often a lookupd lists the guest."""
    return names(lookupd.nodes()).count(f"{guest.host.address}:{NSQD_PORTS[0]}")


@pytest.mark.slow
def test_name_with_several_addresses_that_change(cluster: Cluster, hosts: Hosts, guest: ClusterNsqd) -> None:
    """It registers with each of them, once; and with those that the name has later, when one of them goes."""
    first, second = cluster.lookupds
    hosts.point_to(first, second)
    guest.start()
    eventually(lambda: [knows(lookupd, guest) for lookupd in (first, second)], [1, 1], NOTICED_S)
    hosts.point_to(second)
    _restart_slowly(first)
    eventually(lambda: [knows(lookupd, guest) for lookupd in (first, second)], [0, 1], NOTICED_S)
    hosts.point_to(first)
    _restart_slowly(second)
    eventually(lambda: [knows(lookupd, guest) for lookupd in (first, second)], [1, 0], NOTICED_S)


def _restart_slowly(lookupd: NsqlookupdProcess) -> None:
    """Away for so long that nsqd has looked the name up: one that is back before that is registered with again."""
    lookupd.kill()
    time.sleep(AWAY_S)
    lookupd.start()
