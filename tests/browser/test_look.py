"""What is seen at first sight: weight, order, small lines, and what fits into one line."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, Request, ViewportSize, expect

from tests.support.browser import DESK, Visits, overflow, ready, rows_of, system_theme, tiles_of, violations
from tests.support.nsqadmin_cluster import AdminCluster
from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.nsqd_process import wait_until
from tests.support.sweeps import sample

# One worker runs them all: they share their processes.
pytestmark = pytest.mark.xdist_group("browser")

PHONE_390 = ViewportSize(width=390, height=844)
PHONE_360 = ViewportSize(width=360, height=740)
LAPTOP = ViewportSize(width=1024, height=768)
MANY = 45


def font_px(page: Page, label: str) -> float:
    tile = page.locator("main dl div").filter(has=page.locator("dt", has_text=label)).locator("dd").first
    size: float = tile.evaluate("element => parseFloat(getComputedStyle(element).fontSize)")
    return size


def test_few_tiles_are_large_and_a_rate_of_zero_is_a_dash(
    visit: Visits, cluster: AdminCluster, admin: NsqadminProcess
) -> None:
    cluster.create("orders", "archive")
    cluster.publish("orders", 2, 3)
    admin.wait_for_topic("orders", depth=5, nodes=2)
    page = ready(visit(admin))
    expect(page.get_by_label("The cluster", exact=True).locator("dt")).to_have_text(
        ["Depth", "In/s", "Finished/s", "Oldest"]
    )
    assert tiles_of(page)["Timed out/s"] == "0"
    assert font_px(page, "Depth") > 1.6 * font_px(page, "Timed out/s")
    (row,) = rows_of(page, "Topics")
    assert (row["Depth"], row["Timed out/s"], row["In flight"]) == ("5", "–", "0")


def test_what_is_not_known_is_no_zero(visit: Visits, cluster: AdminCluster, admin: NsqadminProcess) -> None:
    page = ready(visit(admin))
    figures: list[str] = page.evaluate(
        """async () => {
          const {figure, tenth} = await import(document.querySelector("script").src.replace("app.js", "lib/format.js"));
          const shown = [figure(0, tenth), figure(null, tenth), figure(0), figure(null), figure(0.2, tenth)];
          return shown.map(({ props }) => props.children);
        }"""
    )
    assert figures == ["–", "?", "0", "?", "0.2"]


def test_the_worst_rows_are_first_and_tick_boxes_are_next_to_names(
    visit: Visits, cluster: AdminCluster, admin: NsqadminProcess
) -> None:
    cluster.create("a-well", "archive")
    cluster.create("b-paused", "archive")
    cluster.create("c-waits", "archive")
    cluster.publish("c-waits", 2, 3)
    cluster.nsqds[0].post("/channel/pause?topic=b-paused&channel=archive")
    admin.wait_for_topic("b-paused", paused_channels=1)
    admin.wait_for_topic("c-waits", depth=5)
    page = ready(visit(admin))
    expect(page.get_by_role("table", name="Topics").get_by_role("row").nth(1)).to_contain_text("no consumer")
    problems = {"c-waits": "no consumer", "b-paused": "channel paused", "a-well": ""}
    wait_until(
        lambda: (
            [(row["Topic"], row["Problems"]) for row in rows_of(page, "Topics")] == list(problems.items())
        ),
        what="the worst rows first",
    )
    page.goto("/channels")
    table = ready(page).get_by_role("table", name="Channels")
    wait_until(
        lambda: [row["Topic"] for row in rows_of(page, "Channels")] == list(problems),
        what="the worst channels first",
    )
    for size in (DESK, PHONE_390):
        page.set_viewport_size(size)
        name = table.get_by_role("link", name="archive").first.bounding_box()
        box = table.get_by_label("Select archive of c-waits").bounding_box()
        assert name is not None and box is not None
        assert 0 < name["x"] - box["x"] < 40
        assert abs((name["y"] + name["height"] / 2) - (box["y"] + box["height"] / 2)) < 5
    page.set_viewport_size(DESK)
    everything = table.get_by_label("Select all rows of this page")
    everything.check()
    bar = page.get_by_role("group", name="Actions on the selected channels")
    expect(bar).to_contain_text("3 channels selected")
    table.get_by_label("Select archive of a-well").uncheck()
    expect(bar).to_contain_text("2 channels selected")
    wait_until(lambda: everything.evaluate("box => box.indeterminate"), what="a tick box of some rows")


@pytest.mark.parametrize("size", sample(PHONE_360, PHONE_390), ids=["360", "390"])
def test_the_header_of_a_phone_is_one_line(
    visit: Visits, cluster: AdminCluster, admin: NsqadminProcess, size: ViewportSize
) -> None:
    cluster.create("orders", "archive")
    admin.wait_for_topic("orders", nodes=2)
    page = ready(visit(admin, size=size))
    header = page.get_by_role("banner").bounding_box()
    assert header is not None
    assert header["height"] <= 48
    links = page.get_by_role("navigation", name="Views").get_by_role("link")
    assert links.all_inner_texts() == ["Topics", "Channels", "Nodes", "Lookup", "Counter", "Audit"]
    assert len({box["y"] for box in (link.bounding_box() or {} for link in links.all())}) == 1
    assert overflow(page) == []
    links.last.click()  # also where it has to be scrolled to
    expect(page.get_by_role("heading", level=1)).to_be_attached()
    expect(page.get_by_role("button", name="Theme: auto")).to_be_visible()  # in the footer


@pytest.mark.parametrize("size", sample(LAPTOP, DESK), ids=["1024", "1280"])
def test_plots_are_on_one_line(
    visit: Visits, cluster: AdminCluster, admin: NsqadminProcess, size: ViewportSize
) -> None:
    cluster.create("orders", "archive")
    cluster.publish("orders", 2, 3)
    with cluster.nsqds[0].connect() as client:
        client.sub("orders", "archive", 2)
        client.consume(2)
    admin.wait_for_topic("orders", depth=3)
    page = ready(visit(admin, "/topics/orders", size=size))
    plots = page.locator(".plot")
    expect(plots).to_have_count(3)
    boxes = [box for plot in plots.all() if (box := plot.bounding_box())]
    assert len({round(box["y"]) for box in boxes}) == 1
    if size is DESK:  # the legends too
        items = page.locator(".legend-item").all()
        assert len({round(box["y"]) for item in items if (box := item.bounding_box())}) == 1


def test_small_lines_come_in_one_request_and_are_drawn_where_they_are_seen(
    visit: Visits, cluster: AdminCluster, admin: NsqadminProcess
) -> None:
    for number in range(MANY):
        cluster.nsqds[0].post(f"/mpub?topic=t-{number:02}", b"a\nb\nc")
    admin.wait_for_topic(f"t-{MANY - 1}", depth=3)
    page = visit(admin, "/channels")
    asked: list[Request] = []
    page.on("request", lambda request: asked.append(request))
    page.goto("/?sort=topic")
    table = ready(page).get_by_role("table", name="Topics")
    first, last = (table.get_by_role("row", name=name) for name in ("t-00", f"t-{MANY - 1}"))
    line = first.get_by_role("img", name="Depth over 10 min")
    expect(line).to_be_attached()
    expect(line).to_have_accessible_name("Depth over 10 min: first 3, highest 3, last 3")
    assert last.get_by_role("img").count() == 0
    lines = [request for request in asked if "/sparklines" in request.url and "view=topics" in request.url]
    assert 0 < len(lines) < MANY / 4  # they are not of single rows
    last.scroll_into_view_if_needed()
    expect(last.get_by_role("img", name="Depth over 10 min")).to_be_attached()
    for theme in ("light", "dark"):
        system_theme(page, theme)  # type: ignore[arg-type]
        assert violations(page) == []
