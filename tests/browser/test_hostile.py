"""Names, messages and errors that somebody chose to do harm: they are text, whatever is in them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from tests.support import browser_hostile as hostile
from tests.support.browser import DESK, PHONE, Visits, confirm, overflow, press, ready
from tests.support.browser_hostile import IMAGE, INHERITED, LONG, NULS, TEXTS
from tests.support.nsqadmin_cluster import AdminCluster
from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.nsqd_process import wait_until

# One worker runs them all: they share their processes.
pytestmark = pytest.mark.xdist_group("browser safety")

# What no view of ours has: elements of others, code in attributes, links to anywhere but here.
FOREIGN = """() => {
  const found = document.querySelectorAll("img, iframe, object, embed, body script, [onerror], [onload], [onclick]");
  const links = [...document.querySelectorAll("a")].filter(a => a.href && !a.href.startsWith(location.origin + "/"));
  return [...found, ...links].map(element => element.outerHTML.slice(0, 200));
}"""


def check(page: Page, visits: Visits) -> None:
    """Nothing ran, nothing got in, and all is where it should be. What ran is seen by the watch as well."""
    assert page.evaluate(FOREIGN) == []
    assert visits.faults() == []
    for size in (DESK, PHONE):
        page.set_viewport_size(size)  # type: ignore[arg-type]
        assert overflow(page) == [], page.url
    page.set_viewport_size(DESK)  # type: ignore[arg-type]


# ---- an nsqd and an nsqlookupd that are hostile


@pytest.fixture(scope="module")
def hostile_admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NsqadminProcess]:
    log_path = tmp_path_factory.mktemp("hostile") / "nsqadmin.log"
    with hostile.nsqd() as nsqd, hostile.nsqlookupd(nsqd) as lookupd:
        flags = ("--poll-interval=250ms", "--history-file=", f"--lookupd-http-address={lookupd.address}")
        admin = NsqadminProcess(log_path, *flags)
        try:
            yield admin.start()
        finally:
            admin.destroy()


def enc(text: str) -> str:
    return quote(text, safe="")


@pytest.mark.parametrize(
    "path",
    [
        "/", f"/topics/{enc(IMAGE)}", f"/topics/{enc(IMAGE)}?tab=log", f"/topics/{enc(IMAGE)}?tab=dead",
        f"/topics/{enc(IMAGE)}/{enc(IMAGE)}", f"/topics/{enc(NULS)}", "/nodes", f"/nodes/{enc(IMAGE)}%3A1", "/lookup",
        "/counter", *(f"/topics/{name}/{name}" for name in INHERITED),
    ],
)  # fmt: skip
def test_a_hostile_cluster_harms_no_view(visit: Visits, hostile_admin: NsqadminProcess, path: str) -> None:
    hostile_admin.wait_for_topic(enc(IMAGE))
    page = ready(visit(hostile_admin, path))
    expect(page.get_by_text("onerror=alert(1)").first).to_be_attached()
    check(page, visit)
