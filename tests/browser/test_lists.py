"""Finding one's way: search, order, pages, the address, keys, the theme."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import Visits, path_of, ready, rows_of
from tests.support.nsqadmin_cluster import AdminCluster
from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.nsqd_process import wait_until

# One worker runs them all: they share their processes.
pytestmark = pytest.mark.xdist_group("browser")

MANY = 120


def topics_on(page: Page) -> list[str]:
    return [row["Topic"].split()[0] for row in rows_of(page, "Topics")]


def test_search_order_and_pages_are_in_the_address(
    visit: Visits, cluster: AdminCluster, admin: NsqadminProcess
) -> None:
    names = [f"t-{number:03}" for number in range(MANY)]
    for name in names:
        cluster.nsqds[0].create(name)
    cluster.nsqds[0].create("rare", "t-in-a-channel")
    for _ in range(3):
        cluster.nsqds[0].post("/pub?topic=t-077", b"x")
    admin.wait_for_topic("t-077", depth=3)
    admin.wait_for_topic("rare", channels=1)
    page = ready(visit(admin))
    assert topics_on(page) == ["t-077", "rare", *names[:48]]  # the worst first
    page.get_by_role("button", name=re.compile("^Topic")).click()
    expect(page.get_by_role("row").nth(1)).to_contain_text("rare")
    assert topics_on(page) == ["rare", *names[:49]]
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_role("link", name="t-060")).to_be_visible()
    assert topics_on(page) == names[49:99]

    page.get_by_role("button", name=re.compile("^Depth")).click()  # from the first page again
    expect(page.get_by_role("row").nth(1)).to_contain_text("t-077")
    expect(page.get_by_role("columnheader", name=re.compile("^Depth"), exact=True).first).to_have_attribute(
        "aria-sort", "descending"
    )
    page.get_by_role("searchbox").fill("T-07")
    expect(page.get_by_role("row")).to_have_count(11)
    assert topics_on(page) == ["t-077", *(name for name in names[70:80] if name != "t-077")]
    assert {"search=T-07", "sort=depth"} <= set(re.split("[?&]", path_of(page)))
    page.get_by_role("link", name="t-071").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("t-071")
    page.go_back()
    expect(page.get_by_role("searchbox")).to_have_value("T-07")
    assert topics_on(page)[0] == "t-077"
    page.reload()
    expect(page.get_by_role("row")).to_have_count(11)
    page.get_by_role("searchbox").fill("in-a-channel")  # names of channels are searched too
    expect(page.get_by_role("row")).to_have_count(2)
    assert topics_on(page) == ["rare"]


def test_a_topic_is_deleted_by_keys_alone(
    visit: Visits, cluster: AdminCluster, admin: NsqadminProcess
) -> None:
    cluster.create("first")
    cluster.create("orders")
    cluster.publish("orders", 1, 0)
    admin.wait_for_topic("orders", depth=1)
    page = ready(visit(admin, "/nodes"))
    keys = page.keyboard
    keys.press("g")
    keys.press("t")
    expect(ready(page).get_by_role("heading", level=1)).to_have_text("Topics")
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    expect(page.get_by_role("table", name="Topics").get_by_role("link")).to_have_count(2)
    keys.press("j")
    keys.press("j")
    expect(page.get_by_role("table", name="Topics").get_by_role("link", name="first")).to_be_focused()
    keys.press("k")  # messages wait in it without a channel
    expect(page.get_by_role("table", name="Topics").get_by_role("link", name="orders")).to_be_focused()
    keys.press("Enter")
    expect(page.get_by_role("button", name="Delete", exact=True)).to_be_visible()
    tab_to(page, "Delete")
    keys.press("Enter")
    expect(page.get_by_role("dialog").get_by_role("button", name="Cancel")).to_be_focused()
    keys.press("Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("button", name="Delete", exact=True)).to_be_focused()  # where it was
    assert cluster.nsqds[0].topic_stats("orders") is not None
    keys.press("Enter")
    expect(page.get_by_role("dialog").get_by_role("button", name="Cancel")).to_be_focused()
    keys.press("Shift+Tab")
    keys.type("orders")
    keys.press("Enter")
    wait_until(lambda: cluster.nsqds[0].topic_stats("orders") is None, what="the end of orders")
    expect(page.get_by_role("heading", level=1)).to_have_text("Topics")


def tab_to(page: Page, button: str) -> None:
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.innerText") == button:
            return
    raise AssertionError(f"no way to {button} by the tabulator")


def test_an_nsqd_that_some_nsqlookupd_does_not_know_is_marked(visit: Visits, cluster: AdminCluster) -> None:
    admin = cluster.admin("--lookupd-http-address=127.0.0.1:1")  # nobody listens there
    page = ready(visit(admin, "/nodes"))
    assert [row["nsqlookupds"] for row in rows_of(page, "nsqds")] == ["1 of 2", "1 of 2"]
