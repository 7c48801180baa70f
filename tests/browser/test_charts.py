"""Charts of hours and days: peaks, a part of them, and marks of what happened."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from playwright.sync_api import expect

from nsqadmin_py.history.document import encode, pack
from nsqadmin_py.history.series import History, Key
from tests.support.browser import Visits, ready
from tests.support.nsqadmin_cluster import AdminCluster

pytestmark = pytest.mark.xdist_group("browser")


def write_history(path: Path) -> None:
    """Write an hour in which the depth was 3, and for a moment 4,350."""
    history, now_s = History(), time.time()
    for second in range(-3600, -60, 2):
        history.record(now_s + second, [(Key("orders"), {"depth": 4350.0 if second == -1800 else 3.0}, ())])
    path.write_bytes(pack(encode(history)))


def test_a_part_of_a_chart_is_in_the_address(visit: Visits, cluster: AdminCluster, tmp_path: Path) -> None:
    cluster.create("orders", "archive")
    write_history(tmp_path / "history.db")
    admin = cluster.admin(f"--history-file={tmp_path / 'history.db'}")
    admin.wait_for_topic("orders", nodes=2)
    assert admin.act("pause", "orders", channel="archive").status == 200
    page = ready(visit(admin, "/topics/orders?range=1h"))
    expect(page.get_by_role("button", name="1h")).to_have_attribute("aria-pressed", "true")
    area = page.locator(".u-over").first
    area.hover()
    box = area.bounding_box()
    assert box is not None
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 9, steps=3)
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"from=\d+&until=\d+"))
    shown = page.get_by_role("group", name="Zoom").get_by_role("status")
    expect(shown).to_have_text(re.compile(r"\d\d:\d\d:\d\d to \d\d:\d\d:\d\d"))
    text = shown.inner_text()
    page.reload()
    expect(shown).to_have_text(text)
    page.get_by_role("button", name="Zoom out").click()
    expect(shown).not_to_have_text(text)
    page.go_back()
    page.go_back()
    expect(shown).to_have_text("")
