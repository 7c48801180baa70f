"""Fixtures that start nsqd, nsqlookupd and nsqadmin."""

from __future__ import annotations

import gc
import logging
import os
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.bucket_faults import FaultProxy
from tests.support.buckets import Bucket, MotoServer, moto
from tests.support.certificates import Certificates, make_certificates
from tests.support.examples import FULL
from tests.support.forked import fork_commands
from tests.support.neighbours import room_for
from tests.support.nsqadmin_process import MakeNsqadmin, NsqadminProcess
from tests.support.nsqd_process import MakeNsqd, NsqdProcess, command_with, started
from tests.support.nsqlookupd_process import MakeNsqlookupd, NsqlookupdProcess
from tests.support.signals import start_children_with_default_signals
from tests.support.tally import pytest_terminal_summary, tally

_PYSPARK_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")

SetConstants = Callable[[str, Mapping[str, float]], None]

__all__ = ["pytest_terminal_summary", "tally"]  # pytest finds them here

start_children_with_default_signals()
fork_commands()
gc.disable()  # what is collected are modules and tests, which stay

# How long an example takes says more about the machine than about what is tested. A change is tried with the same
# examples each time, so that what fails is the change's; `make torture` and `make test-slow` look for new ones.
settings.register_profile("the same", deadline=None, derandomize=True, max_examples=FULL // 5)
settings.register_profile("new", deadline=None, max_examples=FULL)
settings.load_profile("the same")

# A test's Spark runs for seconds: optimizing its code takes more processor time than it saves, and so do threads that
# collect garbage (18.5 CPU seconds for a start and a query, 8.5 with these options). All Sparks of tests inherit them.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.hookimpl(tryfirst=True)  # before xdist writes the groups into the names of the tests
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """One worker runs the tests of a file, so that fixtures of a module start their processes once.

    Workers begin with the largest groups of those that start processes; then come the property tests. The short tests of
    one unit fill the gaps at the end.
    """
    if not config.getoption("loadgroup", False):  # set in workers, whose `dist` is "no"
        return
    groups = defaultdict(list)
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.location[0]))
        groups[next(item.iter_markers("xdist_group")).args[0]].append(item)

    def place(group: list[pytest.Item]) -> tuple[int, int]:
        path = group[0].location[0]
        return path.startswith(("tests/unit", "tests/property", "tests/fuzz")) + path.startswith(
            "tests/unit"
        ), -len(group)

    items[:] = [item for group in sorted(groups.values(), key=place) for item in group]


def pytest_collection_finish() -> None:
    """Modules and tests stay until the end: garbage collections need not look at them again."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[bool | None]:
    with room_for(item):
        return (yield)


@pytest.fixture(autouse=True)
def plain_log_text(pytestconfig: pytest.Config) -> None:
    """PySpark's loggers that do not propagate give the handlers of pytest their formatter, which writes JSON."""
    for name in _PYSPARK_LOGGERS:
        logger = logging.root.manager.loggerDict.get(name)
        if isinstance(logger, logging.Logger) and not logger.propagate:
            logger.propagate = True
            plugin = pytestconfig.pluginmanager.get_plugin("logging-plugin")
            plugin.caplog_handler.setFormatter(plugin.formatter)
            plugin.report_handler.setFormatter(plugin.formatter)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Those of one authority; tests only read them."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def make_nsqd(tmp_path: Path) -> Iterator[MakeNsqd]:
    """`make_nsqd(*flags)` starts an nsqd on a data directory of its own."""
    with started(NsqdProcess, tmp_path / "nsqd") as start:
        yield start


@pytest.fixture
def nsqd(make_nsqd: MakeNsqd) -> NsqdProcess:
    """An nsqd with default flags."""
    return make_nsqd()


@pytest.fixture
def make_nsqlookupd(tmp_path: Path) -> Iterator[MakeNsqlookupd]:
    """`make_nsqlookupd(*flags)` starts an nsqlookupd."""
    with started(NsqlookupdProcess, tmp_path / "nsqlookupd.log") as start:
        yield start


@pytest.fixture
def make_nsqadmin(tmp_path: Path) -> Iterator[MakeNsqadmin]:
    """`make_nsqadmin(*flags)` starts an nsqadmin that asks four times a second and keeps its history in memory."""
    with started(NsqadminProcess, tmp_path / "nsqadmin.log") as start:

        def make(*flags: str, command: list[str] | None = None) -> NsqadminProcess:
            own = () if command else ("--poll-interval=250ms", "--history-file=")
            return start(*own, *flags, command=command)

        yield make


@pytest.fixture
def set_constants(monkeypatch: pytest.MonkeyPatch) -> SetConstants:
    """`set_constants(daemon, {"module.NAME": value})`: of daemons that start from now on."""

    def set_constants(daemon: str, constants: Mapping[str, float]) -> None:
        monkeypatch.setenv(f"{daemon.upper()}_COMMAND", shlex.join(command_with(daemon, constants)))

    return set_constants


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoServer]:
    """A server that speaks S3, in a process. Skips the test where moto is not installed."""
    pytest.importorskip("moto")
    with moto(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture(scope="session")
def endpoint(s3_server: MotoServer) -> str:
    """The URL of it."""
    return s3_server.endpoint


@pytest.fixture
def s3_bucket(s3_server: MotoServer) -> Bucket:
    """A new bucket on it."""
    return s3_server.make_bucket()


@pytest.fixture
def s3_faults(s3_server: MotoServer) -> Iterator[FaultProxy]:
    """A proxy in front of it, which lets all requests through until it gets faults."""
    with FaultProxy(s3_server.endpoint) as proxy:
        yield proxy
