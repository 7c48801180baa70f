"""Every action through its dialog, with its effect looked at where it has to be: at the nsqds and the nsqlookupd."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import Visits, confirm, path_of, press, ready, rows_of
from tests.support.nsqadmin_cluster import AdminCluster, address
from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.nsqd_process import wait_until
from tests.support.wire import req

# One worker runs them all: they share their processes.
pytestmark = pytest.mark.xdist_group("browser")


def on_all(cluster: AdminCluster, name: str, value: object, channel: str = "") -> None:
    """Both nsqds say so of orders, or of a channel of it."""

    def found() -> list[object]:
        rows = [
            n.channel_stats("orders", channel) if channel else n.topic_stats("orders") for n in cluster.nsqds
        ]
        return [row and row[name] for row in rows]

    wait_until(lambda: found() == [value, value], what=f"{name}={value} of orders {channel}: {found()}")


def test_a_topic_and_a_channel_are_created(
    visit: Visits, cluster: AdminCluster, admin: NsqadminProcess
) -> None:
    page = ready(visit(admin))
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
    # The page and the list say the same: it is there, and where.
    expect(page.get_by_role("main")).to_contain_text("Known to nsqlookupd, and on no nsqd")
    expect(page.get_by_role("main")).to_contain_text("It will have 1 channel: first.")
    expect(page.get_by_text("does not exist")).to_have_count(0)
    page.get_by_role("link", name="Topics", exact=True).first.click()
    page.get_by_role("link", name="made").click()
    page.wait_for_url("**/topics/made")
    cluster.create("orders")
    admin.wait_for_topic("orders", nodes=2)
    page.goto("/topics/orders")
    dialog = press(ready(page), "Create a channel")
    dialog.get_by_label("Channel").fill("archive")
    confirm(dialog, "Create")
    on_all(cluster, "channel_name", "archive", "archive")
    expect(page.get_by_role("table", name="Channels").get_by_role("link", name="archive")).to_be_visible()


def test_a_topic_is_paused_emptied_and_deleted(
    visit: Visits, cluster: AdminCluster, admin: NsqadminProcess
) -> None:
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
    expect(dialog).to_contain_text("5 messages waiting")
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
    wait_until(
        lambda: not any(nsqd.topic_stats("orders") for nsqd in cluster.nsqds), what="the end of orders"
    )
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
    confirm(dialog, "Tombstone", phrase="orders")
    wait_until(lambda: cluster.nsqds[1].topic_stats("orders") is None, what="the end of orders there")
    assert cluster.nsqds[0].topic_stats("orders") is not None
    expect(page.get_by_role("table", name="nsqds").get_by_role("row")).to_have_count(2)


def test_a_channel_is_paused_emptied_and_deleted(
    visit: Visits, cluster: AdminCluster, admin: NsqadminProcess
) -> None:
    cluster.create("orders", "archive")
    cluster.publish("orders", 2, 3)
    admin.wait_for_topic("orders", depth=5, nodes=2)
    page = ready(visit(admin, "/topics/orders/archive"))
    confirm(press(page, "Pause"), "Pause channel")
    on_all(cluster, "paused", True, "archive")
    page.get_by_role("button", name="Resume", exact=True).click()
    on_all(cluster, "paused", False, "archive")
    dialog = press(page, "Empty")
    expect(dialog).to_contain_text("5 messages waiting")
    confirm(dialog, "Cancel")
    assert depths(cluster) == [2, 3]
    confirm(press(page, "Empty"), "Empty channel", phrase="archive")
    on_all(cluster, "depth", 0, "archive")
    confirm(press(page, "Delete"), "Delete channel", phrase="archive")
    wait_until(
        lambda: not any(nsqd.channel_stats("orders", "archive") for nsqd in cluster.nsqds), what="its end"
    )
    expect(page.get_by_role("heading", level=1)).to_have_text("orders")


def test_a_channel_goes_back_and_forward(
    visit: Visits, cluster: AdminCluster, admin: NsqadminProcess
) -> None:
    cluster.create("orders", "archive")
    cluster.publish("orders", 2, 3)
    for nsqd, count in zip(cluster.nsqds, (2, 3), strict=True):
        with nsqd.connect() as client:
            client.sub("orders", "archive", 5)
            client.consume(count)
    admin.wait_for_topic("orders", depth=0, in_flight=0, clients=0, messages=5)
    page = ready(visit(admin, "/topics/orders/archive"))
    seek(page, "The oldest", "5")
    wait_until(lambda: depths(cluster) == [2, 3], what=f"the messages again: {depths(cluster)}")
    admin.wait_for_topic("orders", depth=5)
    seek(page, "The latest", "5", phrase="archive")
    wait_until(lambda: depths(cluster) == [0, 0], what="the end of the channel")


def depths(cluster: AdminCluster) -> list[int]:
    return [(nsqd.channel_stats("orders", "archive") or {})["depth"] for nsqd in cluster.nsqds]


def seek(page: Page, place: str, count: str, phrase: str = "") -> None:
    dialog = press(page, "Seek")
    dialog.get_by_label(re.compile(f"^{place}")).check()
    expect(dialog.get_by_role("status").first).to_contain_text(count)
    dialog.get_by_role("button", name="Seek …").click()
    confirm(page.get_by_role("dialog", name="Seek archive?"), "Seek", phrase=phrase)
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_message_is_published(visit: Visits, cluster: AdminCluster, admin: NsqadminProcess) -> None:
    cluster.create("orders", "archive")
    admin.wait_for_topic("orders", nodes=2, channels=1)
    page = ready(visit(admin, "/topics/orders"))
    dialog = press(page, "Publish a message")
    dialog.get_by_label("Body", exact=True).fill('{"id": 1}')
    dialog.get_by_label("nsqd").select_option(address(cluster.nsqds[1]))
    dialog.get_by_label("Body", exact=True).press("Control+Enter")
    expect(dialog.get_by_role("status").first).to_contain_text(f"{address(cluster.nsqds[1])} has it")
    dialog.get_by_label("Format").select_option("body_base64")
    dialog.get_by_label("Body", exact=True).fill("AP8=")
    dialog.get_by_role("button", name="Publish").click()
    expect(dialog.get_by_role("status").first).to_contain_text("2 published so far")
    dialog.get_by_label("Defer").fill("600000")
    dialog.get_by_role("button", name="Publish").click()
    expect(dialog.get_by_role("status").first).to_contain_text("3 published so far")
    dialog.get_by_label("Body", exact=True).fill("no base64!")
    dialog.get_by_role("button", name="Publish").click()
    expect(dialog.get_by_role("status").first).to_contain_text("not base64")
    with cluster.nsqds[1].connect() as client:
        client.sub("orders", "archive", 3)
        assert [message.body for message in client.consume(2)] == [b'{"id": 1}', b"\x00\xff"]
    cluster.nsqds[1].wait_for_channel("orders", "archive", depth=0, deferred_count=1)


def test_dead_letters_go_back(visit: Visits, cluster: AdminCluster, admin: NsqadminProcess) -> None:
    cluster.create("orders", "archive")
    first = cluster.nsqds[0]
    first.post("/pub?topic=orders", b'{"id": 1}')
    with first.connect() as client:
        client.sub("orders", "archive", 1)
        for _ in range(2):
            client.send(req(client.message().id, 0))
        first.wait_for_channel("orders", "archive", dead_letter_count=1)
    first.create("orders.dead", "waiting")
    admin.wait_for_topic("orders.dead", depth=1, channels=1)
    page = ready(visit(admin, "/topics/orders"))
    page.get_by_role("link", name="1 dead letter").click()
    (letter,) = rows_of(page, "The latest dead letters")
    assert (letter["From topic"], letter["Channel"]) == ("orders", "archive")
    assert letter["Body"] == '{"id": 1}'
    page.get_by_role("table", name="The latest dead letters").get_by_role("row").nth(1).get_by_role(
        "button"
    ).click()
    below = page.locator(".unfolded")
    expect(below).to_contain_text('"id": 1')
    expect(below).to_contain_text("after 2 attempts")
    for _ in range(2):
        first.post("/pub?topic=orders.dead", b"more")
    limit = page.get_by_role("spinbutton", name="At most")
    limit.fill("2")
    expect(page.get_by_role("button", name="Requeue 2 of 3 messages …")).to_be_visible()
    limit.fill("")
    dialog = press(page, re.compile("^Requeue 3 messages"))
    expect(dialog).to_contain_text("to orders")
    confirm(dialog, "Requeue")
    first.wait_for_channel("orders", "archive", depth=3)
    first.wait_for_channel("orders.dead", "waiting", depth=0, in_flight_count=0)
    expect(page.get_by_role("log", name="Notices")).to_contain_text("3 messages")


def test_what_only_nsqlookupds_know_is_made_and_deleted(
    visit: Visits, cluster: AdminCluster, admin: NsqadminProcess
) -> None:
    cluster.lookupd.create_channel("idle", "one")
    cluster.lookupd.create_channel("idle", "two")
    page = ready(visit(admin, "/lookup"))
    form = page.get_by_role("region", name="Create a topic or a channel")
    form.get_by_label("Topic").fill("made")
    form.get_by_label("Channel").fill("first")
    form.get_by_role("button", name="Create").click()
    wait_until(lambda: cluster.lookupd.channels("made") == ["first"], what="the channel at nsqlookupd")
    idle = page.get_by_role("row", name="idle")
    idle.get_by_role("button", name=re.compile("^Delete.*two")).click()
    confirm(page.get_by_role("dialog"), "Delete channel")
    wait_until(lambda: cluster.lookupd.channels("idle") == ["one"], what="the end of the channel")
    expect(idle).not_to_contain_text("two")
    idle.get_by_role("button", name="Delete topic").click()
    expect(page.get_by_role("dialog")).to_contain_text("1 channel, which a new topic would get at once: one")
    confirm(page.get_by_role("dialog"), "Delete topic")
    wait_until(lambda: cluster.lookupd.topics() == ["made"], what="the end of the topic")
    expect(page.get_by_role("row", name="idle")).to_have_count(0)
    assert path_of(page) == "/lookup"
