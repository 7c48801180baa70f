"""The audit view: who did what, with a filter, on a desk and on a phone."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.support.browser import PHONE, Visits, overflow, path_of, ready, rows_of, violations
from tests.support.nsqadmin_cluster import AdminCluster

# One worker runs them all: they share their processes.
pytestmark = pytest.mark.xdist_group("browser")


def test_who_did_what_is_seen_and_filtered(visit: Visits, cluster: AdminCluster, screenshots: Path) -> None:
    cluster.create("orders", "archive")
    admin = cluster.admin("--acl-http-header=X-User", "--acl-http-header-from=127.0.0.1/32")
    admin.http("POST", "/api/topics/orders/archive", b'{"action":"pause"}', {"X-User": "ada<b>"})
    admin.http("DELETE", "/api/topics/orders/none", None, {"Authorization": "Basic Ym9iOng="})
    admin.wait_for_topic("orders", nodes=2, channels=1)
    page = visit(admin)
    page.get_by_role("link", name="Audit").click()
    failed, paused = rows_of(page, "Actions")
    assert path_of(page) == "/audit"
    assert (paused["Who"], paused["Action"], paused["On"].split(), paused["Result"]) == (
        "ada<b>", "pause", ["orders", "/", "archive"], "ok"
    )  # fmt: skip
    assert paused["From"].startswith("127.0.0.1:")
    assert (failed["Who"], failed["Action"]) == ("bob not verified", "delete")
    assert failed["Result"].startswith("failed CHANNEL_NOT_FOUND: no nsqd or nsqlookupd has the channel none")
    assert violations(ready(page)) == []
    page.screenshot(path=screenshots / "audit.png")
    page.get_by_label("Only failed").check()
    expect(page.get_by_role("table", name="Actions").locator("tbody [data-row]")).to_have_count(1)
    page.get_by_label("Only failed").uncheck()
    page.get_by_role("searchbox").fill("ADA pause")
    expect(page.get_by_role("status").filter(has_text="1 action")).to_be_visible()
    expect(page.get_by_role("table", name="Actions").locator("tbody [data-row]")).to_have_count(1)
    page.set_viewport_size(PHONE)
    page.screenshot(path=screenshots / "audit-phone.png")
    assert overflow(page) == []


def test_nothing_was_done_yet(visit: Visits, cluster: AdminCluster) -> None:
    page = visit(cluster.admin("--log-level=debug"), "/audit")
    expect(page.get_by_role("main")).to_contain_text("Nothing was done yet.")
