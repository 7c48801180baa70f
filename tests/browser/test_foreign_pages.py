"""Pages of other sites, in a browser that reaches the daemons: they publish nothing and read nothing."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page

from tests.support.browser import EVIL_HOST
from tests.support.nsqadmin_cluster import AdminCluster
from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.nsqd_process import ServerProcess

# One worker runs them all: they share their processes.
pytestmark = pytest.mark.xdist_group("browser")

# A page can omit the Referer, and write its own Accept-Language.
FETCH = """async ([url, options]) => {
  const response = await fetch(url, {referrerPolicy: "no-referrer", ...options});
  return [response.status, await response.text()];
}"""
POST = """async url => {
  for (const mode of ["no-cors", "cors"]) {
    await fetch(url, {method: "POST", mode, body: "x", headers: {"Content-Type": "text/plain"}}).catch(() => null);
  }
  navigator.sendBeacon(url, "x");
}"""
FORM = """url => {
  document.body.innerHTML = `<form method="POST" enctype="text/plain" action="${url}"><input name="a"></form>`;
  document.forms[0].submit();
}"""


@pytest.fixture
def daemons(cluster: AdminCluster, admin: NsqadminProcess) -> list[ServerProcess]:
    return [cluster.nsqds[0], cluster.lookupd, admin]


@pytest.fixture
def page(browser: Browser, cluster: AdminCluster) -> Page:
    """A page of another site: at another port, a browser makes no difference."""
    page = browser.new_context().new_page()
    page.goto(f"http://{EVIL_HOST}:{cluster.nsqds[1].http_port}/")
    return page


def test_a_page_of_another_site_changes_nothing(page: Page, cluster: AdminCluster) -> None:
    nsqd, lookupd = cluster.nsqds[0], cluster.lookupd
    urls = [
        f"http://{host}:{nsqd.http_port}{path}"
        for host in ("127.0.0.1", EVIL_HOST)
        for path in ("/pub?topic=t", "/mpub?topic=t", "/topic/create?topic=t")
    ]
    urls.append(f"http://127.0.0.1:{lookupd.http_port}/topic/create?topic=t")
    evil_url = page.url
    for url in urls:
        page.goto(evil_url)
        page.evaluate(POST, url)
        with page.expect_navigation():
            page.evaluate(FORM, url)
        assert "CROSS_SITE_REQUEST" in page.content() or "HOST_NOT_ALLOWED" in page.content()
    assert nsqd.stats()["topics"] == []
    assert lookupd.topics() == []


def test_a_rebound_name_reads_nothing(browser: Browser, daemons: list[ServerProcess]) -> None:
    context = browser.new_context()
    for daemon in daemons:
        page = context.new_page()
        for path in ("/ping", "/stats", "/topics", "/", "/config/log_level"):
            page.goto(f"http://{EVIL_HOST}:{daemon.http_port}{path}")
            assert "HOST_NOT_ALLOWED" in page.content()
            for options in (
                {},
                {"headers": {"Accept-Language": "*", "User-Agent": "curl/8.5"}},
                {"method": "POST"},
            ):
                status, text = page.evaluate(FETCH, [path, options])
                assert status == 403
                assert "HOST_NOT_ALLOWED" in text
        page.close()
    context.close()


def test_our_own_pages_read_and_change(browser: Browser, cluster: AdminCluster) -> None:
    nsqd = cluster.nsqds[0]
    page = browser.new_context().new_page()
    page.goto(f"http://127.0.0.1:{nsqd.http_port}/stats")
    assert page.evaluate(FETCH, ["/pub?topic=own", {"method": "POST", "body": "x"}]) == [200, "OK"]
    assert [topic["topic_name"] for topic in nsqd.stats()["topics"]] == ["own"]
