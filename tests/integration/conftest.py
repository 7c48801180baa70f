"""Servers for all tests of a module: starting them takes longer than most of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.support.consumer_drivers import SHELLS, Shell
from tests.support.module_servers import module_nsqd
from tests.support.nsqadmin_cluster import AdminCluster
from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.nsqd_process import NsqdProcess

_NUMBERS = count()


@pytest.fixture
def topic() -> str:
    """The name of a topic that no other test uses."""
    return f"topic{next(_NUMBERS)}"


@pytest.fixture(params=sorted(SHELLS))
def shell(request: pytest.FixtureRequest) -> str:
    """The name of each of the client's shells in turn."""
    return str(request.param)


@pytest.fixture
def kit(shell: str) -> Shell:
    return SHELLS[shell]


# For tests that leave it as it was, or each use a topic of their own.
shared_nsqd = module_nsqd()


@pytest.fixture
def nsqd_without_topics(shared_nsqd: NsqdProcess) -> Iterator[NsqdProcess]:
    """The same; what topics the last test left are deleted."""
    yield shared_nsqd
    for topic in shared_nsqd.stats()["topics"] or ():
        shared_nsqd.post(f"/topic/delete?topic={topic['topic_name']}")


@pytest.fixture(scope="module")
def admin_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminCluster]:
    with AdminCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def cluster(admin_cluster: AdminCluster) -> Iterator[AdminCluster]:
    """The same processes for all tests, without topics."""
    yield admin_cluster
    admin_cluster.clear()


@pytest.fixture
def admin(cluster: AdminCluster) -> NsqadminProcess:
    return cluster.admin()
