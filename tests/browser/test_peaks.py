"""Charts of hours and days show the peaks of each minute, not only its mean."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from playwright.sync_api import expect

from nsqadmin_py.history.file import encode, pack
from nsqadmin_py.history.series import History, Key
from tests.support.browser import Visits, ready
from tests.support.nsqadmin_cluster import AdminCluster

pytestmark = pytest.mark.xdist_group("browser")


def write_history(path: Path) -> None:
    """Write an hour in which the depth was 3, and for a moment 4,350."""
    history, now_s = History(), time.time()
    for second in range(-3600, -60, 2):
        history.record(now_s + second, [(Key("orders"), {"depth": 4350.0 if second == -1800 else 3.0}, ())])
    path.write_bytes(pack(encode(history, [])))


def test_a_peak_of_a_moment_is_seen_in_a_day(visit: Visits, cluster: AdminCluster, tmp_path: Path) -> None:
    cluster.create("orders", "archive")
    write_history(tmp_path / "history.db")
    admin = cluster.admin(f"--history-file={tmp_path / 'history.db'}")
    admin.wait_for_topic("orders", nodes=2)
    page = ready(visit(admin, "/topics/orders"))
    page.get_by_role("button", name="24h").click()
    figure = page.get_by_role("figure").filter(has_text="depth")
    expect(figure.locator("canvas")).to_be_visible()
    figure.get_by_role("button", name="Show as table").click()
    expect(figure.get_by_role("table")).to_contain_text("to 4,350)")
