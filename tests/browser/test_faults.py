"""A cluster breaks, and the page says what is wrong, where and since when."""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.support.browser import Visits, ready
from tests.support.network import LoopbackNetwork
from tests.support.nsqadmin_cluster import AdminCluster, address
from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.nsqd_process import wait_until
from tests.support.wire import rdy, req

# One worker runs them all: they share their browser.
pytestmark = pytest.mark.xdist_group("browser")

CLOCK = r"\d\d:\d\d:\d\d"


@pytest.fixture
def broken(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[AdminCluster]:
    """A cluster of its own, whose processes a test may kill; `param` has more flags of its nsqds."""
    with AdminCluster(tmp_path, "--max-attempts=5", *getattr(request, "param", ())) as cluster:
        cluster.create("orders", "archive")
        cluster.publish("orders", 2, 3)
        yield cluster


def open_admin(cluster: AdminCluster) -> NsqadminProcess:
    admin = cluster.admin("--poll-interval=500ms")
    admin.wait_for_topic("orders", nodes=2, channels=1)
    return admin


def attention(page: Page) -> Locator:
    return page.get_by_role("region", name="Attention")


def item(page: Page, *texts: str) -> Locator:
    """The entry of the list that has these texts, and says since when and what to do."""
    found = attention(page).get_by_role("listitem")
    for text in (*texts, "since"):
        found = found.filter(has_text=re.compile(text))
    return found


def rounds(admin: NsqadminProcess, count: int) -> None:
    """Wait for the end of this many rounds that begin from now on."""
    wanted = admin.get("/api/v2/overview")["tick"] + count + 1
    wait_until(lambda: admin.get("/api/v2/overview")["tick"] >= wanted, what=f"{count} rounds")


def has_room(folder: Path) -> bool:
    """False if the machine's own disk is so full that nsqds report it."""
    disk = shutil.disk_usage(folder)
    return disk.free / disk.total > 0.25


def test_a_cluster_that_is_well_needs_no_attention(broken: AdminCluster, visit: Visits, tmp_path: Path) -> None:
    admin = open_admin(broken)
    with broken.nsqds[0].connect() as first, broken.nsqds[1].connect() as second:
        for client in (first, second):
            client.sub("orders", "archive", 100)
        first.consume(2)
        second.consume(3)
        rounds(admin, 2)
        page = ready(visit(admin))
        if has_room(tmp_path):
            expect(page.get_by_role("main")).to_contain_text("Nothing needs attention.")
        expect(attention(page).get_by_role("listitem").filter(has_not_text="left of its disk")).to_have_count(0)


def test_consumers_that_stop_are_on_the_first_screen_after_two_rounds(broken: AdminCluster, visit: Visits) -> None:
    admin = open_admin(broken)
    page = ready(visit(admin))
    with broken.nsqds[0].connect() as first, broken.nsqds[1].connect() as second:
        first.sub("orders", "archive", 1)
        second.sub("orders", "archive", 1)
        expect(item(page, "no consumer")).to_have_count(0)
    broken.publish("orders", 4, 0)
    rounds(admin, 2)
    found = item(page, "no consumer", "orders", "archive", "messages wait, and no consumer is connected", CLOCK)
    expect(found).to_be_visible()
    expect(page.get_by_role("table", name="Topics").get_by_role("row", name="orders")).to_contain_text("no consumer")
    found.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("archive")
    expect(page.get_by_role("main")).to_contain_text("Oldest message")


def test_many_problems_with_one_cause_are_one_row_that_unfolds(broken: AdminCluster, visit: Visits) -> None:
    admin = open_admin(broken)
    for number in range(9):
        broken.create(f"events{number}", "archive")
        broken.nsqds[0].post(f"/pub?topic=events{number}", b"x")
    rounds(admin, 2)
    page = ready(visit(admin))
    found = item(page, "no consumer", "10 channels of 10 topics", "the worst is orders/archive: 5 messages wait", CLOCK)
    expect(found).to_be_visible()
    member = found.get_by_role("link", name="events8")
    expect(member).not_to_be_visible()
    found.get_by_text("All 10").click()
    member.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("archive")


def test_a_consumer_on_one_nsqd_only_leaves_messages_on_the_other(broken: AdminCluster, visit: Visits) -> None:
    admin = open_admin(broken)
    with broken.nsqds[0].connect() as client:
        client.sub("orders", "archive", 100)
        client.consume(2)
        rounds(admin, 2)
        page = ready(visit(admin))
        where = re.escape(address(broken.nsqds[1]))
        expect(item(page, "no consumer", f"3 messages wait on {where}, to which none of its consumers")).to_be_visible()


def test_a_killed_and_a_hanging_nsqd_are_on_the_first_screen(broken: AdminCluster, visit: Visits) -> None:
    admin = open_admin(broken)
    page = ready(visit(admin))
    broken.nsqds[1].kill()
    rounds(admin, 2)
    gone = item(page, "^gone", re.escape(address(broken.nsqds[1])), "3 messages waited there", CLOCK)
    expect(gone).to_be_visible()
    broken.nsqds[0].signal(signal.SIGSTOP)
    try:
        rounds(admin, 2)
        hanging = re.escape(address(broken.nsqds[0]))
        expect(item(page, "^slow", hanging, "answers late", CLOCK)).to_be_visible()
    finally:
        broken.nsqds[0].signal(signal.SIGCONT)
    expect(item(page, "^slow")).to_have_count(0)
    gone.get_by_role("button", name="Dismiss").click()
    expect(gone).to_have_count(0)


@pytest.mark.slow
def test_an_nsqd_behind_a_cut_network_is_on_the_first_screen(broken: AdminCluster, visit: Visits) -> None:
    """Its process runs and its connections stay open, but nothing comes through."""
    with closing(LoopbackNetwork()) as network:
        far, here = network.add_host(), broken.nsqds[0].host
        way = network.way(far, here, broken.nsqds[0].http_port)
        near = address(broken.nsqds[1])
        admin = broken.admin("--poll-interval=500ms", f"--nsqd-http-address={way}", f"--nsqd-http-address={near}")
        admin.wait_for_topic("orders", nodes=2, channels=1)
        page = ready(visit(admin))
        expect(page.get_by_role("banner")).to_contain_text("2 ok")
        network.cut(far, here)
        rounds(admin, 2)
        texts = ("answers late; 2 messages waited there when it was last seen", CLOCK)
        expect(item(page, "^slow", re.escape(way), *texts)).to_be_visible()
        expect(page.get_by_role("banner")).to_contain_text("1 ok")
        network.heal(far, here)
        expect(item(page, "^slow")).to_have_count(0)


def test_poisoned_messages_are_on_the_first_screen_after_two_rounds(broken: AdminCluster, visit: Visits) -> None:
    """Messages that are requeued again and again, and then are dead letters; and ones that time out."""
    admin = open_admin(broken)
    page = ready(visit(admin))
    with broken.nsqds[1].connect(msg_timeout=1000) as slow, broken.nsqds[0].connect() as client:
        slow.sub("orders", "archive", 1)
        slow.message()
        slow.send(rdy(0))  # or it would get the message again after each time-out
        client.sub("orders", "archive", 1)
        for _ in range(8):
            client.send(req(client.message().id, 0))
        rounds(admin, 2)
        expect(item(page, "requeued", "orders", "archive", "% of all deliveries", CLOCK)).to_be_visible()
        for _ in range(2):
            client.send(req(client.message().id, 0))
        broken.nsqds[0].wait_for_channel("orders", "archive", dead_letter_count=2)
        broken.nsqds[1].wait_for_channel("orders", "archive", timeout_count=1)
        rounds(admin, 2)
        expect(item(page, "timing out", "orders", "archive", "of all deliveries", CLOCK)).to_be_visible()
        expect(item(page, "dead letters", "2 dead letters of orders wait", CLOCK)).to_be_visible()


def test_a_pause_and_a_topic_without_channel(broken: AdminCluster, visit: Visits) -> None:
    admin = open_admin(broken)
    page = ready(visit(admin))
    broken.nsqds[0].post("/channel/pause?topic=orders&channel=archive")
    broken.nsqds[0].post("/pub?topic=payments", b"x")
    rounds(admin, 2)
    expect(item(page, "paused", "The channel is paused on 1 of 2 nsqds; 5 messages wait", CLOCK)).to_be_visible()
    expect(item(page, "no channel", "payments", "1 message waits, and the topic has no channel")).to_be_visible()


@pytest.mark.parametrize("broken", [["--max-disk-bytes=1000000"]], indirect=True)
def test_a_disk_that_fills_up(broken: AdminCluster, visit: Visits) -> None:
    admin = open_admin(broken)
    page = ready(visit(admin))
    full = re.escape(address(broken.nsqds[0]))
    body = b"x" * 50_000
    while "disk_left_percent" not in broken.nsqds[0].stats():
        broken.nsqds[0].post("/pub?topic=orders", body)
    rounds(admin, 2)
    expect(item(page, "^disk", full, "% left of its disk, or of the limit", CLOCK)).to_be_visible()
    while broken.nsqds[0].http("POST", "/pub?topic=orders", body).status == 200:
        pass
    rounds(admin, 2)
    expect(item(page, "not healthy", full, "reports: NOK - disk: all logs together have", CLOCK)).to_be_visible()


def test_an_nsqd_that_was_killed_is_remembered_until_it_is_dismissed(broken: AdminCluster, visit: Visits) -> None:
    admin = open_admin(broken)
    page = ready(visit(admin))
    broken.nsqds[1].kill()
    expect(page.get_by_role("banner")).to_contain_text("1 gone")
    expect(page.locator("dl")).to_contain_text("without 3 on nsqds that do not answer")
    page.get_by_role("link", name="Nodes", exact=True).click()
    row = page.get_by_role("table", name="nsqds").get_by_role("row").filter(has_text=address(broken.nsqds[1]))
    expect(row).to_contain_text(re.compile(f"gone.*no nsqlookupd lists it.*no answer since {CLOCK}"))
    row.get_by_role("link").first.click()
    expect(page.get_by_role("main")).to_contain_text(
        re.compile(f"This nsqd is gone. The figures on this page are those of {CLOCK}")
    )
    expect(page.get_by_role("table", name="Topics of this nsqd")).to_contain_text("Its topics are not known.")
    page.get_by_role("button", name="Dismiss").click()
    expect(page.get_by_role("banner")).not_to_contain_text("gone")


def test_an_nsqd_that_does_not_answer_is_not_healthy_and_has_topics(broken: AdminCluster, visit: Visits) -> None:
    admin = open_admin(broken)
    page = ready(visit(admin, f"/nodes/{address(broken.nsqds[0])}"))
    expect(page.get_by_role("main")).to_contain_text("OK")
    broken.nsqds[0].signal(signal.SIGSTOP)
    try:
        expect(page.get_by_role("main")).to_contain_text(
            re.compile(f"This nsqd does not answer. The figures on this page are those of {CLOCK}")
        )
        expect(page.locator("dl").last).to_contain_text(re.compile(r"Health\s*unknown"))
        expect(page.get_by_role("table", name="Topics of this nsqd")).to_contain_text("orders")
    finally:
        broken.nsqds[0].signal(signal.SIGCONT)
    expect(page.get_by_role("main")).not_to_contain_text("does not answer")
