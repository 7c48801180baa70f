"""Servers for all tests of a module: starting them takes longer than most of the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count

import pytest

from tests.support.auth_server import AuthServer
from tests.support.consumer_drivers import SHELLS, Shell
from tests.support.module_servers import delete_topics, module_nsqd
from tests.support.nsqadmin_cluster import AdminCluster
from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.nsqd_process import MakeNsqd, NsqdProcess, started
from tests.support.tool_process import ToolProcess, run_script

_NUMBERS = count()


@pytest.fixture
def topic() -> str:
    """The name of a topic that no other test uses."""
    return f"topic{next(_NUMBERS)}"


@pytest.fixture(params=sorted(SHELLS))
def shell(request) -> str:
    """The name of each of the client's shells in turn."""
    return str(request.param)


@pytest.fixture
def kit(shell) -> Shell:
    return SHELLS[shell]


# For tests that leave it as it was, or each use a topic of their own.
shared_nsqd = module_nsqd()


@pytest.fixture(scope="module")
def make_shared_nsqd(tmp_path_factory) -> Iterator[MakeNsqd]:
    """`make_nsqd` for fixtures of a module."""
    with started(NsqdProcess, tmp_path_factory.mktemp("shared") / "nsqd") as start:
        yield start


@pytest.fixture
def address(shared_nsqd) -> str:
    return f"127.0.0.1:{shared_nsqd.tcp_port}"


@pytest.fixture
def secured_nsqd(make_nsqd, certificates) -> Iterator[NsqdProcess]:
    """An nsqd that requires TLS, whose auth server lets clients with a secret publish to the topic `mine`."""
    with closing(AuthServer()) as server:
        server.grant(("mine", (".*",), ("publish",)))
        auth = f"--auth-http-address={server.address}"
        yield make_nsqd(*certificates.nsqd_flags, "--tls-required=tcp-https", auth)


@pytest.fixture
def script(address, topic) -> Callable[..., str]:
    """`script(text, NAME=value, ...)` runs a program that has ADDRESS and TOPIC too; it must end without errors."""

    def run(text, **names):
        done = run_script(text, ADDRESS=address, TOPIC=topic, **names)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return run


@pytest.fixture
def start(tmp_path) -> Callable[..., ToolProcess]:
    """`start("nsq_tail", *flags)` makes a tool, which runs from `with` to its end."""
    numbers = count()

    def make(*words, **settings):
        return ToolProcess("nsq_apps", *words, log_path=tmp_path / f"tool{next(numbers)}.log", **settings)

    return make


@pytest.fixture
def nsqd_without_topics(shared_nsqd) -> Iterator[NsqdProcess]:
    """The same; what topics the last test left are deleted."""
    yield shared_nsqd
    delete_topics(shared_nsqd)


@pytest.fixture(scope="module")
def admin_cluster(tmp_path_factory) -> Iterator[AdminCluster]:
    with AdminCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def cluster(admin_cluster) -> Iterator[AdminCluster]:
    """The same processes for all tests, without topics."""
    yield admin_cluster
    admin_cluster.end_other_admins()
    admin_cluster.clear()


@pytest.fixture
def admin(cluster) -> NsqadminProcess:
    return cluster.admin()
