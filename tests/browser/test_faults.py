"""A cluster breaks, and the page says what is wrong, where and since when."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.support.browser import Visits, ready
from tests.support.nsqadmin_cluster import AdminCluster, address
from tests.support.nsqadmin_process import NsqadminProcess

# One worker runs them all: they share their browser.
pytestmark = pytest.mark.xdist_group("browser")

CLOCK = r"\d\d:\d\d:\d\d"


@pytest.fixture
def broken(tmp_path: Path) -> Iterator[AdminCluster]:
    """A cluster of its own, whose processes a test may kill."""
    with AdminCluster(tmp_path) as cluster:
        cluster.create("orders", "archive")
        cluster.publish("orders", 2, 3)
        yield cluster


def open_admin(cluster: AdminCluster) -> NsqadminProcess:
    admin = cluster.admin("--poll-interval=500ms")
    admin.wait_for_topic("orders", nodes=2, channels=1)
    return admin


def test_an_nsqd_that_was_killed_is_remembered_until_it_is_dismissed(broken: AdminCluster, visit: Visits) -> None:
    admin = open_admin(broken)
    page = ready(visit(admin))
    broken.nsqds[1].kill()
    expect(page.get_by_role("banner")).to_contain_text("1 gone")
    expect(page.locator("dl")).to_contain_text("without 3 on nsqds that do not answer")
    page.get_by_role("link", name="Nodes", exact=True).click()
    row = page.get_by_role("table", name="nsqds").get_by_role("row").filter(has_text=address(broken.nsqds[1]))
    expect(row).to_contain_text(re.compile(f"gone.*no nsqlookupd lists it.*no answer since {CLOCK}"))
    row.get_by_role("link").first.click()
    expect(page.get_by_role("main")).to_contain_text(
        re.compile(f"This nsqd is gone. The figures on this page are those of {CLOCK}")
    )
    expect(page.get_by_role("table", name="Topics of this nsqd").get_by_role("row", name="orders")).to_contain_text("3")
    page.get_by_role("button", name="Dismiss").click()
    expect(page.get_by_role("banner")).not_to_contain_text("gone")


def test_an_nsqd_that_does_not_answer_is_not_healthy_and_has_topics(broken: AdminCluster, visit: Visits) -> None:
    admin = open_admin(broken)
    page = ready(visit(admin, f"/nodes/{address(broken.nsqds[0])}"))
    expect(page.get_by_role("main")).to_contain_text("OK")
    broken.nsqds[0].signal(signal.SIGSTOP)
    try:
        expect(page.get_by_role("main")).to_contain_text(
            re.compile(f"This nsqd does not answer. The figures on this page are those of {CLOCK}")
        )
        expect(page.locator("dl").last).to_contain_text(re.compile(r"Health\s*unknown"))
        expect(page.get_by_role("table", name="Topics of this nsqd")).to_contain_text("orders")
    finally:
        broken.nsqds[0].signal(signal.SIGCONT)
    expect(page.get_by_role("main")).not_to_contain_text("does not answer")
