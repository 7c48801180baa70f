"""What the failovers are made of does what it says: networks in which one direction is lost, and power cuts."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.network import Host, NamespaceNetwork
from tests.support.taped_nsqd import TapedNsqd

pytestmark = pytest.mark.ours

PORT = 4150


@pytest.fixture
def hosts(needs_namespaces: None) -> Iterator[tuple[NamespaceNetwork, list[Host], list[socket.socket]]]:
    """A network with two hosts, and a socket on each."""
    network = NamespaceNetwork()
    hosts = [network.add_host(), network.add_host()]
    sockets = [host.call(lambda: socket.socket(type=socket.SOCK_DGRAM)) for host in hosts]
    for host, sock in zip(hosts, sockets, strict=True):
        sock.bind((host.address, PORT))
        sock.settimeout(0.5)
    yield network, hosts, sockets
    for sock in sockets:
        sock.close()
    network.close()


def arrives(sender: socket.socket, receiver: socket.socket) -> bool:
    sender.sendto(b"x", receiver.getsockname())
    try:
        return receiver.recv(10) == b"x"
    except TimeoutError:
        return False


def test_one_direction_is_lost(hosts: tuple[NamespaceNetwork, list[Host], list[socket.socket]]) -> None:
    network, (one, other), (at_one, at_other) = hosts
    assert arrives(at_one, at_other)
    network.silence(one, other)
    assert not arrives(at_one, at_other)
    assert arrives(at_other, at_one)
    network.silence(other, one)
    assert not arrives(at_other, at_one)
    network.heal_all()
    assert arrives(at_one, at_other)
    assert arrives(at_other, at_one)


class Least(random.Random):
    """Chooses the state in which nothing is on the disk that was not synced."""

    def choice(self, states: Any) -> Any:
        return states[0]


@pytest.mark.parametrize("sync_every", [1, 2500])
def test_a_power_cut_takes_what_was_not_synced(tmp_path: Path, sync_every: int) -> None:
    nsqd = TapedNsqd(tmp_path / "data", f"--sync-every={sync_every}", "--sync-timeout=1h")
    nsqd.data_path.mkdir()
    nsqd.start()
    try:
        nsqd.create("t", "c")
        nsqd.restart()  # what is there now counts as synced
        with nsqd.connect() as client:
            client.pub("t", b"1", b"2", b"3")
        nsqd.cut_power(Least())
        nsqd.start()
        topic = nsqd.channel_stats("t", "c")
        assert topic is not None
        assert topic["depth"] == (3 if sync_every == 1 else 0)
    finally:
        nsqd.destroy()
