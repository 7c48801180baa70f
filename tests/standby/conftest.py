"""Two nsqds that share a lease, on hosts that can be cut off from each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.standby.hosts import Hosts
from tests.support.etcd import ETCD
from tests.support.network import NamespaceNetwork, Unavailable
from tests.support.nsqd_process import NsqdProcess
from tests.support.standby_processes import standby_of

MakeHosts = Callable[..., Hosts]


@pytest.fixture
def processes() -> Iterator[list[NsqdProcess]]:
    """Processes that end with the test."""
    started: list[NsqdProcess] = []
    yield started
    for process in started:
        process.destroy()


Start = Callable[..., NsqdProcess]


@pytest.fixture
def start(tmp_path, processes) -> Start:
    """`start(name, *flags)` starts an nsqd on the directory of this name."""

    def start_nsqd(name: str, *flags: str, **settings: Any) -> NsqdProcess:
        processes.append(NsqdProcess(tmp_path / name, *flags, **settings).start())
        return processes[-1]

    return start_nsqd


@pytest.fixture
def follow(tmp_path, processes) -> Start:
    """`follow(primary, *flags)` starts a standby, and waits until it has everything that there was."""

    def start_standby(primary: NsqdProcess, *flags: str, name: str = "b", wait: bool = True) -> NsqdProcess:
        processes.append(standby_of(primary, tmp_path / name, *flags, wait=wait))
        return processes[-1]

    return start_standby


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
def make_hosts(needs_namespaces, tmp_path) -> Iterator[MakeHosts]:
    """make_hosts(*flags) starts the hosts, with flags for both nsqds."""
    with ExitStack() as stack:

        def make(*flags: str) -> Hosts:
            hosts = Hosts(tmp_path, 2, *flags)
            stack.callback(hosts.end)
            return hosts

        yield make
