"""Our page over Go's nsqd and nsqlookupd, and the page of Go's nsqadmin on our API.

NSQD_GO and NSQLOOKUPD_GO are the paths of Go's programs, NSQADMIN_GO_STATIC the folder of its built page.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.support.browser import Visits, confirm, press, ready
from tests.support.nsqadmin_cluster import AdminCluster
from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.nsqd_process import wait_until

# One worker runs them all: they share their processes.
pytestmark = pytest.mark.xdist_group("browser")

NSQD = os.environ.get("NSQD_GO", "")
NSQLOOKUPD = os.environ.get("NSQLOOKUPD_GO", "")
PAGE = os.environ.get("NSQADMIN_GO_STATIC", "")


# ---- Go's page on our API


@pytest.fixture
def gos_page(cluster: AdminCluster, tmp_path: Path) -> NsqadminProcess:
    """Ours, which serves Go's page. That one's index is a template of Go's, and is filled in here."""
    folder = tmp_path / "static"
    shutil.copytree(PAGE, folder)
    index = folder / "index.html"
    filled = re.sub(r'\{\{basePath "(/[^"]*)"}}', r"\1", index.read_text())
    filled = filled.replace("{{.Version}}'", "'").replace("{{.Version}}", "'1.3.0'").replace("{{.IsAdmin}}", "true")
    filled = re.sub(r"\[\{\{range .NSQLookupd}}.*{\{end}}]", f"['{cluster.lookupd.http_address}']", filled)
    filled = re.sub(r"\{\{if .GraphEnabled}}.*\{\{end}}", "false", filled)
    index.write_text(re.sub(r"= \{\{.*}};", "= '';", filled))
    return cluster.admin(f"--dev-static-dir={folder}")


@pytest.mark.skipif(not PAGE, reason="NSQADMIN_GO_STATIC=folder of the page of Go's nsqadmin runs this")
def test_gos_page_works_on_our_api(visit: Visits, cluster: AdminCluster, gos_page: NsqadminProcess) -> None:
    cluster.create("orders", "archive")
    cluster.publish("orders", 1, 2)
    page = visit(gos_page)
    page.get_by_role("link", name="orders").click()
    expect(page.get_by_role("row", name="Total:")).to_contain_text("3")
    page.get_by_role("button", name="Pause Topic").click()
    page.locator(".modal").get_by_text("OK").click()
    wait_until(lambda: all((nsqd.topic_stats("orders") or {})["paused"] for nsqd in cluster.nsqds), what="the pause")
    page.get_by_role("link", name="archive").click()
    page.get_by_role("button", name="Empty Queue").click()
    page.locator(".modal").get_by_text("OK").click()
    wait_until(lambda: not any((n.channel_stats("orders", "archive") or {})["depth"] for n in cluster.nsqds))
    page.goto("/topics/orders?tab=messages")
    expect(page.get_by_text("cannot show messages")).to_have_count(2)
    page.get_by_role("link", name="Nodes").click()
    page.get_by_role("row").filter(has_text=str(cluster.nsqds[0].http_port)).get_by_role("link").first.click()
    expect(page.get_by_role("row", name="archive")).to_be_visible()
    page.get_by_role("link", name="Counter").click()
    expect(page.get_by_text("Messages Processed")).to_be_visible()
    page.get_by_role("link", name="Lookup").click()
    page.get_by_placeholder("Topic").fill("made")
    page.get_by_placeholder("Channel").fill("first")
    page.get_by_role("button", name="Create").click()
    wait_until(lambda: cluster.lookupd.channels("made") == ["first"], what="the channel at nsqlookupd")


# ---- our page over Go's nsqd and nsqlookupd


@pytest.fixture
def gos_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AdminCluster]:
    monkeypatch.setenv("NSQD_COMMAND", NSQD)
    monkeypatch.setenv("NSQLOOKUPD_COMMAND", NSQLOOKUPD)
    with AdminCluster(tmp_path) as cluster:
        yield cluster


@pytest.mark.skipif(not (NSQD and NSQLOOKUPD), reason="NSQD_GO and NSQLOOKUPD_GO, paths of Go's programs, run this")
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
