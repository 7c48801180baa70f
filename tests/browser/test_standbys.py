"""Primaries and standbys on the page: who is what, how far behind, and a promotion with all that it says before."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser import (
    DESK,
    PHONE,
    Visits,
    confirm,
    overflow,
    press,
    ready,
    rows_of,
    system_theme,
    violations,
)
from tests.support.nsqadmin_cluster import address
from tests.support.nsqd_process import wait_until
from tests.support.standby_cluster import StandbyCluster
from tests.support.standby_processes import consume_all, is_primary, wait_until_it_has_all

# One worker runs them all: they share their browser.
pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture
def pair(browser: Browser, tmp_path: Path) -> Iterator[StandbyCluster]:
    with StandbyCluster(tmp_path) as cluster:
        cluster.primary.create("orders", "archive")
        cluster.primary.post("/mpub?topic=orders", b"one\ntwo\nthree")
        wait_until_it_has_all(cluster.primary)
        yield cluster


def test_roles_and_lag_are_shown_and_the_standby_is_promoted(pair: StandbyCluster, visit: Visits) -> None:
    admin = pair.admin()
    primary, standby = address(pair.primary), address(pair.standby)
    pair.wait_for_row(admin, pair.standby, standby_state="following", state="ok")
    page = ready(visit(admin, "/nodes"))
    rows = {row["nsqd"].split()[0]: row for row in rows_of(page, "nsqds")}
    assert " ".join(rows[primary]["nsqd"].split()).endswith("primary 1 of 1 standby")
    assert " ".join(rows[standby]["nsqd"].split()).endswith(f"standby, following of {primary}")
    assert rows[standby]["Lag"].split("\n")[0] == "0"
    assert (rows[primary]["Depth"], rows[standby]["Depth"]) == ("3", "0")
    page.get_by_label("State", exact=True).select_option("standby")
    expect(page.get_by_role("table", name="nsqds").get_by_role("row")).to_have_count(2)

    page.goto(f"/nodes/{primary}")
    expect(ready(page).get_by_role("region", name="Standbys")).to_contain_text("Publishers do not wait for standbys.")
    expect(page.get_by_role("table", name="Standbys of this nsqd")).to_contain_text(standby)
    page.goto(f"/nodes/{standby}")
    role = ready(page).get_by_role("region", name="Standby", exact=True)
    expect(role).to_contain_text(f"{primary}, which answers")
    expect(page.get_by_role("heading", name="Standby behind, messages")).to_be_visible()
    dialog = press(page, "Promote")
    expect(dialog).to_contain_text(f"Its primary {primary} still answers.")
    expect(dialog).to_contain_text("Nothing is lost, by the figures of")
    expect(dialog.get_by_role("button", name="Copy as curl")).to_be_visible()
    expect(dialog.get_by_role("button", name="Promote")).to_be_disabled()
    for theme in ("light", "dark"):
        system_theme(page, theme)
        assert violations(page) == [], theme
    page.set_viewport_size(PHONE)
    assert overflow(page) == []
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert (overflow(page), violations(page)) == ([], [])
    page.goto("/nodes")
    assert (overflow(ready(page)), violations(page)) == ([], [])
    page.set_viewport_size(DESK)

    pair.primary.kill()
    pair.wait_for_row(admin, pair.standby, standby_state="connecting", standby_primary_answers=False)
    page.goto("/")
    attention = ready(page).get_by_role("region", name="Attention")
    expect(attention).to_contain_text(re.compile(f"disconnected\\s*nsqd {standby} is not connected to its primary"))
    attention.get_by_role("link", name=standby).click()
    dialog = press(ready(page), "Promote")
    expect(dialog).to_contain_text("nsqadmin gets no answer from its primary")
    expect(dialog).to_contain_text(re.compile(r"acknowledged after \d\d:\d\d:\d\d, when it last heard from it"))
    confirm(dialog, "Promote", phrase=standby)
    expect(page.get_by_text(f"nsqd {standby} is being promoted.")).to_be_visible()
    wait_until(lambda: is_primary(pair.standby), what="the promotion")
    pair.wait_for_row(admin, pair.standby, role="primary", state="ok", is_listed=True, depth=3)
    expect(page.get_by_role("region", name="Standbys")).to_contain_text("It accepts standbys, and none follows it.")
    expect(page.get_by_role("list", name="Marks in the charts")).to_contain_text(f"nsqd {standby} promoted")
    assert sorted(consume_all(pair.standby, "orders", "archive")) == [b"one", b"three", b"two"]
