"""The audit view: what was done through an nsqadmin, by whom, and with what result."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.nsqd_process import wait_until

pytestmark = pytest.mark.ours

PROXY = ("--acl-http-header=X-User", "--acl-http-header-from=127.0.0.1/32")


def pause(admin: NsqadminProcess, topic: str, user: str) -> int:
    return admin.http("POST", f"/api/topics/{topic}", b'{"action":"pause"}', {"X-User": user}).status


def rows(admin: NsqadminProcess, query: str = "", **headers: str) -> list[dict[str, Any]]:
    return admin.get(f"/api/v2/audit{query}", **headers)["rows"]


def test_who_did_what_when_from_where_with_what_result(cluster):
    cluster.create("orders", "archive")
    admin = cluster.admin(*PROXY)
    assert pause(admin, "orders", "ada") == 200
    assert admin.http("DELETE", "/api/topics/none/archive", None, {"X-User": "bob"}).status == 404
    admin.wait_for_topic("orders", nodes=2, channels=1)
    admin.act("seek", "orders", channel="archive", to="earliest")
    assert admin.http("PUT", "/config/log_level", b"debug").status == 200
    config, seek, delete, paused = rows(admin)
    assert (paused["action"], paused["user"], paused["is_verified"], paused["topic"]) == (
        "pause",
        "ada",
        True,
        "orders",
    )
    assert (paused["state"], paused["result"], paused["address"].partition(":")[0]) == (
        "done",
        "ok",
        "127.0.0.1",
    )
    assert abs(paused["time_s"] - admin.get("/api/v2/overview")["time"]) < 40
    assert (delete["user"], delete["channel"], delete["state"]) == ("bob", "archive", "failed")
    assert delete["result"].startswith("TOPIC_NOT_FOUND: ")
    assert (seek["action"], seek["user"], seek["is_verified"], seek["details"]) == (
        "seek",
        "",
        False,
        {"to": "earliest"},
    )
    assert (config["action"], config["details"]) == ("set_option", {"option": "log_level", "value": "debug"})
    assert [row["user"] for row in rows(admin, "?only=failed")] == ["bob"]
    assert [row["action"] for row in rows(admin, "?search=ORDERS+earliest")] == ["seek"]
    assert [row["action"] for row in rows(admin, "?topic=orders&limit=1&offset=1")] == ["pause"]
    assert admin.get("/api/v2/audit?limit=1")["total"] == 4
    for query in ("only=x", "limit=x", "offset=-1"):
        assert admin.http("GET", f"/api/v2/audit?{query}").status == 400


def test_an_action_that_one_nsqd_refuses_is_partly_done(cluster):
    cluster.create("orders", "archive")
    cluster.nsqds[0].create("orders", "single")
    wait_until(lambda: "single" in cluster.lookupd.channels("orders"))
    admin = cluster.admin("--log-level=debug")
    admin.http("POST", "/api/topics/orders/single", b'{"action":"pause"}')
    (row,) = rows(admin)
    assert row["state"] == "partly"
    assert "CHANNEL_NOT_FOUND" in row["result"]


def test_users_see_what_they_may_view(cluster):
    for topic in ("orders", "billing"):
        cluster.create(topic, "c")
    rules = (
        "--admin-user=ada",
        "--topic-permission=administer orders group:shop",
        "--topic-permission=view * eve",
    )
    admin = cluster.admin(*PROXY, *rules)
    for topic in ("orders", "billing"):
        assert pause(admin, topic, "ada") == 200
    assert pause(admin, "orders", "mallory") == 404

    def seen(**headers):
        return [(row["topic"], bool(row["address"])) for row in rows(admin, **headers)]

    assert seen(X_User="ada") == [("billing", True), ("orders", True)]
    assert seen(X_User="eve") == [("billing", False), ("orders", False)]
    assert seen(X_User="bob", X_Forwarded_Groups="shop") == [("orders", False)]
    assert seen(X_User="mallory") == []


def test_it_survives_a_restart_and_a_kill(cluster, tmp_path):
    cluster.create("orders", "archive")
    flag = f"--history-file={tmp_path / 'history.db'}"
    file = tmp_path / "history.db.audit"
    admin = cluster.admin(flag, *PROXY)
    assert pause(admin, "orders", "ada") == 200
    wait_until(lambda: file.exists() and b"ada" in file.read_bytes(), what="the entry in the file")
    assert file.stat().st_mode & 0o777 == 0o600
    admin.restart(clean=False)
    assert [row["user"] for row in rows(admin)] == ["ada"]
    for user in ("bob", "eve"):
        assert pause(admin, "orders", user) == 200
    admin.restart()
    assert [row["user"] for row in rows(admin)] == ["eve", "bob", "ada"]


def test_a_damaged_file_is_set_aside_and_a_link_is_not_followed(cluster, tmp_path):
    cluster.create("orders", "archive")
    flag = f"--history-file={tmp_path / 'history.db'}"
    file = tmp_path / "history.db.audit"
    file.write_bytes(b"[{")
    admin = cluster.admin(flag)
    assert rows(admin) == []
    assert len(list(tmp_path.glob("history.db.audit.damaged-*"))) == 1
    admin.stop()
    victim = tmp_path / "victim"
    victim.write_text(json.dumps([{"time_s": 1, "state": "done", "user": "mallory"}]))
    file.unlink(missing_ok=True)
    file.symlink_to(victim)
    admin.start()
    assert rows(admin) == []
    assert pause(admin, "orders", "ada") == 200
    admin.stop()
    assert "mallory" in victim.read_text()
    assert not file.is_symlink() and "orders" in file.read_text()


def test_thousands_of_actions_take_little_memory(cluster):
    """A user who may act can push out older entries, which the log still has; nothing grows."""
    admin = cluster.admin(*PROXY)
    token = admin.token()
    body = json.dumps({"action": "tombstone", "topic": "x" * 60_000, "node": "y" * 4000}).encode()
    for _ in range(100):
        assert admin.http("POST", "/api/v2/actions", body, {"X-Nsqadmin-Token": token}).status == 400
    assert len(admin.http("GET", "/api/v2/audit?limit=2000").text) < 100 * 2000
