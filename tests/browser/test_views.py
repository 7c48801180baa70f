"""What each view shows, that everybody can read it, and that it fits on a phone."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from nsqd_py.version import PROJECT_VERSION
from tests.support.browser import (
    DESK,
    PHONE,
    Visits,
    overflow,
    press,
    ready,
    rows_of,
    system_theme,
    tiles_of,
    violations,
)
from tests.support.nsqadmin_cluster import AdminCluster, address
from tests.support.nsqadmin_process import NsqadminProcess

# One worker runs them all: they share their processes.
pytestmark = pytest.mark.xdist_group("browser")

VIEWS = {
    "topics": "/",
    "topic": "/topics/orders",
    "log": "/topics/orders?tab=log",
    "messages": "/topics/orders?tab=messages",
    "channel": "/topics/orders/archive",
    "dead-letters": "/topics/payments.dead?tab=dead",
    "nodes": "/nodes",
    "compare": "/nodes?compare={node},127.0.0.1:1",
    "node": "/nodes/{node}",
    "lookup": "/lookup",
    "counter": "/counter",
    "channels": "/channels",
    "audit": "/audit",
}
# Buttons that open a dialog, by view.
DIALOGS: list[tuple[str, str | re.Pattern[str]]] = [
    ("/", "Create a topic"),
    ("/topics/orders", "Delete"),
    ("/topics/orders", "Publish a message"),
    ("/topics/orders/archive", "Seek"),
]


@pytest.fixture
def admin(filled: AdminCluster, running_admin: NsqadminProcess) -> NsqadminProcess:
    admin = running_admin
    admin.wait_for_topic("orders", depth=9, in_flight=1, nodes=2, clients=1)
    admin.wait_for_topic("payments.dead", depth=1)
    return admin


def follow(page: Page, link: str) -> None:
    """To another view, as people get there."""
    page.get_by_role("link", name=link, exact=True).first.click()
    ready(page)


def test_what_the_views_show(visit: Visits, filled: AdminCluster, admin: NsqadminProcess) -> None:
    first, second = map(address, filled.nsqds)
    page = ready(visit(admin))
    assert tiles_of(page)["Depth"] == "10"
    topics = {row["Topic"].split()[0]: row for row in rows_of(page, "Topics")}
    assert list(topics) == ["orders", "payments.dead", "payments"]  # the worst first
    assert [topics["orders"][name] for name in ("Depth", "In flight", "Channels", "Clients")] == [
        "9",
        "1",
        "2",
        "1",
    ]
    assert "channel paused" in topics["orders"]["Problems"]

    follow(page, "orders")
    assert tiles_of(page)["Depth"] == "9"
    channels = {row["Channel"].split()[0]: row for row in rows_of(page, "Channels")}
    assert [(name, row["Depth"], row["In flight"]) for name, row in channels.items()] == [
        ("billing", "5", "0"),
        ("archive", "4", "1"),
    ]
    assert "paused" in channels["billing"]["Problems"]
    assert {
        row["nsqd"].split()[0]: row["Messages total"] for row in rows_of(page, "nsqds that have the topic")
    } == {first: "2", second: "3"}

    follow(page, "archive")
    assert (tiles_of(page)["Depth"], tiles_of(page)["In flight"], tiles_of(page)["Clients"]) == (
        "4",
        "1",
        "1",
    )
    assert {row["nsqd"].split()[0]: row["Depth"] for row in rows_of(page, "nsqds that have the channel")} == {
        first: "1",
        second: "3",
    }
    (client,) = rows_of(page, "Clients")
    assert [client[name] for name in ("Client", "Host", "User agent", "nsqd", "RDY", "Messages total")] == [
        "reader",
        "reader.example",
        "tests/1.0",
        first,
        "1",
        "1",
    ]
    page.get_by_role("button", name="Peek").click()
    expect(
        page.get_by_role("region", name=f"Messages of {second}").get_by_text("hello", exact=True)
    ).to_have_count(3)
    assert (filled.nsqds[1].channel_stats("orders", "archive") or {})["depth"] == 3  # nothing is taken

    follow(page, "orders")
    follow(page, "Log")
    assert (tiles_of(page)["Kept"], tiles_of(page)["Not finished"]) == ("5", "5")
    log = page.get_by_role("region", name=f"Log on {second}")
    expect(log).to_contain_text("3 kept, 3 of them not finished")
    log.get_by_text("1 file").click()
    (file,) = rows_of(page, f"Files of the log on {second}")
    assert (file["Kept"], file["Not finished"]) == ("3", "3")


def test_what_the_views_of_the_cluster_show(
    visit: Visits, filled: AdminCluster, admin: NsqadminProcess
) -> None:
    first, second = map(address, filled.nsqds)
    page = ready(visit(admin, "/topics/orders?tab=dead"))
    expect(
        page.get_by_role("heading", name="No dead letters")
    ).to_be_visible()  # although messages wait in it
    page.goto("/topics/payments.dead?tab=dead")
    ready(page)
    assert tiles_of(page)["Depth"] == "1"
    (letter,) = rows_of(page, "The latest dead letters")
    assert [letter[name] for name in ("From topic", "Channel", "nsqd", "Attempts")] == [
        "payments",
        "ledger",
        first,
        "2",
    ]

    follow(page, "Nodes")
    nodes = {row["nsqd"].split()[0]: row for row in rows_of(page, "nsqds")}
    assert sorted(nodes) == sorted((first, second))
    assert [nodes[first][name] for name in ("Depth", "Clients", "Version", "nsqd-py")] == [
        "4",
        "1",
        "1.3.0",
        PROJECT_VERSION,
    ]
    expect(page.get_by_role("contentinfo")).to_contain_text(f"nsqadmin-py {PROJECT_VERSION} for NSQ 1.3.0")
    assert nodes[first]["Topics"].split() == ["3", "orders", "payments", "payments.dead"]
    page.get_by_role("link", name=first).first.click()
    ready(page)
    assert (tiles_of(page)["Depth"], tiles_of(page)["Clients"]) == ("4", "1")
    assert [row["Topic"].split()[0] for row in rows_of(page, "Topics of this nsqd")] == [
        "orders",
        "payments",
        "payments.dead",
    ]
    assert [row["Channel"].split()[0] for row in rows_of(page, "Channels of this nsqd")][:2] == [
        "billing",
        "archive",
    ]
    (reader,) = rows_of(page, "Consumers of this nsqd")
    assert [reader[name] for name in ("Topic", "Channel", "In flight")] == ["orders", "archive", "1"]
    # After the second answer.
    expect(page.get_by_role("table", name="Consumers of this nsqd").get_by_text("–")).to_have_count(2)
    assert rows_of(page, "Publishers of this nsqd")[0]["Client"] == "No connection has published."

    follow(page, "Lookup")
    (idle,) = rows_of(page, "Topics that no nsqd has")
    assert (idle["Topic"], idle["Channels"].split()[0]) == ("idle", "gone")

    follow(page, "Counter")
    counted = sum(
        channel["message_count"]
        for nsqd in filled.nsqds
        for topic in nsqd.stats()["topics"]
        for channel in topic["channels"]
    )
    expect(page.get_by_role("main")).to_contain_text(f"{counted}")
    assert {row["nsqd"].split()[0]: row["Processed"] for row in rows_of(page, "Messages by nsqd")} == {
        first: "5",
        second: "6",
    }
    assert {row["nsqd"].split()[0]: row["Share"] for row in rows_of(page, "Messages by nsqd")} == {
        first: "45 %",
        second: "55 %",
    }


# ---- everybody


@pytest.mark.parametrize(
    "names", [["topics", "messages", "channel"], pytest.param([*VIEWS], marks=pytest.mark.slow)]
)
def test_everybody_can_read_it(
    visit: Visits, filled: AdminCluster, admin: NsqadminProcess, names: list[str]
) -> None:
    page = visit(admin)
    faults = {}
    for name in names:
        page.goto(VIEWS[name].format(node=address(filled.nsqds[0])))
        expect(ready(page)).to_have_title(re.compile("^\\w.* · nsqadmin$"))
        faults[name] = faults_of(page)
        page.set_viewport_size(PHONE)
        faults[name] += overflow(page)
        page.set_viewport_size(DESK)
    assert not any(faults.values()), faults


@pytest.mark.slow
def test_everybody_can_read_the_dialogs(visit: Visits, admin: NsqadminProcess) -> None:
    page = visit(admin, size=PHONE)
    faults = {}
    for path, button in DIALOGS:
        page.goto(path)
        press(ready(page), button)
        faults[path, button] = faults_of(page) + overflow(page)
    assert not any(faults.values()), faults


def faults_of(page: Page) -> list[str]:
    """In light colours, and of the colours in the dark ones."""
    found = violations(page)
    system_theme(page, "dark")
    found += [f"dark: {fault}" for fault in violations(page, ["color-contrast"])]
    system_theme(page, "light")
    return found
