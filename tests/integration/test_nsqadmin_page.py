"""What the page of nsqadmin rests on: /api/v2, events, actions, history."""

from __future__ import annotations

import signal
import socket
import time
from contextlib import ExitStack
from select import select
from typing import Any

import pytest

from tests.support.nsqadmin_cluster import address
from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.nsqd_process import wait_until

# ---- views


REFUSED = {
    "topics?sort=x": "400 INVALID_ARG_SORT",
    "topics?limit=5000": "400 INVALID_ARG_LIMIT",
    "topics/none": "404 TOPIC_NOT_FOUND",
    "topics/none/log": "404 TOPIC_NOT_FOUND",
    "topics/none/channels/c": "404 TOPIC_NOT_FOUND",
    "nodes/none": "404 NODE_NOT_FOUND",
    "nodes/none/clients": "404 NODE_NOT_FOUND",
    "channels?node=none": "404 NODE_NOT_FOUND",
    "history?metric=x": "400 INVALID_ARG_METRIC",
    "history?range=x": "400 INVALID_ARG_RANGE",
    "history?range=25h": "400 INVALID_ARG_RANGE",
    "events?view=x": "400 INVALID_ARG_VIEW",
}


def test_what_is_refused(admin):
    assert {path: admin.http("GET", f"/api/v2/{path}").refusal for path in REFUSED} == REFUSED


def test_a_nsqd_that_hangs_is_slow_and_keeps_nobody_waiting(cluster):
    admin = cluster.admin("--http-client-request-timeout=1h")
    cluster.create("orders")
    cluster.publish("orders", 1, 2)
    admin.wait_for_topic("orders", messages=3)
    slow = cluster.nsqds[0]
    slow.signal(signal.SIGSTOP)
    try:
        wait_until(lambda: admin.get("/api/v2/overview")["nodes_slow"] == 1, what="one slow nsqd")
        cluster.nsqds[1].post("/pub?topic=orders", b"x")
        admin.wait_for_topic("orders", messages=4)  # with the last metrics of the slow one
    finally:
        slow.signal(signal.SIGCONT)
    wait_until(lambda: admin.get("/api/v2/overview")["nodes_ok"] == 2, what="both well again")


# ---- events


def test_it_stops_at_once_and_cleanly_with_open_streams(cluster):
    admin = cluster.admin("--log-level=info")
    with admin.events("view=overview") as events:
        next(events)
        admin.signal(signal.SIGTERM)
        assert [event["event"] for event in events][-1] == "bye"
        assert admin.wait() == 0
    assert "ERROR" not in admin.log_text()


# ---- history


def test_history_survives_a_restart(cluster, tmp_path):
    admin = cluster.admin(f"--history-file={tmp_path / 'history.db'}")
    cluster.create("orders", "archive")
    cluster.publish("orders", 2, 3)
    query = "/api/v2/history?topic=orders&channel=archive&metric=depth,message_rate&range=60s"

    def depths():
        document = admin.get(query)
        times, found, rates = document["data"]
        assert (document["metrics"], document["step_s"]) == (["depth", "message_rate"], 2.0)
        assert len(times) == len(found) == len(rates) == 30
        return [depth for depth in found if depth is not None]

    wait_until(lambda: depths()[-1:] == [5.0], what="the depth in the history")
    before = depths()
    admin.restart()
    assert depths()[: len(before)] == before
    times = admin.get(query)["data"][0]
    assert times[-1] - times[0] == 58
    assert abs(times[-1] - time.time()) < 40


def test_one_request_has_the_small_lines_of_a_list(cluster, admin):
    cluster.create("orders", "archive")
    cluster.create("users")
    cluster.publish("orders", 2, 3)

    def last(query):
        lines = admin.get(f"/api/v2/sparklines?{query}")["lines"]
        return {(line["topic"], line["channel"]): line["depth"][-1] for line in lines}

    of_both = {("orders", ""): 5.0, ("users", ""): 0.0}
    wait_until(lambda: last("view=topics&search=rs") == of_both, 60, "the lines of the topics")
    assert last("view=topics&search=rs&sort=depth&order=asc&limit=1") == {("users", ""): 0.0}
    assert (
        last("view=channels&search=orders") == last("view=topic&topic=orders") == {("orders", "archive"): 5.0}
    )
    assert admin.http("GET", "/api/v2/sparklines?view=nodes").status == 400


# ---- actions


def messages_of(admin: NsqadminProcess, path: str, node: str) -> dict[str, Any]:
    (answer,) = [found["answer"] for found in admin.get(path)["nodes"] if found["node"] == node]
    return answer


