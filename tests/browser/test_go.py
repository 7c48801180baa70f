"""Our page over Go's nsqd and nsqlookupd; NSQD_GO and NSQLOOKUPD_GO are the paths of Go's programs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.browser import Visits, confirm, press, ready
from tests.support.nsqadmin_cluster import AdminCluster
from tests.support.nsqd_process import wait_until

# One worker runs them all: they share their processes.
pytestmark = pytest.mark.xdist_group("browser")

NSQD = os.environ.get("NSQD_GO", "")
NSQLOOKUPD = os.environ.get("NSQLOOKUPD_GO", "")


@pytest.fixture
def gos_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AdminCluster]:
    monkeypatch.setenv("NSQD_COMMAND", NSQD)
    monkeypatch.setenv("NSQLOOKUPD_COMMAND", NSQLOOKUPD)
    with AdminCluster(tmp_path) as cluster:
        yield cluster


@pytest.mark.skipif(
    not (NSQD and NSQLOOKUPD), reason="NSQD_GO and NSQLOOKUPD_GO, paths of Go's programs, run this"
)
def test_our_page_over_gos_servers(gos_cluster: AdminCluster, visit: Visits) -> None:
    cluster = gos_cluster
    cluster.create("orders", "archive")
    cluster.publish("orders", 1, 2)
    admin = cluster.admin()
    admin.wait_for_topic("orders", depth=3, nodes=2)
    page = ready(visit(admin))
    page.get_by_role("table", name="Topics").get_by_role("link", name="orders").click()
    page.get_by_role("table", name="Channels").get_by_role("link", name="archive").click()
    confirm(press(page, "Empty"), "Empty channel", phrase="archive")
    wait_until(lambda: not any((n.channel_stats("orders", "archive") or {})["depth"] for n in cluster.nsqds))
