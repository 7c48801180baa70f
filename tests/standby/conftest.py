"""Two nsqds that share a lease, on hosts that can be cut off from each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.standby.hosts import Hosts
from tests.support.etcd import ETCD
from tests.support.network import NamespaceNetwork, Unavailable
from tests.support.nsqd_process import NsqdProcess

MakeHosts = Callable[..., Hosts]


@pytest.fixture
def processes() -> Iterator[list[NsqdProcess]]:
    """Processes that end with the test."""
    started: list[NsqdProcess] = []
    yield started
    for process in started:
        process.destroy()


@pytest.fixture
def needs_namespaces() -> None:
    """Skips the test where there is no etcd, or where network namespaces are not allowed."""
    if ETCD is None:
        pytest.skip("no etcd here")
    try:
        NamespaceNetwork().close()
    except Unavailable as error:
        pytest.skip(f"no network namespaces here: {error}")


@pytest.fixture
def make_hosts(needs_namespaces: None, tmp_path: Path) -> Iterator[MakeHosts]:
    """make_hosts(*flags) starts the hosts, with flags for both nsqds."""
    made: list[Hosts] = []

    def make(*flags: str) -> Hosts:
        made.append(Hosts(tmp_path, 2, *flags))
        return made[0]

    yield make
    for hosts in made:
        hosts.end()
