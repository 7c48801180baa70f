"""Looking into messages: the log, what is in flight or deferred, and what is done with a single message."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.support.browser import Visits, confirm, overflow, press, ready, rows_of, violations
from tests.support.browser_hostile import IMAGE
from tests.support.nsqadmin_cluster import AdminCluster, address
from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.nsqd_process import NsqdProcess
from tests.support.sweeps import sample

# One worker runs them all: they share their processes.
pytestmark = pytest.mark.xdist_group("browser")

ORDERS = [b'{"id": %d, "state": "%s"}' % (i, b"paid" if i % 3 else b"open") for i in range(60)]
LARGE = b"<b>" + b"x" * 1_000_000
HOSTILE = [IMAGE.encode(), b"\x00\x1b[2J\r\n\x7f", b"\xff\xfe" + IMAGE.encode(), LARGE]
CLIPBOARD = {"permissions": ["clipboard-read", "clipboard-write"]}


@pytest.fixture
def nsqd(cluster: AdminCluster, admin: NsqadminProcess) -> NsqdProcess:
    """The first of the cluster, with messages."""
    cluster.create("orders", "archive")
    nsqd = cluster.nsqds[0]
    with nsqd.connect() as client:
        client.mpub("orders", ORDERS)
        for body in HOSTILE:
            client.pub("orders", body)
    admin.wait_for_topic("orders", depth=64, nodes=2)
    return nsqd


def found_on(page: Page, nsqd: NsqdProcess) -> Locator:
    return page.get_by_role("region", name=f"Messages of {address(nsqd)}")


def look_for(page: Page, **fields: str) -> None:
    for name, value in fields.items():
        page.get_by_label(name.replace("_", " ")).fill(value)
    page.get_by_role("button", name="Show messages").click()


def found_in(page: Page) -> Locator:
    return page.get_by_role("region", name="Messages found")


def test_the_log_is_searched(visit: Visits, nsqd: NsqdProcess, admin: NsqadminProcess) -> None:
    nsqd.post("/channel/empty?topic=orders&channel=archive")  # finished messages are found too
    page = ready(visit(admin, "/topics/orders"))
    page.get_by_role("link", name="Messages", exact=True).click()
    page.get_by_label("nsqd", exact=True).select_option(address(nsqd))
    page.get_by_label("Show", exact=True).select_option("From a number on")
    page.get_by_label("Messages", exact=True).select_option("10")
    look_for(page, Number="20", JSON_path="$.state = open")
    found = found_in(page)
    rows = found.locator("tbody [data-row]")
    expect(rows).to_have_count(10)
    expect(rows.last).to_contain_text('"id": 21')
    expect(found.get_by_role("status").first).to_contain_text("10 of 29 messages that were searched")
    found.get_by_role("button", name="Newer messages").click()
    expect(rows).to_have_count(13)
    expect(found.get_by_role("status").first).to_contain_text("the log ends here")
    assert "path=%24.state+%3D+open" in page.url
    look_for(page, Number="0", JSON_path="", Regular_expression="(?i)OPEN", Text_in_the_body="57")
    expect(rows).to_have_count(1)
    rows.click()
    unfolded = found.get_by_role("listitem")
    expect(unfolded).to_contain_text("number 57")
    assert violations(page) == []
    rows.get_by_role("button").press("Enter")
    expect(unfolded).to_have_count(0)
    look_for(page, Number="40", Regular_expression="", Text_in_the_body="")
    expect(rows.last).to_contain_text('"id": 40')
    found.get_by_role("button", name="Older messages").click()
    expect(rows.first).to_contain_text('"id": 39')
    expect(rows).to_have_count(10)
    found.get_by_role("button", name="Older messages").click()
    expect(rows.last).to_contain_text('"id": 20')
    expect(rows).to_have_count(20)
    found.get_by_role("button", name="Newer messages").click()
    expect(rows.last).to_contain_text('"id": 40')
    page.go_back()
    expect(rows.first).to_contain_text('"id": 39')
    assert violations(page) == []


def test_the_messages_of_all_nsqds_are_one_list(
    visit: Visits, cluster: AdminCluster, nsqd: NsqdProcess, admin: NsqadminProcess
) -> None:
    other = cluster.nsqds[1]
    for number, to in enumerate((other, nsqd, other)):
        to.post("/pub?topic=orders", b"late %d" % number)
    page = ready(visit(admin, "/topics/orders?tab=messages&limit=10&text=late"))
    found = found_in(page)
    rows = found.locator("tbody [data-row]")
    expect(rows).to_have_count(3)
    for row, (number, of) in zip(rows.all(), ((2, other), (1, nsqd), (0, other)), strict=True):
        expect(row).to_contain_text(f"late {number}")
        expect(row).to_contain_text(address(of))
    expect(found.get_by_role("status").first).to_have_text(
        "3 of 67 messages that were searched; the logs begin here"
    )


def test_a_search_goes_on_until_it_is_cancelled(
    visit: Visits, nsqd: NsqdProcess, admin: NsqadminProcess
) -> None:
    """nsqadmin answers with a part of the log each time; after the second one, not before the test says so."""
    page = ready(visit(admin, "/lookup"))
    asked: list[str] = []
    held: list[Route] = []

    def answer(route: Route) -> None:
        asked.append(route.request.url)
        if len(asked) == 3:
            held.append(route)
            return
        start = 1000 - 300 * len(asked)
        message = {
            "id": "0123456789abcdef",
            "seq": start,
            "timestamp": 10**18 + start,
            "size": 2,
            "body": "it",
        }
        answer = {
            "messages": [message],
            "searched_count": 300,
            "prev_seq": start,
            "next_seq": 1000,
            "is_end": True,
            "first_timestamp": 10**18 + start,
            "last_timestamp": 2 * 10**18,
            "is_start": len(asked) == 4,
        }
        route.fulfill(json={"nodes": [{"node": address(nsqd), "answer": answer, "can": True}]})

    page.route("**/api/v2/topics/orders/messages?*", answer)
    page.route(
        "**/api/v2/topics/orders/log?*",
        lambda route: route.fulfill(
            json={
                "nodes": [
                    {"node": address(nsqd), "answer": {"earliest_seq": 0, "next_seq": 1000}, "can": True}
                ]
            }
        ),
    )
    page.goto(f"/topics/orders?tab=messages&text=it&node={address(nsqd)}")
    found = found_in(page)
    status = found.get_by_role("status").first
    expect(status).to_have_text("2 of 600 messages that were searched; 1,000 to search")
    expect(found.get_by_label("Searched")).to_have_attribute("value", "600")
    assert ("from=latest" in asked[0], "before=700" in asked[1], "before=400" in asked[2]) == (
        True,
        True,
        True,
    )
    found.get_by_role("button", name="Cancel").click()
    expect(status).to_have_text("2 of 600 messages that were searched")
    found.get_by_role("button", name="Search on").click()
    expect(status).to_have_text("3 of 900 messages that were searched; the log begins here")
    assert "before=400" in asked[3]


def test_hostile_bodies_are_text_and_come_whole(
    visit: Visits, nsqd: NsqdProcess, admin: NsqadminProcess
) -> None:
    page = ready(visit(admin, "/topics/orders?tab=messages&limit=10"))
    found = found_in(page)
    rows = found.locator("tbody [data-row]")
    expect(rows).to_have_count(10)
    expect(rows.nth(1)).to_contain_text("ff fe 3c 69 6d 67")
    for row in range(4):
        rows.nth(row).get_by_role("button").click()
    large, binary, controls, image = (found.get_by_role("listitem").nth(place) for place in range(4))
    expect(image.locator("pre")).to_contain_text(IMAGE)
    expect(controls.locator("pre")).to_contain_text("␀␛[2J␍")
    expect(binary.get_by_label("Body as hex")).to_contain_text("ff fe 3c 69 6d 67")
    expect(large).to_contain_text("977 KiB")
    expect(large).to_contain_text("truncated: the first 64 KiB")
    with page.expect_download() as download:
        large.get_by_role("link", name="Download").click()
    assert Path(download.value.path()).read_bytes() == LARGE
    assert page.locator("main img, main b").count() == 0
    assert violations(page) + overflow(page) == []


def test_a_message_is_published_again_edited(
    visit: Visits, cluster: AdminCluster, nsqd: NsqdProcess, admin: NsqadminProcess
) -> None:
    page = ready(visit(admin, "/topics/orders?tab=messages&seq=0&limit=10"))
    found_in(page).locator("tbody [data-row]").last.get_by_role("button").click()
    found_in(page).get_by_role("button", name="Publish again …").click()
    dialog = page.get_by_role("dialog")
    places = dialog.get_by_label("nsqd").locator("option")
    expect(places).to_have_text(["Any healthy one", *sorted(map(address, cluster.nsqds))])
    body = dialog.get_by_label("Body", exact=True)
    expect(body).to_have_value(ORDERS[0].decode())
    body.fill('{"id": 0, "state": "paid"}')
    dialog.get_by_label("To topic").fill("corrected")
    dialog.get_by_role("button", name="Publish", exact=True).click()
    expect(dialog.get_by_role("status").first).to_contain_text("1 published so far")
    assert violations(page) == []
    copies = [nsqd.topic_stats("corrected") for nsqd in cluster.nsqds]
    assert sum(copy["message_count"] for copy in copies if copy) == 1
    assert re.search(r'AUDIT: publish topic="corrected" copy_of="[0-9a-f]{16}" by=', admin.log_text())


def test_one_dead_letter_is_requeued_and_one_discarded(
    visit: Visits, cluster: AdminCluster, admin: NsqadminProcess
) -> None:
    cluster.create("orders", "archive")
    nsqd = cluster.nsqds[0]
    nsqd.create("orders.dead", "letters")
    with nsqd.connect() as client:
        client.mpub("orders.dead", [b"good", b"bad", b"rest"])
    admin.wait_for_topic("orders.dead", depth=3)
    page = ready(visit(admin, "/topics/orders.dead/letters"))
    page.get_by_role("button", name="Peek").click()
    letters = found_on(page, nsqd).get_by_role("listitem")
    letters.filter(has_text="good").get_by_role("button", name="Requeue …").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("To topic")).to_have_value("orders")
    expect(dialog).to_contain_text("finished in the channel letters of orders.dead")
    confirm(dialog, "Requeue message")
    nsqd.wait_for_channel("orders", "archive", depth=1)
    expect(letters).to_have_count(2)
    letters.filter(has_text="bad").get_by_role("button", name="Discard …").click()
    expect(dialog).to_contain_text("1 message: bad")
    assert violations(page) == []
    confirm(dialog, "Discard message")
    nsqd.wait_for_channel("orders.dead", "letters", depth=1)
    expect(letters).to_have_count(1)
    line = rf'discard_message topic="orders.dead" channel="letters" node="{address(nsqd)}" message="\w+" seq="1" by='
    assert re.search(line, admin.log_text())


@pytest.mark.parametrize("channels", sample(["letters"], []), ids=["a channel", "no channel"])
def test_selected_dead_letters_are_requeued_and_discarded(
    visit: Visits, cluster: AdminCluster, admin: NsqadminProcess, channels: list[str]
) -> None:
    cluster.create("orders", "archive")
    nsqd = cluster.nsqds[0]
    nsqd.create("orders.dead", *channels)
    with nsqd.connect() as client:
        client.mpub("orders.dead", [b"first", b"second", b"third", b"fourth"])
    admin.wait_for_topic("orders.dead", depth=4, channels=len(channels))
    page = ready(visit(admin, "/topics/orders.dead?tab=dead"))
    table = page.get_by_role("table", name="The latest dead letters")
    assert [row["Body"] for row in rows_of(page, "The latest dead letters")] == [
        "fourth",
        "third",
        "second",
        "first",
    ]
    bar = page.get_by_role("group", name="Actions on the selected dead letters")
    requeue = bar.get_by_role("button", name="Requeue selected …")
    expect(requeue).to_have_attribute("aria-disabled", "true")
    for body in ("first", "third"):
        table.get_by_role("row", name=body).get_by_role("checkbox").check()
    expect(page.locator(".unfolded")).to_have_count(0)  # a tick box does not unfold its row
    expect(bar).to_contain_text("2 dead letters selected")
    requeue.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("To topic")).to_have_value("orders")
    confirm(dialog, "Requeue 2 messages")
    nsqd.wait_for_channel("orders", "archive", depth=2)
    expect(page.get_by_role("log", name="Notices")).to_contain_text("2 messages were requeued.")
    expect(table.locator("tbody [data-row]")).to_have_count(2)
    table.get_by_role("row", name="fourth").get_by_role("checkbox").check()
    bar.get_by_role("button", name="Discard selected …").click()
    expect(dialog).to_contain_text("fourth")
    assert violations(page) == []
    confirm(dialog, "Discard 1 message")
    expect(table.locator("tbody [data-row]")).to_have_count(1)
    expect(table).to_contain_text("second")
    nsqd.wait_for_channel("orders.dead", (channels or ["nsqadmin"])[0], depth=1)


def test_what_a_button_does_is_copied_as_a_command(
    visit: Visits, cluster: AdminCluster, nsqd: NsqdProcess, admin: NsqadminProcess
) -> None:
    page = ready(visit(admin, "/topics/orders/archive", **CLIPBOARD))
    page.get_by_text("Copy as curl").click()
    assert run_copied(page, page.get_by_role("main"), "curl: Pause") == '{"errors":[],"message":""}'
    nsqd.wait_for_channel("orders", "archive", paused=True)
    dialog = press(page, "Empty")
    run_copied(page, dialog, "Copy as curl")
    nsqd.wait_for_channel("orders", "archive", depth=0)
    confirm(dialog, "Cancel")
    page.goto("/topics/orders")
    dialog = press(ready(page), "Publish a message")
    dialog.get_by_label("Body", exact=True).fill('it\'s $HOME & "more"\n')
    run_copied(page, dialog, "Copy as curl")
    waiting = [
        n.http("GET", "/channel/peek?topic=orders&channel=archive").json()["messages"] for n in cluster.nsqds
    ]
    assert [message["body"] for messages in waiting for message in messages] == ['it\'s $HOME & "more"\n']


def run_copied(page: Page, place: Locator, button: str) -> str:
    """Run the command that a button of this place copies, and return what it prints."""
    place.get_by_role("button", name=button).click()
    expect(place.get_by_role("button", name="Copied")).to_be_visible()
    command = page.evaluate("navigator.clipboard.readText()")
    assert re.search("[0-9a-f]{64}", command) is None, "no token is in it"
    return subprocess.run(
        ["bash", "-euc", command], check=True, capture_output=True, text=True, timeout=40
    ).stdout
