"""The store of an nsqd on the page: a badge at its name, a section on its page, and a row under Attention."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.support.browser import PHONE, Visits, overflow, ready, system_theme, violations
from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.web_server import Asked, Reply, WebServer
from tests.unit.cluster.test_stores import STORE

# One worker runs them all: they share their browser.
pytestmark = pytest.mark.xdist_group("browser")
ERROR = "rounds/0000000000000001: 503 <b>Slow</b> Down"


def fake_stats(**store: Any) -> bytes:
    document = {"version": "1.3.0", "health": "OK", "start_time": 1, "topics": []}
    return json.dumps(document | {"store": STORE | store} if store else document).encode()


def test_a_store_is_shown_and_what_is_wrong_with_it(visit: Visits, tmp_path: Path) -> None:
    said = {"/stats": fake_stats(acks=1, last_round_ms_ago=5000), "/info": b'{"tcp_port": 1}'}

    def reply(asked: Asked) -> Reply:
        path = asked.target.partition("?")[0]
        return Reply(200 if path in said else 404, body=said.get(path, b""))

    flags = ("--history-file=", "--poll-interval=500ms")
    with WebServer(reply) as nsqd:
        node = f"127.0.0.1:{nsqd.port}"
        admin = NsqadminProcess(tmp_path / "nsqadmin.log", *flags, f"--nsqd-http-address={node}")
        with admin.start():
            page = ready(visit(admin, "/nodes", faults=["ERR_CONNECTION", "ERR_INCOMPLETE_CHUNKED"]))
            row = page.get_by_role("table", name="nsqds").get_by_role("row").nth(1)
            expect(row.get_by_text("store", exact=True)).to_have_attribute("title", "s3://b/p")

            page.goto(f"/nodes/{node}")
            section = ready(page).get_by_role("region", name="Store", exact=True)
            for text in ("s3://b/p", "storing", "3 messages, 400 B, 900 ms", "7.81 KiB in 7 objects", "90"):
                expect(section).to_contain_text(text)
            expect(section).to_contain_text("5 s ago")
            expect(section).to_contain_text("A publisher gets its OK when the store has its message.")

            said["/stats"] = fake_stats(state="away", away_ms=75_000, error=ERROR)
            trouble = f"has had no answer from its store s3://b/p for 75 s: {ERROR}"
            expect(section.get_by_role("status")).to_contain_text(f"It {trouble}.")
            expect(section).to_contain_text("Publishers do not wait for the store.")
            for theme in ("light", "dark"):
                system_theme(page, theme)
                assert violations(page) == [], theme
            page.set_viewport_size(PHONE)
            assert overflow(page) == []

            page.goto("/nodes?state=attention")
            badge = ready(page).get_by_role("table", name="nsqds").get_by_text("store, away")
            expect(badge).to_have_attribute("title", f"{trouble}; s3://b/p")
            assert overflow(page) == []
            page.goto("/")
            attention = ready(page).get_by_role("region", name="Attention")
            expect(attention).to_contain_text(re.compile(rf"store away\s*nsqd {node} {re.escape(trouble)}"))

            said["/stats"] = fake_stats()
            page.goto(f"/nodes/{node}")
            expect(ready(page).get_by_role("region", name="About this nsqd")).to_be_visible()
            expect(page.get_by_text("s3://b/p")).to_have_count(0)
