"""One cluster for all of these tests. Each uses topics of its own, and may break what it likes."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.network import Network, open_network


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker runs these and those of the browser, which gives up its requests when interfaces come and go."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.xdist_group("browser"))


@pytest.fixture(scope="session")
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM, of `timeout` for example, ends the tests as Ctrl-C does: processes and namespaces are removed."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="session")
def network(ended_by_sigterm: None) -> Iterator[Network]:
    network = open_network()
    yield network
    network.close()


@pytest.fixture(scope="session")
def running_cluster(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(network, tmp_path_factory.mktemp("cluster"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def cluster(running_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, whole."""
    yield running_cluster
    running_cluster.make_whole()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic that only this test uses."""
    return re.sub(r"\W", "_", request.node.name).strip("_")[-50:]
