"""Primaries and standbys on the page: who is what, how far behind, and a promotion with all that it says before."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.nsqd_process import wait_until
from tests.support.standby_cluster import StandbyCluster
from tests.support.standby_processes import consume_all, is_primary, wait_until_it_has_all
from tests.support.web_server import Asked, Reply, WebServer

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
    # nsqadmin asks one nsqd after the other.
    expect(page.get_by_role("table", name="nsqds")).to_contain_text("1 of 1 standby")
    rows = {row["nsqd"].split()[0]: row for row in rows_of(page, "nsqds")}
    assert " ".join(rows[primary]["nsqd"].split()).endswith("primary 1 of 1 standby")
    assert " ".join(rows[standby]["nsqd"].split()).endswith(f"standby, following of {primary}")
    assert rows[standby]["Lag"].split("\n")[0] == "0"
    assert (rows[primary]["Depth"], rows[standby]["Depth"]) == ("3", "0")
    page.get_by_label("State", exact=True).select_option("standby")
    expect(page.get_by_role("table", name="nsqds").get_by_role("row")).to_have_count(2)

    page.goto(f"/nodes/{primary}")
    expect(ready(page).get_by_role("region", name="Standbys")).to_contain_text(
        "Publishers do not wait for standbys."
    )
    expect(page.get_by_role("table", name="Standbys of this nsqd")).to_contain_text(standby)
    page.goto(f"/nodes/{standby}")
    role = ready(page).get_by_role("region", name="Standby", exact=True)
    expect(role).to_contain_text(f"{primary}, which answers")
    expect(page.get_by_role("heading", name="Lag, messages")).to_be_visible()
    dialog = press(page, "Promote")
    expect(dialog).to_contain_text(f"Its primary {primary} still answers.")
    expect(dialog).to_contain_text("Nothing is lost, by the metrics of")
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
    expect(attention).to_contain_text(
        re.compile(f"disconnected\\s*nsqd {standby} is not connected to its primary")
    )
    attention.get_by_role("link", name=standby).first.click()  # it may have a second problem
    dialog = press(ready(page), "Promote")
    expect(dialog).to_contain_text("nsqadmin gets no answer from its primary")
    expect(dialog).to_contain_text(
        re.compile(r"acknowledged after \d\d:\d\d:\d\d, when it last heard from it")
    )
    confirm(dialog, "Promote", phrase=standby)
    expect(page.get_by_text(f"nsqd {standby} is being promoted.")).to_be_visible()
    wait_until(lambda: is_primary(pair.standby), what="the promotion")
    pair.wait_for_row(admin, pair.standby, role="primary", state="ok", is_listed=True, depth=3)
    expect(page.get_by_role("region", name="Standbys")).to_contain_text(
        "It accepts standbys, and none follows it."
    )
    assert sorted(consume_all(pair.standby, "orders", "archive")) == [b"one", b"three", b"two"]


def fake_stats(**standby: Any) -> bytes:
    """What the standby of a primary that is away says."""
    about = {
        "primary": "a:4150",
        "epoch": 3,
        "state": "connecting",
        "is_complete": True,
        "lag_messages": 7,
        "lag_bytes": 900,
        "lag_ms": 40,
        "last_round_ms_ago": 90_000,
        "set_aside_messages": 2,
        "lease_decides": False,
    }
    document = {"version": "1.3.0", "health": "OK", "start_time": 1, "topics": [], "standby": about | standby}
    return json.dumps(document).encode()


def test_a_promotion_that_nsqd_would_refuse_is_not_offered(visit: Visits, tmp_path: Path) -> None:
    said = {
        "/stats": fake_stats(),
        "/info": b'{"tcp_port": 1}',
        "/promote": b'{"message": "STANDBY_INCOMPLETE"}',
    }

    def reply(asked: Asked) -> Reply:
        path = asked.target.partition("?")[0]
        return Reply(409 if path == "/promote" else 200 if path in said else 404, body=said.get(path, b""))

    with WebServer(reply) as standby:
        node = f"127.0.0.1:{standby.port}"
        with NsqadminProcess(
            tmp_path / "nsqadmin.log",
            "--history-file=",
            "--poll-interval=500ms",
            f"--nsqd-http-address={node}",
        ) as admin:
            admin.start()
            page = ready(
                visit(admin, f"/nodes/{node}", faults=["409", "ERR_CONNECTION", "ERR_INCOMPLETE_CHUNKED"])
            )
            role = page.get_by_role("region", name="Standby", exact=True)
            expect(role).to_contain_text("2 messages that its primary does not have")
            dialog = press(page, "Promote")
            expect(dialog).to_contain_text(
                re.compile(r"7 messages \(900 B\) of a:4150 .*, as of \d\d:\d\d:\d\d")
            )
            confirm(dialog, "Promote", phrase=node)  # in the meantime it is incomplete: nsqd decides
            expect(page.get_by_text("Its copy is not complete: it cannot be promoted yet.")).to_be_visible()
            for about, why in (
                ({"is_complete": False}, "Its copy is not complete"),
                ({"lease_decides": True}, "A lease decides"),
            ):
                said["/stats"] = fake_stats(**about)
                expect(role).to_contain_text(why)
                button = role.get_by_role("button", name="Promote")
                expect(button).to_have_attribute("aria-disabled", "true")
                expect(button).to_have_attribute("title", re.compile(why))
                button.press("Enter")
                expect(page.get_by_role("dialog")).to_have_count(0)