@pytest.mark.ours
def test_messages_in_flight_and_deferred(cluster, admin):
    cluster.create("orders", "archive")
    nsqd, node = cluster.nsqds[0], address(cluster.nsqds[0])
    with nsqd.consumer("orders", "archive", 2) as client:
        client.mpub("orders", [b"a", b"b", b"c"])
        client.dpub("orders", 600_000, b"later")
        client.messages(2)
        admin.wait_for_topic("orders", depth=1)
        path = "/api/v2/topics/orders/channels/archive"
        found = messages_of(admin, f"{path}/peek?state=in_flight&regex=b", node)
        (shown,) = found["messages"]
        assert (shown["body"], found["searched_count"]) == ("b", 2)
        (later,) = messages_of(admin, f"{path}/peek?state=deferred", node)["messages"]
        assert (later["body"], later["due"] > later["timestamp"]) == ("later", True)
        download = admin.http("GET", f"{path}/messages/{later['id']}?node={node}&seq={later['seq']}")
        assert download.body == b"later"


@pytest.mark.ours
def test_dead_letters_are_listed_by_number(cluster, admin):
    nsqd, node = cluster.nsqds[0], address(cluster.nsqds[0])
    nsqd.create("orders.dead")
    nsqd.post("/mpub?topic=orders.dead", b"0\n1\n2")
    admin.wait_for_topic("orders.dead", depth=3)

    def listed():
        (found,) = admin.get(f"/api/v2/topics/orders.dead/dead-letters?node={node}")["nodes"]
        assert [row["body"] for row in found["dead_letters"]] == [
            str(row["seq"]) for row in found["dead_letters"]
        ]
        return [(row["seq"], row["size"], row["topic"]) for row in found["dead_letters"]]

    assert listed() == [(0, 1, None), (1, 1, None), (2, 1, None)]
    assert admin.http("GET", f"/api/v2/topics/orders.dead/messages/1?node={node}").body == b"1"
    # Looking makes no channel.
    assert admin.get("/api/v2/topics/orders.dead")["rows"][0].get("channel") is None
    assert admin.act("requeue_dead_letters", "orders.dead", target="orders", limit=1).json()["errors"] == []
    assert [seq for seq, _, _ in listed()] == [1, 2]


NO_SENSE = [
    ("burn", "t", {}, "400 INVALID_ACTION"),
    ("pause", "", {}, "400 MISSING_ARG_TOPIC"),
    ("create", "bad topic", {}, "400 INVALID_TOPIC"),
    ("create", "t", {"channel": "<b>"}, "400 INVALID_CHANNEL"),
    ("tombstone", "t", {}, "400 MISSING_ARG_NODE"),
    ("publish", "t", {}, "400 MISSING_ARG_BODY"),
    ("publish", "t", {"body_base64": "?"}, "400 INVALID_ARG_BODY_BASE64"),
    ("publish", "t", {"body": "x", "more": [[]] * 50_000}, "400 invalid JSON: too many values"),
    ("publish", "t", {"body": "x", "defer_ms": "x"}, "400 INVALID_ARG_DEFER_MS"),
    ("publish", "t", {"body": "x", "node": "none"}, "404 NODE_NOT_FOUND"),
    ("seek", "t", {"channel": "c"}, "400 MISSING_ARG_TO"),
    ("seek", "t", {"channel": "c", "to": "latest"}, "404 TOPIC_NOT_FOUND"),
    ("requeue_dead_letters", "t", {}, "400 INVALID_TOPIC"),
    ("discard_message", "t", {"channel": "c", "seq": "1"}, "400 INVALID_ARG_SEQ"),
    ("discard_message", "t", {"channel": "c", "seq": 1}, "400 MISSING_ARG_MESSAGE"),
    ("requeue_dead_letters", "t", {"target": "u", "limit": 0}, "400 INVALID_ARG_LIMIT"),
]


def test_actions_that_make_no_sense(admin):
    for action, topic, more, refused in NO_SENSE:
        assert admin.act(action, topic, **more).refusal == refused, (action, more)


def test_few_long_bodies_are_received_at_a_time(admin):
    head = f"POST /api/v2/actions HTTP/1.1\r\nHost: x\r\nX-Nsqadmin-Token: {admin.token()}\r\nContent-Length: 100000\r\n"
    with ExitStack() as stack:
        address = "127.0.0.1", admin.http_port
        first, *_, last = socks = [stack.enter_context(socket.create_connection(address)) for _ in range(5)]
        for sock in socks:
            sock.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
            assert sock is last or sock.recv(100).startswith(b"HTTP/1.1 100 ")
        assert admin.act("burn", "t").refusal == "400 INVALID_ACTION"  # short bodies do not wait
        assert select([last], [], [], 0)[0] == []
        first.close()
        assert last.recv(100).startswith(b"HTTP/1.1 100 ")
