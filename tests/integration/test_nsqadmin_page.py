"""What the page of nsqadmin rests on: /api/v2, events, actions, history."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.nsqadmin_cluster import AdminCluster, address
from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.nsqd_process import HTTPAnswer, wait_until
from tests.support.wire import pub

# One worker runs them all: they share their processes.
pytestmark = pytest.mark.xdist_group("nsqadmin page")


def done(answer: HTTPAnswer) -> dict[str, Any]:
    assert answer.status == 200, answer
    document: dict[str, Any] = answer.json()
    assert document["errors"] == []
    return document


def refusal(answer: HTTPAnswer) -> tuple[int, str]:
    return answer.status, answer.json()["message"]


# ---- views


def test_views_of_the_cluster(cluster: AdminCluster, admin: NsqadminProcess) -> None:
    cluster.create("orders", "archive")
    cluster.publish("orders", 1, 2)
    orders = admin.wait_for_topic("orders", depth=3, nodes=2)
    kinds = ["channel" if "channel" in row else "node" for row in orders["rows"]]
    assert kinds == ["channel", "node", "node"]
    (row,) = admin.get("/api/v2/topics?search=ARCH")["rows"]
    assert (row["topic"], row["depth"], row["channels"]) == ("orders", 3, 1)
    assert admin.get("/api/v2/topics?search=none")["total"] == 0
    archive = admin.get("/api/v2/topics/orders/channels/archive")
    assert sorted(row["depth"] for row in archive["rows"]) == [1, 2]
    # On a busy machine an nsqd may be slow for a round.
    overview = wait_until(lambda: found if (found := admin.get("/api/v2/overview"))["nodes_ok"] == 2 else None)
    assert overview is not None
    assert (overview["topics"], overview["depth"]) == (1, 3)
    nodes = {row["node"]: row for row in admin.get("/api/v2/nodes")["rows"]}
    assert {nodes[address(nsqd)]["state"] for nsqd in cluster.nsqds} <= {"ok", "slow"}
    (of_node,) = admin.get(f"/api/v2/nodes/{address(cluster.nsqds[1])}")["rows"]
    assert (of_node["topic"], of_node["depth"]) == ("orders", 2)


def test_clients_of_an_nsqd(cluster: AdminCluster, admin: NsqadminProcess) -> None:
    cluster.create("orders", "archive")
    admin.wait_for_topic("orders", nodes=2, channels=1)
    nsqd, other = cluster.nsqds
    path = f"/api/v2/nodes/{address(nsqd)}"
    with nsqd.connect(client_id="reader") as reader, nsqd.connect(client_id="writer") as writer:
        reader.sub("orders", "archive", 5)
        for _ in range(3):
            writer.send(pub("orders", b"x"))
        nsqd.wait_for_channel("orders", "archive", in_flight_count=3)
        found = admin.get(f"{path}/clients")
        (client,) = found["rows"]
        assert (client["topic"], client["channel"], client["client_id"]) == ("orders", "archive", "reader")
        (publisher,) = found["publishers"]
        assert (publisher["client_id"], publisher["publish_count"]) == ("writer", 3)
        assert publisher["topics"] == [{"topic": "orders", "count": 3}]
        assert (found["total"], found["total_publishers"]) == (1, 1)
        assert admin.get(f"{path}/clients?offset=1")["rows"] == []
    assert admin.get(f"/api/v2/nodes/{address(other)}/clients")["rows"] == []


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ("topics?sort=x", (400, "INVALID_ARG_SORT")),
        ("topics?limit=5000", (400, "INVALID_ARG_LIMIT")),
        ("topics/none", (404, "TOPIC_NOT_FOUND")),
        ("topics/none/log", (404, "TOPIC_NOT_FOUND")),
        ("topics/none/channels/c", (404, "TOPIC_NOT_FOUND")),
        ("nodes/none", (404, "NODE_NOT_FOUND")),
        ("nodes/none/clients", (404, "NODE_NOT_FOUND")),
        ("nodes/none/clients?limit=1001", (400, "INVALID_ARG_LIMIT")),
        ("channels?node=none", (404, "NODE_NOT_FOUND")),
        ("history?metric=x", (400, "INVALID_ARG_METRIC")),
        ("history?range=x", (400, "INVALID_ARG_RANGE")),
        ("history?range=25h", (400, "INVALID_ARG_RANGE")),
        ("events?view=x", (400, "INVALID_ARG_VIEW")),
    ],
)
def test_what_is_refused(admin: NsqadminProcess, path: str, refused: tuple[int, str]) -> None:
    assert refusal(admin.http("GET", f"/api/v2/{path}")) == refused


def test_a_nsqd_that_hangs_is_slow_and_keeps_nobody_waiting(cluster: AdminCluster) -> None:
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


def test_events_tell_what_changes(cluster: AdminCluster, admin: NsqadminProcess) -> None:
    cluster.create("orders")
    cluster.create("users")
    admin.wait_for_topic("users", nodes=2)
    admin.wait_for_topic("orders", nodes=2)
    with admin.events("view=topics") as events:
        first = next(events)
        assert (first["full"], list(first["rows"]), first["keys"]) == (True, ["orders", "users"], ["orders", "users"])
        cluster.publish("orders", 1, 1)
        changes = [next(events)]
        while changes[-1].get("rows", {}).get("orders", {}).get("depth") != 2:
            changes.append(next(events))
        assert all("users" not in change.get("rows", {}) for change in changes)
        assert not any("full" in change for change in changes)
        cluster.nsqds[0].post("/topic/delete?topic=users")
        cluster.nsqds[1].post("/topic/delete?topic=users")
        keys = ["orders", "users"]
        while keys != ["orders"]:
            keys = next(events).get("keys", keys)


def test_a_reader_that_comes_back_gets_everything_again(cluster: AdminCluster, admin: NsqadminProcess) -> None:
    cluster.create("orders")
    admin.wait_for_topic("orders", nodes=2)
    with admin.events("view=topics") as events:
        last_id = next(events)["id"]
    cluster.publish("orders", 1, 0)
    admin.wait_for_topic("orders", depth=1)
    with admin.events("view=topics", last_id) as events:
        again = next(events)
    assert again["full"]
    assert again["rows"]["orders"]["depth"] == 1


def test_a_topic_that_goes_is_told(cluster: AdminCluster, admin: NsqadminProcess) -> None:
    cluster.create("orders")
    admin.wait_for_topic("orders", nodes=2)
    with admin.events("view=topic&topic=orders") as events:
        assert next(events)["head"]["topic"] == "orders"
        for nsqd in cluster.nsqds:
            nsqd.post("/topic/delete?topic=orders")
        gone = next(event for event in events if event["event"] == "gone")
        assert gone["message"] == "TOPIC_NOT_FOUND"
        cluster.create("orders")
        assert next(event for event in events if event["event"] == "change")["full"]


def test_it_stops_at_once_and_cleanly_with_open_streams(cluster: AdminCluster) -> None:
    admin = cluster.admin("--log-level=info")
    with admin.events("view=overview") as events:
        next(events)
        admin.signal(signal.SIGTERM)
        assert [event["event"] for event in events][-1] == "bye"
        assert admin.wait() == 0
    assert "ERROR" not in admin.log_text()


# ---- history


def test_history_survives_a_restart(cluster: AdminCluster, tmp_path: Path) -> None:
    admin = cluster.admin(f"--history-file={tmp_path / 'history.db'}")
    cluster.create("orders", "archive")
    cluster.publish("orders", 2, 3)
    query = "/api/v2/history?topic=orders&channel=archive&metric=depth,message_rate&range=60s"

    def depths() -> list[Any]:
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


# ---- actions


def test_actions_have_their_effect_and_leave_a_line(cluster: AdminCluster, admin: NsqadminProcess) -> None:
    done(admin.act("create", "orders", channel="archive"))
    node = done(admin.act("publish", "orders", body="h\u00e9llo"))["node"]
    found = wait_until(lambda: [nsqd for nsqd in cluster.nsqds if nsqd.topic_stats("orders")], what="the topic")
    assert [address(nsqd) for nsqd in found] == [node]
    nsqd = found[0]
    done(admin.act("create", "orders", channel="archive"))
    nsqd.wait_for_channel("orders", "archive", depth=1)
    admin.wait_for_topic("orders", depth=1, channels=1)
    done(admin.act("pause", "orders", channel="archive"))
    nsqd.wait_for_channel("orders", "archive", paused=True)
    done(admin.act("unpause", "orders", channel="archive"))
    nsqd.wait_for_channel("orders", "archive", paused=False)
    done(admin.act("empty", "orders", channel="archive"))
    nsqd.wait_for_channel("orders", "archive", depth=0)
    done(admin.act("publish", "orders", body_base64="AP8=", node=node))
    done(admin.act("delete", "orders", channel="archive"))
    assert nsqd.channel_stats("orders", "archive") is None
    done(admin.act("delete", "orders"))
    assert nsqd.topic_stats("orders") is None
    line = r'AUDIT: empty topic="orders" channel="archive" by="" from=127\.0\.0\.1:\d+ result="ok"'
    assert re.search(line, admin.log_text())


def test_tombstone(cluster: AdminCluster, admin: NsqadminProcess) -> None:
    cluster.create("orders")
    done(admin.act("tombstone", "orders", node=address(cluster.nsqds[0])))
    assert cluster.nsqds[0].topic_stats("orders") is None
    assert cluster.nsqds[1].topic_stats("orders") is not None


@pytest.mark.ours
def test_looking_into_a_topic_and_seeking(cluster: AdminCluster, admin: NsqadminProcess) -> None:
    cluster.create("orders", "archive")
    cluster.publish("orders", 0, 3)
    admin.wait_for_topic("orders", depth=3)
    path = "/api/v2/topics/orders"
    answers = {node["node"]: node["answer"] for node in admin.get(f"{path}/channels/archive/peek?n=2")["nodes"]}
    assert [message["body"] for message in answers[address(cluster.nsqds[1])]["messages"]] == ["hello"] * 2
    logs = {node["node"]: node["answer"] for node in admin.get(f"{path}/log")["nodes"]}
    assert logs[address(cluster.nsqds[1])]["next_seq"] == 3
    with cluster.nsqds[1].connect() as client:
        client.sub("orders", "archive", 10)
        client.consume(3)
    cluster.nsqds[1].wait_for_channel("orders", "archive", depth=0, in_flight_count=0, client_count=0)
    moved = admin.act("seek", "orders", channel="archive", to="nonsense")
    assert moved.status == 502
    assert moved.json()["message"].startswith("UPSTREAM_ERROR: ")
    done(admin.act("seek", "orders", channel="archive", to="earliest"))
    assert 'AUDIT: seek topic="orders" channel="archive" to="earliest" by=' in admin.log_text()


def messages_of(admin: NsqadminProcess, path: str, node: str) -> dict[str, Any]:
    (answer,) = [found["answer"] for found in admin.get(path)["nodes"] if found["node"] == node]
    found: dict[str, Any] = answer
    return found


def bodies_of(answer: dict[str, Any]) -> list[str]:
    return [message["body"] for message in answer["messages"]]


@pytest.mark.ours
def test_the_messages_of_a_log(cluster: AdminCluster, admin: NsqadminProcess) -> None:
    cluster.create("orders", "archive")
    nsqd, node = cluster.nsqds[0], address(cluster.nsqds[0])
    with nsqd.connect() as client:
        client.mpub("orders", [b'{"id":%d}' % i for i in range(30)])
        client.mpub("orders", [b"\xff" * 100_000, b"<b>last</b>"])
    admin.wait_for_topic("orders", depth=32)
    path = "/api/v2/topics/orders/messages"
    assert bodies_of(messages_of(admin, f"{path}?limit=3", node)) == ['{"id":0}', '{"id":1}', '{"id":2}']
    found = messages_of(admin, f"{path}?path=id>%2020&limit=5&node={node}", node)
    assert (bodies_of(found)[0], found["next_seq"], found["is_end"]) == ('{"id":21}', 26, False)
    found = messages_of(admin, f"{path}?path=id>%2020&seq={found['next_seq']}&node={node}", node)
    assert bodies_of(found) == [f'{{"id":{i}}}' for i in range(26, 30)]
    assert (found["next_seq"], found["is_end"]) == (32, True)
    large, last = messages_of(admin, f"{path}?from=latest&limit=2", node)["messages"]
    assert (large["size"], large["is_cut"], last["body"]) == (100_000, True, "<b>last</b>")
    assert bodies_of(messages_of(admin, f"{path}?from=-1h&regex=%3Ela.t&text=b", node)) == ["<b>last</b>"]
    assert messages_of(admin, f"{path}?from=2100-01-01", node)["is_end"]
    assert messages_of(admin, f"{path}?until=2100-01-01&limit=1", node)["messages"] == [last]
    assert messages_of(admin, f"{path}?until=-1h", node)["is_start"]
    download = admin.http("GET", f"{path}/{large['seq']}?node={node}")
    assert (download.status, download.body) == (200, b"\xff" * 100_000)
    assert admin.http("GET", f"{path}/99?node={node}").json()["message"] == "MESSAGE_NOT_FOUND"
    refused = admin.http("GET", f"{path}?regex=%28").json()
    assert (refused["message"], refused["reason"]) == ("INVALID_ARG_REGEX", "missing ): (")


@pytest.mark.ours
def test_messages_in_flight_and_deferred(cluster: AdminCluster, admin: NsqadminProcess) -> None:
    cluster.create("orders", "archive")
    nsqd, node = cluster.nsqds[0], address(cluster.nsqds[0])
    with nsqd.connect() as client:
        client.mpub("orders", [b"a", b"b", b"c"])
        client.dpub("orders", 600_000, b"later")
        client.sub("orders", "archive", 2)
        client.messages(2)
        admin.wait_for_topic("orders", depth=1)
        path = "/api/v2/topics/orders/channels/archive"
        found = messages_of(admin, f"{path}/peek?state=in_flight&regex=b", node)
        assert (bodies_of(found), found["searched_count"]) == (["b"], 2)
        (later,) = messages_of(admin, f"{path}/peek?state=deferred", node)["messages"]
        assert (later["body"], later["due"] > later["timestamp"]) == ("later", True)
        download = admin.http("GET", f"{path}/messages/{later['id']}?node={node}&seq={later['seq']}")
        assert download.body == b"later"


@pytest.mark.ours
def test_one_dead_letter_goes_back_and_one_is_discarded(cluster: AdminCluster, admin: NsqadminProcess) -> None:
    cluster.create("orders", "archive")
    nsqd, node = cluster.nsqds[0], address(cluster.nsqds[0])
    nsqd.create("orders.dead", "letters")
    with nsqd.connect() as client:
        client.mpub("orders.dead", [b"0", b"\xff1", b"2"])
    admin.wait_for_topic("orders.dead", depth=3)
    letters = messages_of(admin, "/api/v2/topics/orders.dead/channels/letters/peek", node)["messages"]

    def act(action: str, number: int, **more: Any) -> HTTPAnswer:
        letter = letters[number]
        names = {"channel": "letters", "node": node, "seq": letter["seq"], "message": letter["id"]}
        return admin.act(action, "orders.dead", **{**names, **more})

    done(act("requeue_message", 1, target="orders"))
    done(act("discard_message", 0))
    assert refusal(act("discard_message", 0)) == (404, "MESSAGE_NOT_QUEUED")
    assert refusal(act("requeue_message", 0, target="orders.dead")) == (400, "INVALID_ARG_TARGET")
    assert refusal(act("discard_message", 2, message=letters[0]["id"])) == (404, "MESSAGE_NOT_QUEUED")
    assert refusal(act("discard_message", 2, node="")) == (400, "MISSING_ARG_NODE")
    nsqd.wait_for_channel("orders.dead", "letters", depth=1)
    (moved,) = nsqd.http("GET", "/channel/peek?topic=orders&channel=archive").json()["messages"]
    assert moved["body_base64"] == "/zE="
    line = f'AUDIT: requeue_message topic="orders.dead" channel="letters" node="{node}" target="orders" message="'
    assert f'{line}{letters[1]["id"]}" seq="1" by=' in admin.log_text()


@pytest.mark.ours
def test_dead_letters_are_listed_by_number(cluster: AdminCluster, admin: NsqadminProcess) -> None:
    nsqd, node = cluster.nsqds[0], address(cluster.nsqds[0])
    nsqd.create("orders.dead")
    nsqd.post("/mpub?topic=orders.dead", b"0\n1\n2")
    admin.wait_for_topic("orders.dead", depth=3)

    def listed() -> list[tuple[int, int, str | None]]:
        (found,) = admin.get(f"/api/v2/topics/orders.dead/dead-letters?node={node}")["nodes"]
        return [(row["seq"], row["size"], row["topic"]) for row in found["dead_letters"]]

    assert listed() == [(0, 1, None), (1, 1, None), (2, 1, None)]
    assert admin.http("GET", f"/api/v2/topics/orders.dead/messages/1?node={node}").body == b"1"
    assert admin.get("/api/v2/topics/orders.dead")["rows"][0].get("channel") is None  # looking makes no channel
    done(admin.act("requeue_dead_letters", "orders.dead", target="orders", limit=1))
    assert [seq for seq, _, _ in listed()] == [1, 2]


@pytest.mark.ours
def test_dead_letters_go_back(cluster: AdminCluster, admin: NsqadminProcess) -> None:
    cluster.create("orders", "archive")
    for name in ("orders.dead", "other.dead"):
        for nsqd in cluster.nsqds:
            nsqd.create(name)
    cluster.publish("orders.dead", 2, 3)
    admin.wait_for_topic("orders.dead", depth=5)
    admin.wait_for_topic("other.dead")
    assert refusal(admin.act("requeue_dead_letters", "orders.dead", target="orders.dead"))[0] == 400
    assert done(admin.act("requeue_dead_letters", "orders.dead", target="orders", limit=4))["requeued"] == 4
    assert 'AUDIT: requeue_dead_letters topic="orders.dead" target="orders" limit="4" by=' in admin.log_text()
    assert done(admin.act("requeue_dead_letters", "orders.dead", target="orders"))["requeued"] == 1
    assert done(admin.act("requeue_dead_letters", "other.dead", target="orders"))["requeued"] == 0
    admin.wait_for_topic("orders", depth=5)
    admin.wait_for_topic("orders.dead", depth=0, in_flight=0)


@pytest.mark.parametrize(
    ("action", "topic", "more", "refused"),
    [
        ("burn", "t", {}, (400, "INVALID_ACTION")),
        ("pause", "", {}, (400, "MISSING_ARG_TOPIC")),
        ("create", "bad topic", {}, (400, "INVALID_TOPIC")),
        ("create", "t", {"channel": "<b>"}, (400, "INVALID_CHANNEL")),
        ("tombstone", "t", {}, (400, "MISSING_ARG_NODE")),
        ("publish", "t", {}, (400, "MISSING_ARG_BODY")),
        ("publish", "t", {"body_base64": "?"}, (400, "INVALID_ARG_BODY_BASE64")),
        ("publish", "t", {"body": "x", "defer_ms": "x"}, (400, "INVALID_ARG_DEFER_MS")),
        ("publish", "t", {"body": "x", "node": "none"}, (404, "NODE_NOT_FOUND")),
        ("seek", "t", {"channel": "c"}, (400, "MISSING_ARG_TO")),
        ("seek", "t", {"channel": "c", "to": "latest"}, (404, "TOPIC_NOT_FOUND")),
        ("requeue_dead_letters", "t", {}, (400, "INVALID_TOPIC")),
        ("discard_message", "t", {"channel": "c", "seq": "1"}, (400, "INVALID_ARG_SEQ")),
        ("discard_message", "t", {"channel": "c", "seq": 1}, (400, "MISSING_ARG_MESSAGE")),
        ("requeue_dead_letters", "t", {"target": "u", "limit": 0}, (400, "INVALID_ARG_LIMIT")),
    ],
)
def test_actions_that_make_no_sense(
    admin: NsqadminProcess, action: str, topic: str, more: dict[str, Any], refused: tuple[int, str]
) -> None:
    assert refusal(admin.act(action, topic, **more)) == refused


# ---- a large cluster
