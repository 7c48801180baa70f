"""How soon the first screen shows figures, and what it asks for."""

from __future__ import annotations

import os
from statistics import median

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.support.browser import DESK, Visits
from tests.support.first_paint import WATCH, painted_s
from tests.support.nsqadmin_cluster import AdminCluster
from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.slow_link import SlowLink

# One worker runs them all: they share their processes.
pytestmark = pytest.mark.xdist_group("browser")

MOST_FILES = 5  # the script, what it shares with the worker, the style, the font, the icon
TOPICS = 60
ROUNDS = 5
SLOW_S, LOCAL_S = 1.5, 0.6


def test_the_first_figures_come_with_the_page(visit: Visits, cluster: AdminCluster, admin: NsqadminProcess) -> None:
    cluster.create("orders", "archive")
    admin.wait_for_topic("orders", nodes=2, channels=1)
    context = visit(admin, "/lookup").context
    context.add_init_script("delete window.SharedWorker")  # what it asks for could not be held up here
    held: list[Route] = []
    asked: list[str] = []
    for path, shown in {"/": "Topics", "/topics/orders": "Channels", "/nodes": "nsqds"}.items():
        page = context.new_page()
        page.route("**/api/**", lambda route: held.append(route))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path)
        expect(page.get_by_role("table", name=shown).get_by_role("row").nth(1)).to_be_visible()
        if path == "/":
            files = [url for url in asked if "/static/" in url]
            assert 1 < len(files) <= MOST_FILES, files
        page.close()
    assert held


@pytest.mark.slow
@pytest.mark.alone
def test_the_first_screen_is_quick(browser: Browser, cluster: AdminCluster, admin: NsqadminProcess) -> None:
    for number in range(TOPICS):
        cluster.nsqds[0].create(f"topic-{number}", "archive")
    admin.wait_for_topic(f"topic-{TOPICS - 1}")
    with SlowLink(admin.http_port, round_trip_s=0.15, bytes_a_second=200_000) as link:
        local_s, slow_s = [median(first_rows_s(browser, port) for _ in range(ROUNDS)) for port in (admin.http_port, link.port)]
    load = os.getloadavg()[0]
    print(f"first rows: {local_s:.2f} s, at 150 ms and 200 kB/s {slow_s:.2f} s; load {load:.1f}")
    assert local_s < LOCAL_S
    assert slow_s < SLOW_S


def first_rows_s(browser: Browser, port: int) -> float:
    """With an empty cache."""
    with browser.new_context(base_url=f"http://127.0.0.1:{port}", viewport=DESK) as context:
        context.add_init_script(WATCH)
        page = context.new_page()
        page.goto("/")
        return painted_s(page)
