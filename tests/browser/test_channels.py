"""The list of all channels: its order, its filters, and actions on several channels."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.support.browser import Visits, ready, rows_of
from tests.support.nsqadmin_cluster import AdminCluster
from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.nsqd_process import wait_until

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture
def many(cluster: AdminCluster, admin: NsqadminProcess) -> NsqadminProcess:
    cluster.create("orders", "archive", "billing")
    cluster.create("idle", "nobody")
    cluster.publish("orders", 2, 3)
    cluster.nsqds[0].post("/channel/empty?topic=orders&channel=billing")
    cluster.nsqds[1].post("/channel/pause?topic=idle&channel=nobody")
    admin.wait_for_topic("orders", nodes=2, channels=2, depth=8)
    admin.wait_for_topic("idle", nodes=2, paused_channels=1)
    return admin


def test_channels_are_listed_by_depth_and_filtered(visit: Visits, many: NsqadminProcess) -> None:
    page = ready(visit(many))
    page.get_by_role("link", name="Channels", exact=True).click()
    ready(page)
    table = page.get_by_role("table", name="Channels")
    expect(table.get_by_role("row")).to_have_count(4)
    assert [row["Depth"] for row in rows_of(page, "Channels")] == ["5", "3", "0"]
    assert [row["Topic"] for row in rows_of(page, "Channels")] == ["orders", "orders", "idle"]
    expect(table.get_by_role("row", name="archive")).to_contain_text(re.compile(r"no consumer.*\d+\s(s|min)"))
    page.get_by_label("Search channels and topics").fill("idle")
    expect(table.get_by_role("row")).to_have_count(2)
    page.get_by_label("Search channels and topics").fill("")
    expect(table.get_by_role("row")).to_have_count(4)
    many.act("unpause", "idle", channel="nobody")
    page.get_by_label("Only problems").check()
    expect(table.get_by_role("row")).to_have_count(3)
    expect(table).not_to_contain_text("nobody")


def test_several_channels_are_emptied_with_one_question(
    visit: Visits, many: NsqadminProcess, cluster: AdminCluster
) -> None:
    page = ready(visit(many, "/channels"))
    expect(page.get_by_role("button", name="Empty")).to_have_attribute("aria-disabled", "true")
    page.get_by_label("Select archive of orders").check()
    page.get_by_label("Select billing of orders").check()
    expect(page.get_by_role("group", name="Actions on the selected")).to_contain_text("2 channels selected")
    page.get_by_role("button", name="Empty").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("5 messages in archive of orders")
    expect(dialog).to_contain_text("3 messages in billing of orders")
    expect(dialog.get_by_role("button", name="Empty 2 channels")).to_be_disabled()
    dialog.get_by_role("textbox").fill("2 channels")
    dialog.get_by_role("button", name="Empty 2 channels").click()
    expect(page.locator(".notices")).to_contain_text("2 channels were emptied.")

    def is_empty() -> bool:
        return all(
            nsqd.channel_stats("orders", name)["depth"] == 0 for nsqd in cluster.nsqds for name in NAMES
        )  # type: ignore[index]

    wait_until(is_empty, what="empty channels")
    page.get_by_label("Select archive of orders").check()
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause 1 channel").click()
    expect(page.get_by_role("table", name="Channels").get_by_role("row", name="archive")).to_contain_text(
        "paused"
    )


NAMES = ("archive", "billing")
