"""Names, messages and errors that somebody chose to do harm: they are text, whatever is in them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support import browser_hostile as hostile
from tests.support.browser import DESK, PHONE, Visits, overflow, press, ready
from tests.support.browser_hostile import BACKWARDS, IMAGE, INHERITED, NULS, TEXTS
from tests.support.nsqadmin_cluster import AdminCluster, address
from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.sweeps import sampled

# One worker runs them all: they share their processes.
pytestmark = pytest.mark.xdist_group("browser")

# What no view of ours has: elements of others, code in attributes, links to anywhere but here and NSQ's documentation.
FOREIGN = """() => {
  const documentation = "https://nsq.io/overview/design.html";
  const found = document.querySelectorAll("img, iframe, object, embed, body script, [onerror], [onload], [onclick]");
  const links = [...document.querySelectorAll("a")]
    .filter(a => a.href && !a.href.startsWith(location.origin + "/") && a.href !== documentation);
  return [...found, ...links].map(element => element.outerHTML.slice(0, 200));
}"""


def harm(page: Page, visits: Visits) -> list[str]:
    """What got in, what ran, and what is not where it should be."""
    found = [*page.evaluate(FOREIGN), *visits.faults(), *overflow(page)]
    page.set_viewport_size(PHONE)
    found += overflow(page)
    page.set_viewport_size(DESK)
    return found


# ---- an nsqd and an nsqlookupd that are hostile


@pytest.fixture(scope="module")
def hostile_admin(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NsqadminProcess]:
    log_path = tmp_path_factory.mktemp("hostile") / "nsqadmin.log"
    with hostile.nsqd() as nsqd, hostile.nsqlookupd(nsqd) as lookupd:
        flags = (
            "--poll-interval=500ms",
            "--history-file=",
            f"--lookupd-http-address=127.0.0.1:{lookupd.port}",
        )
        with NsqadminProcess(log_path, *flags) as admin:
            yield admin.start()


def enc(text: str) -> str:
    return quote(text, safe="")


PATHS = [
    "/",
    f"/topics/{enc(IMAGE)}",
    f"/topics/{enc(IMAGE)}?tab=messages",
    f"/topics/{enc(IMAGE)}?tab=log",
    f"/topics/{enc(IMAGE)}?tab=dead",
    f"/topics/{enc(IMAGE)}/{enc(IMAGE)}",
    f"/topics/{enc(NULS)}",
    "/nodes",
    f"/nodes/{enc(IMAGE)}%3A1",
    "/lookup",
    *(f"/topics/{name}/{INHERITED[0]}" for name in INHERITED[1:]),
]


def test_a_hostile_cluster_harms_no_view(visit: Visits, hostile_admin: NsqadminProcess) -> None:
    hostile_admin.wait_for_topic(enc(IMAGE))
    page = visit(hostile_admin)
    found = {}
    for path in PATHS:
        page.goto(path)
        expect(ready(page).get_by_text("onerror=alert(1)").first).to_be_attached()
        found[path] = harm(page, visit)
    assert not any(found.values()), found


# ---- hostile users of a real one


def test_hostile_clients_and_messages(visit: Visits, cluster: AdminCluster, admin: NsqadminProcess) -> None:
    cluster.create("orders", "archive")
    nsqd = cluster.nsqds[0]
    with nsqd.connect() as client:
        client.mpub("orders", [json.dumps({text: [text]}).encode() for text in TEXTS])
        client.mpub("orders", [text.encode() for text in TEXTS])
        client.mpub("orders", [b"\xff\x00<img src=x onerror=alert(1)>"])
    with ExitStack() as stack:
        for text in TEXTS:
            client = nsqd.connect(client_id=text, hostname=text, user_agent=text)
            stack.enter_context(client).sub("orders", "archive")
        admin.wait_for_topic("orders", clients=len(TEXTS), depth=2 * len(TEXTS) + 1)
        page = ready(visit(admin, "/topics/orders/archive"))
        expect(page.get_by_role("table", name="Clients").get_by_text(IMAGE).first).to_be_visible()
        page.get_by_label("Messages per nsqd").select_option("50")
        page.get_by_role("button", name="Peek").click()
        messages = page.get_by_role("region", name=f"Messages of {address(nsqd)}").get_by_role("listitem")
        expect(messages).to_have_count(2 * len(TEXTS) + 1)
        expect(messages.first).to_contain_text(IMAGE)
        assert harm(page, visit) == []


@pytest.mark.parametrize(
    ("topic", "channel"), sampled([(".", "steps"), ("..", "."), ("others", "..")], ("..", "."))
)
def test_a_browser_does_not_take_a_name_for_a_step_of_the_path(
    visit: Visits, cluster: AdminCluster, admin: NsqadminProcess, topic: str, channel: str
) -> None:
    cluster.create(topic, channel)
    cluster.create("steps")
    page = ready(visit(admin))
    page.locator("main").get_by_role("link", name=topic, exact=True).click()
    expect(page).to_have_title(f"{topic} · nsqadmin")
    page.locator("main").get_by_role("link", name=channel, exact=True).click()
    for _ in range(2):
        expect(page).to_have_title(f"{channel} of {topic} · nsqadmin")
        expect(ready(page).get_by_text("Depth", exact=True).first).to_be_visible()
        page.reload()
    assert harm(page, visit) == []


@pytest.mark.slow
def test_hostile_bodies_are_published_as_they_are(
    visit: Visits, cluster: AdminCluster, admin: NsqadminProcess
) -> None:
    cluster.create("orders", "archive")
    admin.wait_for_topic("orders", nodes=2, channels=1)
    page = ready(visit(admin, "/topics/orders"))
    dialog = press(page, "Publish a message")
    for text in (IMAGE, BACKWARDS):
        dialog.get_by_label("Body", exact=True).fill(text)
        dialog.get_by_role("button", name="Publish").click()
        expect(dialog.get_by_role("status").first).to_contain_text("has it")
    dialog.get_by_role("button", name="Close").last.click()
    admin.wait_for_topic("orders", depth=2)
    found = []
    for nsqd in cluster.nsqds:
        with nsqd.connect() as client:
            client.sub("orders", "archive", 2)
            waiting = (nsqd.channel_stats("orders", "archive") or {})["message_count"]
            found += [message.body.decode() for message in client.consume(waiting)]
    assert sorted(found) == sorted([IMAGE, BACKWARDS])
    assert harm(page, visit) == []
