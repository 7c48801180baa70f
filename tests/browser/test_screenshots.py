"""Pictures of the page for docs/nsqadmin.md: `make screenshots` puts them into docs/images, after some traffic."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.support import browser_demo as demo
from tests.support.browser import DESK, Visits, press, ready, system_theme
from tests.support.nsqadmin_cluster import AdminCluster, address
from tests.support.standby_cluster import StandbyCluster
from tests.support.standby_processes import wait_until_it_has_all

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

MOST_BYTES = 250_000
# What the page tells when its cluster is ended before it is closed.
ENDED = ["ERR_INCOMPLETE_CHUNKED", "ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET"]
# How long the traffic runs before the pictures: as long as the charts of the docs reach back.
TRAFFIC_S = 600 if os.environ.get("NSQADMIN_SCREENSHOTS") else 10


def test_pictures_for_the_docs(visit: Visits, tmp_path: Path, screenshots: Path) -> None:
    with AdminCluster(tmp_path, *demo.FLAGS) as cluster, demo.traffic(cluster):
        cluster.lookupd.create_channel("returns", "mailer")
        admin = cluster.admin("--poll-interval=2s")
        admin.wait_for_topic("payments.dead", nodes=2)
        time.sleep(TRAFFIC_S)
        # It is ended before the page is closed.
        page = visit(admin, faults=ENDED)

        def take(name: str, path: str = "") -> None:
            if path:
                page.goto(path)
                expect(ready(page).get_by_role("button", name="10m")).to_have_count(
                    1 if has_charts(path) else 0
                )
            picture = screenshots / f"nsqadmin-{name}.png"
            page.screenshot(path=picture)
            assert picture.stat().st_size < MOST_BYTES, name

        take("topics", "/")
        page.goto("/topics/orders")
        ready(page).get_by_role("button", name="10m").click()
        take("topic", "/topics/orders")
        take("channel", "/topics/orders/archive")
        page.goto("/topics/orders/search")
        ready(page).get_by_role("button", name="Peek").click()
        expect(page.get_by_role("region", name=f"Messages of {address(cluster.nsqds[0])}")).to_be_visible()
        page.get_by_role("heading", name="Messages of the channel").evaluate(
            "heading => heading.scrollIntoView()"
        )
        take("peek")
        page.goto("/topics/orders?tab=messages&limit=10&path=%24.total%20%3E%20250")
        found = page.get_by_role("region", name="Messages found")
        found.locator("tbody [data-row]").nth(3).get_by_role("button").click()
        take("messages")
        page.goto("/topics/orders")
        press(ready(page), "Delete")
        take("delete")
        take("log", "/topics/orders?tab=log")
        take("dead-letters", "/topics/payments.dead?tab=dead")
        take("channels", "/channels")
        take("nodes", "/nodes")
        take("node", f"/nodes/{address(cluster.nsqds[0])}")
        take("lookup", "/lookup")
        take("counter", "/counter")
        system_theme(page, "dark")
        take("topic-dark", "/topics/orders")
        page.set_viewport_size(DESK)


def test_pictures_of_standbys_for_the_docs(visit: Visits, tmp_path: Path, screenshots: Path) -> None:
    with StandbyCluster(tmp_path, with_relay=True) as cluster:
        cluster.primary.create("orders", "archive", "billing")
        wait_until_it_has_all(cluster.primary)
        admin = cluster.admin()
        cluster.wait_for_row(
            admin, cluster.standby, standby_state="following", tcp_port=cluster.standby.tcp_port
        )
        page = visit(admin, f"/nodes/{address(cluster.standby)}", faults=ENDED)
        assert cluster.relay is not None
        with cluster.primary.connect() as client:
            for number in range(80):
                if number == 50:
                    cluster.relay.hold()
                client.mpub("orders", [demo.message(number) for _ in range(30)])
                time.sleep(0.25)
        cluster.wait_for_row(admin, cluster.standby, lag_messages=900)
        page.goto("/nodes")
        expect(ready(page).get_by_role("table", name="nsqds")).to_contain_text("following")
        page.screenshot(path=screenshots / "nsqadmin-standbys.png")
        page.goto(f"/nodes/{address(cluster.standby)}")
        expect(ready(page).get_by_role("region", name="Standby", exact=True)).to_contain_text("900 messages")
        dialog = press(page, "Promote")
        expect(dialog).to_contain_text("900 messages")
        page.screenshot(path=screenshots / "nsqadmin-promote.png")


def has_charts(path: str) -> bool:
    return "tab=" not in path and path.partition("?")[0] not in ("/", "/channels", "/nodes", "/lookup")
