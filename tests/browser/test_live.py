"""The page shows what happens: messages that flow, nsqds and an nsqadmin that fail, topics that go."""

from __future__ import annotations

import re
import socket

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.support.browser import Visits, confirm, press, ready
from tests.support.nsqadmin_cluster import AdminCluster
from tests.support.nsqadmin_process import NsqadminProcess

# One worker runs them all: they share their processes.
pytestmark = pytest.mark.xdist_group("browser")

# What a browser says of an nsqadmin that was killed.
NOBODY_THERE = "ERR_(CONNECTION_REFUSED|CONNECTION_RESET|EMPTY_RESPONSE|INCOMPLETE_CHUNKED)"


def tile(page: Page, label: str) -> Locator:
    return (
        page.locator("dl div")
        .filter(has=page.locator("dt", has_text=re.compile(f"^{label}")))
        .locator("dd")
        .first
    )


def chart(page: Page, text: str) -> Locator:
    """A chart by what it says to those who do not see it."""
    return page.get_by_role("img", name=re.compile(text))


def test_figures_and_charts_move_when_messages_flow(
    visit: Visits, cluster: AdminCluster, admin: NsqadminProcess
) -> None:
    cluster.create("orders", "archive")
    admin.wait_for_topic("orders", nodes=2, channels=1)
    page = ready(visit(admin, "/topics/orders"))
    expect(chart(page, "Depth: now 0")).to_be_visible()
    cluster.publish("orders", 2, 3)
    expect(tile(page, "Depth")).to_have_text("5")
    expect(chart(page, "Depth: now 5,.* In flight: now 0")).to_be_visible()
    expect(page.get_by_role("table", name="Channels").get_by_role("row", name="archive")).to_contain_text("5")
    page.get_by_role("link", name="archive").click()
    with cluster.nsqds[1].connect(client_id="reader") as client:
        client.sub("orders", "archive", 1)
        message = client.message()
        expect(tile(page, "In flight")).to_have_text("1")
        expect(tile(page, "Clients")).to_have_text("1")
        expect(chart(page, "In flight: now 1")).to_be_visible()
        client.fin(message)
        client.consume(2)
        expect(tile(page, "Depth")).to_have_text("2")
        expect(chart(page, "Depth: now 2,.* In flight: now 0")).to_be_visible()
        drawn = page.get_by_role("img", name=re.compile("Depth: now 2")).locator("canvas")
        expect(drawn).to_be_visible()
        # The whole course as a table, and other ranges of it.
        figure = page.get_by_role("figure").filter(has_text="Depth")
        figure.get_by_role("button", name="Show as table").click()
        expect(figure.get_by_role("table").get_by_role("row").nth(1)).to_contain_text("2")
        page.get_by_role("button", name="24h").click()
        expect(page.get_by_role("button", name="24h")).to_have_attribute("aria-pressed", "true")


def test_a_topic_that_goes_and_comes(visit: Visits, cluster: AdminCluster, admin: NsqadminProcess) -> None:
    cluster.create("orders", "archive")
    admin.wait_for_topic("orders", nodes=2, channels=1)
    page = ready(visit(admin, "/topics/orders"))
    for nsqd in cluster.nsqds:
        nsqd.post("/topic/delete?topic=orders")
    expect(page.get_by_role("heading", name="no nsqd")).to_be_visible()
    cluster.create("orders", "archive")
    expect(page.get_by_role("table", name="Channels")).to_contain_text("archive")


def test_an_nsqadmin_that_is_lost_and_comes_back(visit: Visits, cluster: AdminCluster) -> None:
    cluster.create("orders", "archive")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    admin = cluster.admin(f"--http-address=127.0.0.1:{port}")
    admin.wait_for_topic("orders", nodes=2, channels=1)
    # Its token is of the nsqadmin that is gone: the action is refused, and done again with a new one.
    refused = "403.*/api/v2/actions"
    page = ready(visit(admin, "/topics/orders", faults=[NOBODY_THERE, refused]))
    expect(page.get_by_role("banner")).to_contain_text("live")
    expect(page.locator(".uplot").first).to_be_visible()  # its module is loaded late, and must not be cut off
    admin.kill()
    expect(page.get_by_role("banner")).to_contain_text("no connection")
    expect(page.get_by_role("table", name="Channels")).to_contain_text("archive")  # what is known stays
    cluster.publish("orders", 1, 1)
    admin.start()
    expect(page.get_by_role("banner")).to_contain_text("live")
    expect(tile(page, "Depth")).to_have_text("2")
    confirm(press(page, "Empty"), "Empty topic")
    expect(page.get_by_role("log", name="Notices")).to_contain_text("has been emptied")
