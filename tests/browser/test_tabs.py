"""Several tabs of a browser, which opens only six connections to a host over HTTP/1.1."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.test_live import tile
from tests.support.browser import Visits, ready
from tests.support.nsqadmin_cluster import AdminCluster
from tests.support.nsqadmin_process import NsqadminProcess

# One worker runs them all: they share their processes.
pytestmark = pytest.mark.xdist_group("browser")

TABS = 7
# The browser tells pages whether they are seen; headless, all are.
HIDDEN = """() => {
  let hidden = true;
  Object.defineProperty(document, "hidden", {get: () => hidden});
  window.show = () => { hidden = false; document.dispatchEvent(new Event("visibilitychange")); };
  delete window.SharedWorker;
}"""


def is_live(page: Page) -> None:
    expect(page.get_by_role("banner").locator(".live-badge")).to_have_text("live")


def test_many_tabs_have_figures_of_now(visit: Visits, cluster: AdminCluster, admin: NsqadminProcess) -> None:
    topics = [f"topic-{number}" for number in range(TABS)]
    for topic in topics:
        cluster.nsqds[0].create(topic)
    for topic in topics:
        admin.wait_for_topic(topic, nodes=1)
    first = visit(admin, f"/topics/{topics[0]}")
    pages = [first, *(first.context.new_page() for _ in topics[1:])]
    for page, topic in zip(pages[1:], topics[1:], strict=True):
        page.goto(f"/topics/{topic}")
    for page in pages:
        is_live(ready(page))
    for count, topic in enumerate(topics, 1):
        for _ in range(count):
            cluster.nsqds[0].post(f"/pub?topic={topic}", b"hello")
    for count, page in enumerate(pages, 1):
        expect(tile(page, "Depth")).to_have_text(str(count))
        is_live(page)
    # A tab that goes takes nothing from the others.
    first.close()
    cluster.nsqds[0].post(f"/pub?topic={topics[1]}", b"hello")
    expect(tile(pages[1], "Depth")).to_have_text("3")


def test_a_tab_in_the_background_has_no_stream(visit: Visits, cluster: AdminCluster, admin: NsqadminProcess) -> None:
    cluster.create("orders")
    admin.wait_for_topic("orders", nodes=2)
    context = visit(admin).context
    context.add_init_script(f"({HIDDEN})()")
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto("/topics/orders", wait_until="networkidle")
    assert [url for url in asked if "/api/v2/events" in url or "/api/v2/overview" in url] == []
    page.evaluate("show()")
    is_live(ready(page))
    assert len([url for url in asked if "/api/v2/events" in url]) == 1
