"""Who may do what, as the page shows it; logging in; a base path."""

from __future__ import annotations

from pathlib import Path

import bcrypt
import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import Visits, confirm, path_of, press, ready
from tests.support.nsqadmin_cluster import AdminCluster, address
from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.nsqd_process import wait_until

# One worker runs them all: they share their processes.
pytestmark = pytest.mark.xdist_group("browser")

# Buttons of each view that change something.
CHANGING = {
    "/": ["Create a topic"],
    "/topics/orders": [
        "Publish a message",
        "Create a channel",
        "Pause",
        "Seek",
        "Empty",
        "Delete",
        "Tombstone",
    ],
    "/topics/orders/archive": ["Pause", "Seek", "Empty", "Delete"],
    "/topics/payments.dead?tab=dead": ["Requeue"],
    "/nodes/{node}": ["Tombstone"],
    "/lookup": ["Delete topic", "Create"],
}


def working(page: Page, names: list[str]) -> list[str]:
    """Of these buttons, those that can be pressed; each has to be there."""
    found = []
    for name in names:
        button = page.get_by_role("main").get_by_role("button", name=name).first
        expect(button).to_be_visible()
        if button.is_enabled():
            found.append(name)
    return found


def test_who_only_looks_has_no_working_buttons(visit: Visits, filled: AdminCluster) -> None:
    admin = filled.admin("--read-only")
    admin.wait_for_topic("payments.dead", depth=1)
    page = visit(admin)
    for path, names in CHANGING.items():
        page.goto(path.format(node=address(filled.nsqds[0])))
        assert working(ready(page), names) == []
    expect(page.get_by_role("banner")).to_contain_text("read only")
    page.goto("/topics/orders")
    page.get_by_role("button", name="Delete", exact=True).click(force=True)  # it says why, and does nothing
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert "AUDIT" not in admin.log_text()


def test_login(visit: Visits, filled: AdminCluster, tmp_path: Path) -> None:
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    (tmp_path / "users").write_text(f"bob:{hashed}\n")
    admin = filled.admin(f"--http-auth-file={tmp_path / 'users'}")
    assert admin.http("GET", "/").status == 401
    login = {"username": "bob", "password": "secret"}
    clipboard = ["clipboard-read", "clipboard-write"]
    page = ready(visit(admin, http_credentials=login, permissions=clipboard, faults=["401"]))
    expect(page.get_by_role("banner")).to_contain_text("bob")
    expect(page.get_by_role("table", name="Topics").get_by_role("link", name="orders")).to_be_visible()
    dialog = press(page, "Create a topic")
    dialog.get_by_label("Topic").fill("orders")
    dialog.get_by_role("button", name="Copy as curl").click()
    expect(dialog.get_by_role("button", name="Copied")).to_be_visible()
    command = page.evaluate("navigator.clipboard.readText()")
    assert command.count("curl -fsS -u 'bob' ") == 2  # curl asks for the password
    assert "secret" not in command
    confirm(dialog, "Create")
    wait_until(
        lambda: 'AUDIT: create topic="orders" by="bob"' in admin.log_text(), what="the line of the action"
    )


def test_below_a_base_path(visit: Visits, filled: AdminCluster) -> None:
    admin: NsqadminProcess = filled.admin("--base-path=/q")
    page = ready(visit(admin, "/q/"))
    page.get_by_role("table", name="Topics").get_by_role("link", name="orders").click()
    page.get_by_role("table", name="Channels").get_by_role("link", name="archive").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("archive")
    assert path_of(page) == "/q/topics/orders/archive"
    confirm(press(page, "Pause"), "Pause channel")
    filled.nsqds[0].wait_for_channel("orders", "archive", paused=True)
    page.get_by_role("button", name="Resume").click()
    filled.nsqds[0].wait_for_channel("orders", "archive", paused=False)
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_have_text("archive")
    page.get_by_role("link", name="Nodes").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Nodes")
    assert path_of(page) == "/q/nodes"
