"""A cluster breaks, and the page says what is wrong, where and since when."""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.support.browser import Visits, ready
from tests.support.nsqadmin_cluster import AdminCluster, address
from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.nsqd_process import wait_until

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


def test_a_cluster_that_is_well_needs_no_attention(
    broken: AdminCluster, visit: Visits, tmp_path: Path
) -> None:
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
        expect(attention(page).get_by_role("listitem").filter(has_not_text="left of its disk")).to_have_count(
            0
        )


def test_consumers_that_stop_and_do_not_come_back_are_on_the_first_screen(
    broken: AdminCluster, visit: Visits, set_constants: Callable[..., None]
) -> None:
    set_constants("nsqadmin", {"nsqd_py.cluster.problems.of_channels.CONSUMERS_RETURN_S": 3.0})
    admin = open_admin(broken)
    page = ready(visit(admin))
    with broken.nsqds[0].connect() as first, broken.nsqds[1].connect() as second:
        first.sub("orders", "archive", 1)
        second.sub("orders", "archive", 1)
        expect(item(page, "no consumer")).to_have_count(0)
    broken.publish("orders", 4, 0)
    rounds(admin, 2)
    found = item(
        page, "no consumer", "orders", "archive", "messages wait, and no consumer is connected", CLOCK
    )
    expect(found).to_be_visible()
    expect(page.get_by_role("table", name="Topics").get_by_role("row", name="orders")).to_contain_text(
        "no consumer"
    )
    found.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("archive")
    expect(page.get_by_role("main")).to_contain_text("Oldest")


def test_many_problems_with_one_cause_are_one_row_that_unfolds(broken: AdminCluster, visit: Visits) -> None:
    admin = open_admin(broken)
    for number in range(9):
        broken.create(f"events{number}", "archive")
        broken.nsqds[0].post(f"/pub?topic=events{number}", b"x")
    rounds(admin, 2)
    page = ready(visit(admin))
    found = item(
        page, "no consumer", "10 channels of 10 topics", "the worst is orders/archive: 5 messages wait", CLOCK
    )
    expect(found).to_be_visible()
    member = found.get_by_role("link", name="events8")
    expect(member).not_to_be_visible()
    found.get_by_text("All 10").click()
    member.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("archive")


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


def test_an_nsqd_that_does_not_answer_is_not_healthy_and_has_topics(
    broken: AdminCluster, visit: Visits
) -> None:
    admin = open_admin(broken)
    page = ready(visit(admin, f"/nodes/{address(broken.nsqds[0])}"))
    expect(page.get_by_role("main")).to_contain_text("OK")
    broken.nsqds[0].signal(signal.SIGSTOP)
    try:
        expect(page.get_by_role("main")).to_contain_text(
            re.compile(f"This nsqd does not answer. The metrics on this page are those of {CLOCK}")
        )
        expect(page.locator("dl").last).to_contain_text(re.compile(r"Health\s*unknown"))
        expect(page.get_by_role("table", name="Topics of this nsqd")).to_contain_text("orders")
    finally:
        broken.nsqds[0].signal(signal.SIGCONT)
    expect(page.get_by_role("main")).not_to_contain_text("does not answer")
