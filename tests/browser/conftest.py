"""A browser, a cluster of real processes, and pages that are watched: for all tests here that a worker runs."""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser import DEADLINE_MS, Visits, chromium
from tests.support.nsqadmin_cluster import AdminCluster
from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.nsqd_process import wait_until
from tests.support.wire import req

expect.set_options(timeout=DEADLINE_MS)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Until the worker goes on to tests of another folder, which may use asyncio themselves."""
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="package")
def running_cluster(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminCluster]:
    """Not started where there is no browser."""
    flags = ("--max-attempts=2", "--retention-time=1h", "--e2e-processing-latency-percentile=0.99,0.5")
    with AdminCluster(tmp_path_factory.mktemp("cluster"), *flags) as running:
        yield running


@pytest.fixture
def cluster(running_cluster: AdminCluster) -> Iterator[AdminCluster]:
    """The same processes for all tests, without topics."""
    yield running_cluster
    running_cluster.clear()


@pytest.fixture(scope="module")
def filled(running_cluster: AdminCluster, running_admin: NsqadminProcess) -> Iterator[AdminCluster]:
    """For tests that only look: a topic with a paused channel and a consumer, a dead letter, an idle topic.

    nsqadmin has seen both nsqds before: a channel that its first round finds without consumers on one nsqd is a problem at
    once, and one that comes later only after 90 s.
    """

    def knows_both() -> bool:
        rates = [row["message_rate"] for row in running_admin.get("/api/v2/nodes")["rows"]]
        return len(rates) == 2 and None not in rates

    wait_until(knows_both, what="two answers of both nsqds at nsqadmin")
    running_cluster.create("orders", "archive", "billing")
    running_cluster.create("payments", "ledger")
    running_cluster.lookupd.create_channel("idle", "gone")
    running_cluster.publish("orders", 2, 3)
    for nsqd in running_cluster.nsqds:
        nsqd.post("/channel/pause?topic=orders&channel=billing")
    first = running_cluster.nsqds[0]
    first.post("/pub?topic=payments", b'{"amount":1}')
    with first.connect() as client:
        client.sub("payments", "ledger", 1)
        for _ in range(2):  # then it is a dead letter
            client.send(req(client.message().id, 0))
        first.wait_for_channel("payments", "ledger", depth=0, dead_letter_count=1)
    # It holds its message, and hears no heartbeat, for longer than tests take.
    patient = {"heartbeat_interval": 60_000, "msg_timeout": 600_000}
    with first.connect(
        client_id="reader", hostname="reader.example", user_agent="tests/1.0", **patient
    ) as client:
        client.sub("orders", "archive", 1)
        client.message()
        yield running_cluster
    running_cluster.clear()


@pytest.fixture(scope="package")
def running_admin(running_cluster: AdminCluster) -> NsqadminProcess:
    """It asks twice a second: with more, a busy machine makes nsqds look slow."""
    return running_cluster.admin("--poll-interval=500ms")


@pytest.fixture
def admin(cluster: AdminCluster, running_admin: NsqadminProcess) -> NsqadminProcess:
    return running_admin


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visits]:
    """`visit(admin, path)` opens a page; what it does wrong fails the test at its end."""
    with Visits(browser) as visits:
        yield visits


@pytest.fixture(scope="session")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pictures of the page go."""
    folder = os.environ.get("NSQADMIN_SCREENSHOTS")
    return Path(folder) if folder else tmp_path_factory.mktemp("screenshots")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails shows what the page was."""
    report = yield
    visits = getattr(item, "funcargs", {}).get("visit")
    if report.when == "call" and report.failed and visits is not None:
        folder = item.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        report.sections.append(("pages", visits.describe(folder, re.sub(r"\W+", "-", item.name))))
    return report
