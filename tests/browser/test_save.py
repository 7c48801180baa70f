"""Tables as files: all rows that a filter leaves, in their order, as CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import Visits, ready
from tests.support.nsqadmin_cluster import AdminCluster, address
from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.nsqd_process import wait_until

# One worker runs them all: they share their processes.
pytestmark = pytest.mark.xdist_group("browser")

MANY = 120
HEAD = [
    "Topic",
    "Problems",
    "Depth",
    "In/s",
    "Finished/s",
    "In flight",
    "Deferred",
    "Requeued/s",
    "Timed out/s",
]
FORMULA = "=HYPERLINK(\"http://evil.example\",\"1;2\")"  # fmt: skip


def saved(page: Page, name: str, form: str) -> tuple[str, str]:
    """The name and the text of the file."""
    with page.expect_download() as info:
        page.get_by_role("group", name=f"Save the {name}").get_by_role("button", name=form).click()
    return info.value.suggested_filename, Path(info.value.path()).read_bytes().decode()


def csv_of(page: Page, name: str) -> list[dict[str, str]]:
    file_name, text = saved(page, name, "CSV")
    assert re.fullmatch(r"[\w.-]+-\d{4}-\d\d-\d\dT\d{6}Z\.csv", file_name)
    assert text.endswith("\r\n") and "\n" not in text.replace("\r\n", "")
    return list(csv.DictReader(io.StringIO(text, newline="")))


def json_of(page: Page, name: str) -> list[dict[str, Any]]:
    file_name, text = saved(page, name, "JSON")
    assert file_name.endswith("Z.json")
    rows: list[dict[str, Any]] = json.loads(text)
    return rows


def test_all_rows_that_a_search_leaves_are_saved(
    visit: Visits, cluster: AdminCluster, admin: NsqadminProcess
) -> None:
    names = [f"t-{number:03}" for number in range(MANY)]
    for name in [*names, "other"]:
        cluster.nsqds[0].create(name)
    cluster.nsqds[0].post("/mpub?topic=t-077", b"\n".join([b"x"] * 1234))
    admin.wait_for_topic("t-077", depth=1234)
    admin.wait_for_topic("other", nodes=1)
    page = ready(visit(admin, "/?search=t-&sort=topic&order=desc"))
    expect(page.get_by_role("navigation", name="Pages of topics")).to_contain_text(f"of {MANY} topics")
    rows = csv_of(page, "topics")
    assert list(rows[0]) == [*HEAD, "Channels", "Clients"]
    assert [row["Topic"] for row in rows] == names[::-1]
    (found,) = [row for row in rows if row["Topic"] == "t-077"]
    assert (found["Depth"], found["Finished/s"], found["Problems"]) == ("1234", "0", "no channel")
    objects = json_of(page, "topics")
    assert [row["topic"] for row in objects] == names[::-1]
    assert [row["depth"] for row in objects if row["topic"] == "t-077"] == [1234]
    assert {"finish_rate", "problems"} <= set(objects[0])


def test_a_file_has_no_formulas_of_others(
    visit: Visits, cluster: AdminCluster, admin: NsqadminProcess
) -> None:
    cluster.create("-orders", "archive")
    nsqd = cluster.nsqds[0]
    with nsqd.connect(client_id=FORMULA, hostname="@SUM(1)", user_agent=" +1, and more") as client:
        client.sub("-orders", "archive", 1)
        admin.wait_for_topic("-orders", clients=1, nodes=2)
        page = ready(visit(admin, "/topics/-orders/archive"))
        expect(page.get_by_role("table", name="Clients").get_by_role("row")).to_have_count(2)
        (row,) = csv_of(page, "clients of -orders archive")
        assert (row["Client"], row["Host"], row["User agent"]) == (
            f"'{FORMULA}",
            "'@SUM(1)",
            "' +1, and more",
        )
        assert row["RDY"] == "1"
        assert row["Connected (s)"].isdecimal()
        (found,) = json_of(page, "clients of -orders archive")
        assert (found["client_id"], found["hostname"], found["node"]) == (FORMULA, "@SUM(1)", address(nsqd))
        page.goto("/channels")
        ready(page)
        (channel,) = csv_of(page, "channels")
        assert (channel["Channel"], channel["Topic"], channel["Clients"]) == ("archive", "'-orders", "1")
        (channel,) = json_of(page, "channels")
        assert (channel["topic"], channel["depth"], channel["oldest_age_s"]) == ("-orders", 0, None)


def test_nodes_and_what_needs_attention_are_saved(
    visit: Visits, cluster: AdminCluster, admin: NsqadminProcess
) -> None:
    for number in range(5):  # one row for all of them
        cluster.nsqds[0].create(f"paused-{number}", "archive")
        cluster.nsqds[0].post(f"/channel/pause?topic=paused-{number}&channel=archive")
    admin.wait_for_topic("paused-4", paused_channels=1)
    page = ready(visit(admin))
    expect(page.get_by_role("region", name="Attention")).to_contain_text("5 channels of 5 topics")
    paused = [row for row in csv_of(page, "attention") if row["Problem"] == "paused"]
    assert sorted(row["Topic"] for row in paused) == [f"paused-{number}" for number in range(5)]
    assert {row["Channel"] for row in paused} == {"archive"}
    assert all(re.match(r"\d{4}-\d\d-\d\dT", row["Since"]) for row in paused)
    assert [row["severity"] for row in json_of(page, "attention") if row["topic"] == "paused-0"] == [
        "warning"
    ]
    page.goto("/nodes")
    ready(page)

    def all_ok() -> list[dict[str, str]]:
        nodes = csv_of(page, "nodes")
        return nodes if {row["State"] for row in nodes} == {"ok"} else []

    nodes = wait_until(all_ok, what="nsqds that are not late for a moment, as on a busy machine")
    assert [row["nsqd"] for row in nodes] == sorted(map(address, cluster.nsqds))
    assert all(row["Uptime (s)"].isdecimal() for row in nodes)
