"""Every action through its dialog, with its effect looked at where it has to be: at the nsqds and the nsqlookupd."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.support.browser import Visits, confirm, path_of, press, ready
from tests.support.nsqadmin_cluster import AdminCluster, address
from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.nsqd_process import wait_until

# One worker runs them all: they share their processes.
pytestmark = pytest.mark.xdist_group("browser actions")


def on_all(cluster: AdminCluster, name: str, value: object, channel: str = "") -> None:
    """Both nsqds say so of orders, or of a channel of it."""

    def told() -> list[object]:
        rows = [n.channel_stats("orders", channel) if channel else n.topic_stats("orders") for n in cluster.nsqds]
        return [row and row[name] for row in rows]

    wait_until(lambda: told() == [value, value], what=f"{name}={value} of orders {channel}: {told()}")


def test_a_topic_and_a_channel_are_created(visit: Visits, cluster: AdminCluster, admin: NsqadminProcess) -> None:
    # No nsqd has it before its first message comes.
    page = ready(visit(admin, faults=[r"404.*topic(s/|=)made"]))
    dialog = press(page, "Create a topic")
    dialog.get_by_label("Topic").fill("no name!")
    dialog.get_by_role("button", name="Create", exact=True).click()
    expect(dialog).to_be_visible()  # the browser says why
    assert cluster.lookupd.topics() == []
    dialog.get_by_label("Topic").fill("made")
    dialog.get_by_label("Channel").fill("first")
    confirm(dialog, "Create")
    wait_until(lambda: cluster.lookupd.channels("made") == ["first"], what="the channel at nsqlookupd")
    page.wait_for_url("**/topics/made")
    cluster.create("orders")
    admin.wait_for_topic("orders", nodes=2)
    page.goto("/topics/orders")
    dialog = press(ready(page), "Create a channel")
    dialog.get_by_label("Channel").fill("archive")
    confirm(dialog, "Create")
    on_all(cluster, "channel_name", "archive", "archive")
    expect(page.get_by_role("table", name="Channels").get_by_role("link", name="archive")).to_be_visible()


def test_a_topic_is_paused_emptied_and_deleted(visit: Visits, cluster: AdminCluster, admin: NsqadminProcess) -> None:
    cluster.create("orders")
    cluster.publish("orders", 2, 3)
    admin.wait_for_topic("orders", depth=5, nodes=2)
    page = ready(visit(admin, "/topics/orders"))
    confirm(press(page, "Pause"), "Pause topic")
    on_all(cluster, "paused", True)
    page.get_by_role("button", name="Resume", exact=True).click()
    on_all(cluster, "paused", False)

    dialog = press(page, "Empty")
    expect(dialog).to_contain_text("5 messages waiting in the topic itself")
    confirm(dialog, "Cancel")
    dialog = press(page, "Delete")
    expect(dialog).to_contain_text("5 messages: 5 waiting")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert [(nsqd.topic_stats("orders") or {})["depth"] for nsqd in cluster.nsqds] == [2, 3]

    confirm(press(page, "Empty"), "Empty topic", phrase="orders")
    on_all(cluster, "depth", 0)
    cluster.create("orders", "archive", "billing")
    cluster.publish("orders", 1, 0)
    admin.wait_for_topic("orders", channels=2, depth=2)
    dialog = press(page, "Delete")
    expect(dialog).to_contain_text("2 channels: archive (1 waiting), billing (1 waiting)")
    dialog.get_by_label("Type").fill("order")
    expect(dialog.get_by_role("button", name="Delete topic")).to_be_disabled()
    confirm(dialog, "Delete topic", phrase="orders")
    wait_until(lambda: not any(nsqd.topic_stats("orders") for nsqd in cluster.nsqds), what="the end of orders")
    assert cluster.lookupd.topics() == []
    expect(page.get_by_role("heading", level=1)).to_have_text("Topics")
    assert path_of(page) == "/"


def test_a_topic_is_taken_from_one_nsqd(visit: Visits, cluster: AdminCluster, admin: NsqadminProcess) -> None:
    cluster.create("orders", "archive")
    cluster.publish("orders", 2, 3)
    admin.wait_for_topic("orders", depth=5, nodes=2)
    page = ready(visit(admin, "/topics/orders"))
    second = address(cluster.nsqds[1])
    row = page.get_by_role("table", name="nsqds").get_by_role("row").filter(has_text=second)
    row.get_by_role("button", name="Tombstone").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("3 messages")
    confirm(dialog, "Take it away", phrase="orders")
    wait_until(lambda: cluster.nsqds[1].topic_stats("orders") is None, what="the end of orders there")
    assert cluster.nsqds[0].topic_stats("orders") is not None
    expect(page.get_by_role("table", name="nsqds").get_by_role("row")).to_have_count(2)
